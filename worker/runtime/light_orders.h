// The orders of a joined program (order_book.h) over its link.
//
// Threads: all methods from any thread; the callbacks run on the link's.
#ifndef LOCKSTEP_WORKER_RUNTIME_LIGHT_ORDERS_H_
#define LOCKSTEP_WORKER_RUNTIME_LIGHT_ORDERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/rank_link/client.h"
#include "worker/runtime/order_book.h"

namespace lockstep::worker::runtime {

// How long a question may wait for a decision.
inline constexpr Duration kDecisionTime = std::chrono::minutes(5);

class LightOrders {
 public:
  // This object lives longer than the link.
  rank_link::RankLinkCallbacks Callbacks();
  // `link` is borrowed until Close. Without Start every answer is no.
  void Start(rank_link::RankLink* link, const OrderPlace& place);
  // The ranks begin anew in recovery `recovery`, after `step` (-1: unknown):
  // what was not done is proposed again, and questions that wait are answered
  // by that. Does nothing before Start.
  void Restart(const OrderPlace& place, uint32_t recovery, int64_t step);

  void OnStep(int64_t step);
  void OnSaved(int64_t step);
  // Waits where the decision about an order is under way, and then makes no
  // mistake: DeadlineExceeded after kDecisionTime, Aborted where the generation
  // ended, FailedPrecondition where it is closed meanwhile.
  StatusOr<bool> Ask(OrderKind question);
  void Close();

 private:
  // Calls `event` with the book, if there is one, and sends what comes out.
  void Tell(const std::function<void(OrderBook*, OrderOutput*)>& event);
  void Begin(const OrderPlace& place, int64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Send(const OrderOutput& out) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  CondVar changed_;
  rank_link::RankLink* link_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::optional<OrderBook> book_ ABSL_GUARDED_BY(mu_);
  // Before the keys of the rendezvous: "recovery/2/", or nothing.
  std::string prefix_ ABSL_GUARDED_BY(mu_);
  // Not done, by id; also those that came before Start. One that another chief
  // has done meanwhile is done once more if this rank is the chief again: a
  // checkpoint, since no recovery follows an order to stop.
  std::map<uint32_t, v1::RankDirective> open_ ABSL_GUARDED_BY(mu_);
  Status over_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_LIGHT_ORDERS_H_
