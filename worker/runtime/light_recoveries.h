// The recoveries of a program's process (LightSession, "Recoveries") over its
// link.
//
// Threads: all methods from any thread; Announce and End run on the link's,
// too.
#ifndef LOCKSTEP_WORKER_RUNTIME_LIGHT_RECOVERIES_H_
#define LOCKSTEP_WORKER_RUNTIME_LIGHT_RECOVERIES_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/rank_link/client.h"

namespace lockstep::worker::runtime {

// The longest time that a call waits in the link.
inline constexpr Duration kLinkSlice = std::chrono::milliseconds(100);

class LightRecoveries {
 public:
  using Use = std::function<Status(rank_link::RankLink*)>;
  // Calls `use` with the link for at most kLinkSlice, or does nothing where
  // lockstep did not start this process. An error: the session is closed, or
  // did not join as recoverable.
  using WithLink = std::function<Status(const Use& use)>;
  explicit LightRecoveries(WithLink with_link)
      : with_link_(std::move(with_link)) {}

  // A recovery was announced. No other one comes any more, and those that wait
  // get `why`.
  void Announce(uint32_t recovery);
  void End(const Status& why);

  // As the methods of LightSession.
  StatusOr<uint32_t> Newest();
  Status Park(uint32_t left, const std::vector<int>& peers);
  StatusOr<uint32_t> Await(uint32_t above, Duration timeout);
  Status SetElastic(bool elastic);
  StatusOr<std::vector<int>> Away(uint32_t recovery);
  Status Put(uint32_t recovery, const std::string& key, std::string_view value);
  StatusOr<std::string> Get(uint32_t recovery, const std::string& key,
                            Duration timeout);
  // Says that this process trains in the group of `recovery`. Returns the ranks
  // that are away in it; nullopt: a later one was announced, and nothing was
  // said.
  StatusOr<std::optional<std::vector<int>>> Join(uint32_t recovery);

 private:
  const WithLink with_link_;
  std::atomic<bool> elastic_ = false;
  Mutex mu_;
  CondVar announcement_;
  uint32_t announced_ ABSL_GUARDED_BY(mu_) = 0;  // The newest recovery.
  Status ended_ ABSL_GUARDED_BY(mu_);            // No recovery comes any more.
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_LIGHT_RECOVERIES_H_
