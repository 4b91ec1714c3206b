#include "server/core/bill.h"

#include <algorithm>

namespace lockstep {
namespace {

double GpuHour(const Job& job, const Prices& prices) {
  for (const RoleSpec& role : job.spec.roles) {
    if (role.resources.gpus == 0) continue;
    for (const auto& [model, price] : prices.gpu_hours) {
      if (GpuModelMatches(model, role.resources.gpu_type)) return price;
    }
  }
  return prices.gpu_hour;
}

}  // namespace

Bill BillAt(const Job& job, const Prices& prices, WallTime now) {
  Bill bill = job.bill;
  // The price of the day stays with a job that has ended.
  if (IsFinal(job.state) && !bill.currency.empty()) return bill;
  for (const Hold& hold : job.holds) {
    const double seconds = ToSeconds(std::max(Duration{}, now - hold.since));
    bill.core_seconds += hold.resources.cpus * seconds;
    bill.gpu_seconds += static_cast<double>(hold.gpus.size()) * seconds;
  }
  bill.cost = bill.core_seconds / 3600 * prices.core_hour +
              bill.gpu_seconds / 3600 * GpuHour(job, prices);
  bill.currency = prices.currency;
  return bill;
}

}  // namespace lockstep
