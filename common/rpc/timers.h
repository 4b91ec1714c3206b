// Calls functions at set times, on one thread.
//
// Thread-safe. Functions must be quick and hand work to a pool.
#ifndef LOCKSTEP_COMMON_RPC_TIMERS_H_
#define LOCKSTEP_COMMON_RPC_TIMERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace lockstep {

class Timers {
 public:
  // The due time and a unique number.
  using Id = std::pair<MonoTime, uint64_t>;

  Timers();
  // Drops functions that are not due yet.
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  Id Set(MonoTime time, std::function<void()> call);
  // Cancels the function unless its call has already begun.
  void Drop(const Id& id);

 private:
  void Run();

  Mutex mu_;
  CondVar wake_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<Id, std::function<void()>> calls_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_TIMERS_H_
