// The resources that a job used, and their price. Pure.
//
// Use counts from the moment a node's resources are held for the job until the
// node reports that nothing is left, or until its last sign if it is lost:
// requested cores and GPUs, busy or idle, and ML units by the machine types of
// the tasks. A task with a machine type pays for the cores of that type, though it may be placed on fewer. A GPU is
// billed by its actual model, even if the job accepted any. If attempts had
// GPUs of several models, the price is the mean of the newest attempts,
// weighted by their time.
#ifndef LOCKSTEP_SERVER_CORE_BILL_H_
#define LOCKSTEP_SERVER_CORE_BILL_H_

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "server/core/job.h"

namespace lockstep::server {

// The site's price table.
struct Prices {
  std::string currency = "USD";
  double core_hour = 0.0475;
  // Price of GPU models that `gpu_hours` does not name.
  double gpu_hour = 0.35;
  // Part of the model's name -> price. The longest match applies.
  std::map<std::string, double> gpu_hours;
};

// Returns the cost of `spec` per hour while it holds what it requests. A
// machine type counts with its nominal cores.
double CostPerHour(const JobSpec& spec, const Prices& prices);
// Returns the sum over all its machines; nullopt if one has no price.
std::optional<double> MlUnitsPerHour(const JobSpec& spec);

// Returns the model of a node's GPU by its index; "" if it is unknown.
using GpuModelOf = std::function<std::string(const NodeName&, int32_t)>;

// Returns until when the node has been used: its last sign while it is silent.
using UsedUntil = std::function<WallTime(const NodeName&)>;

// Returns the use up to `now`, current holds included, and its price. A job
// that has ended with a bill keeps that bill. Without `model_of`, GPUs count as
// the requested type; without `until`, all nodes are used until now.
Bill BillAt(const Job& job, const Prices& prices, WallTime now,
            const GpuModelOf& model_of = nullptr,
            const UsedUntil& until = nullptr);

// Returns the ML units that `hold` of the job's current tasks adds in the time
// `held`; nullopt if a role has no machine type with a price.
std::optional<double> MlUnitsOf(const Job& job, const Hold& hold,
                                Duration held);

// The holds of a node for generations up to `generation` end, and are billed
// until `until`.
struct Release {
  Generation generation = 0;
  WallTime until{};
};

// Adds what the holds of the nodes in `over` used to the job's bill and removes
// them.
void ReleaseHolds(Job* job, const std::map<NodeName, Release>& over);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_BILL_H_
