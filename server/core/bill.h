// What a job used and costs. Pure.
//
// Counted from the moment a node's resources are held for the job until the
// node said that nothing is left: cores and GPUs that were asked for, whether
// busy or not.
#ifndef LOCKSTEP_SERVER_CORE_BILL_H_
#define LOCKSTEP_SERVER_CORE_BILL_H_

#include <map>
#include <string>

#include "server/core/job.h"

namespace lockstep {

// The site's price table.
struct Prices {
  std::string currency = "USD";
  double core_hour = 0.0475;
  // Of GPU models that `gpu_hours` does not name.
  double gpu_hour = 0.35;
  // Part of the model's name -> price.
  std::map<std::string, double> gpu_hours;
};

// Use up to `now`, current holds included, and its price; of a job that has
// ended with a bill, that bill.
Bill BillAt(const Job& job, const Prices& prices, WallTime now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_BILL_H_
