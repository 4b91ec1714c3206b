// Computes the cost of jobs at current prices. Thread-compatible; guarded by
// the coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_BILLING_H_
#define LOCKSTEP_SERVER_COORDINATOR_BILLING_H_

#include <utility>

#include "common/base/clock.h"
#include "server/core/bill.h"
#include "server/core/job.h"
#include "server/core/membership.h"

namespace lockstep::server {

class Billing {
 public:
  // `members` outlives this object.
  Billing(Prices prices, const Membership* members)
      : prices_(std::move(prices)), members_(members) {}

  const Prices& prices() const { return prices_; }
  // The bill of an ended job does not change.
  void SetPrices(Prices prices) { prices_ = std::move(prices); }
  Bill BillOf(const Job& job, Time now) const;

 private:
  Prices prices_;
  const Membership* const members_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_BILLING_H_
