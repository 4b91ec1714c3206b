// What a job used and costs. Pure.
//
// Counted from the moment a node's resources are held for the job until the
// node said that nothing is left: cores and GPUs that were asked for, whether
// busy or not, and ML units by the machine types of the tasks. A task with a
// machine type pays for that one's cores, though it may be placed on less. A
// GPU costs what its own model does, also where any was asked for; when
// attempts had GPUs of several models, by the mean of the newest attempts over
// their time.
#ifndef LOCKSTEP_SERVER_CORE_BILL_H_
#define LOCKSTEP_SERVER_CORE_BILL_H_

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "server/core/job.h"

namespace lockstep {

// The site's price table.
struct Prices {
  std::string currency = "USD";
  double core_hour = 0.0475;
  // Of GPU models that `gpu_hours` does not name.
  double gpu_hour = 0.35;
  // Part of the model's name -> price; the longest that matches counts.
  std::map<std::string, double> gpu_hours;
};

// What `spec` costs by the hour while it holds what it asks for; a machine type
// its nominal cores.
double CostPerHour(const JobSpec& spec, const Prices& prices);
// Of all its machines; nothing where one has no price.
std::optional<double> MlUnitsPerHour(const JobSpec& spec);

// The model of a node's GPU by its index; "": not known.
using GpuModelOf = std::function<std::string(const NodeName&, int32_t)>;

// Use up to `now`, current holds included, and its price; of a job that has
// ended with a bill, that bill. Without `model_of` GPUs are of the type that
// was asked for.
Bill BillAt(const Job& job, const Prices& prices, WallTime now,
            const GpuModelOf& model_of = nullptr);

// What `hold` of the job's current tasks adds in `held`; nullopt: a role has no
// machine type with a price.
std::optional<double> MlUnitsOf(const Job& job, const Hold& hold,
                                Duration held);

// Adds what the holds of `node` used until `now` to the job's bill and removes
// them, for generations up to `generation`.
void ReleaseHolds(Job* job, const NodeName& node, Generation generation,
                  WallTime now);
// Does the same for many nodes, each with its generation.
void ReleaseHolds(Job* job, const std::map<NodeName, Generation>& over,
                  WallTime now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_BILL_H_
