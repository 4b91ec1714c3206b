// What those who read streams slowly may cost: how long a message may wait for
// its reader, and how much may be kept in memory for all that one caller reads,
// and all of a role together.
//
// A stream of the coordinator's services is served by pieces (stream_reactor.h)
// and waits without a thread, so that only memory grows with readers that take
// nothing.
#ifndef LOCKSTEP_SERVER_STREAM_STREAM_READERS_H_
#define LOCKSTEP_SERVER_STREAM_STREAM_READERS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/pki/identity.h"
#include "common/rpc/call_pools.h"

namespace lockstep {

struct ReaderLimits {
  // A message that has waited for so long ends its stream.
  Duration stall = std::chrono::seconds(60);
  // What is kept for the streams of one caller, and for those of a role.
  int64_t caller_bytes = int64_t{256} << 20;
  int64_t role_bytes = int64_t{1} << 30;
  // A caller has so much whatever others of its role have.
  int64_t caller_share = int64_t{4} << 20;
};

// Thread-safe.
class StreamReaders final : public prometheus::Collectable {
 public:
  explicit StreamReaders(const ReaderLimits& limits = {}) : limits_(limits) {}

  // One stream. `readers` outlives it. Its calls are one at a time.
  class Reader {
   public:
    // `end` ends the call, from another thread, with a lock of `readers` held
    // that only SetWaiting does not take.
    Reader(StreamReaders* readers, const Identity& caller,
           std::function<void(const Status&)> end);
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    // A message waits for the reader from now on, or has been taken.
    void SetWaiting(bool waiting);
    // So much is kept for it. ResourceExhausted (reason READERS_TOO_SLOW): it
    // is too much, and the stream is to end.
    Status Keep(int64_t bytes);

   private:
    friend class StreamReaders;
    StreamReaders* const readers_;
    const std::string caller_;
    const CallRole role_;
    const std::function<void(const Status&)> end_;
    int64_t kept_ = 0;
    // MonoTime::max(): nothing waits. No lock: gRPC may say in the midst of
    // `end`, on the same thread, that nothing waits any more.
    std::atomic<MonoTime> waiting_since_ = MonoTime::max();
    bool ended_ ABSL_GUARDED_BY(readers_->mu_) = false;
    std::list<Reader*>::iterator at_ ABSL_GUARDED_BY(readers_->mu_);
  };

  // Ends the streams whose message waits for longer than the limit at `now`;
  // how many. Call every second or so.
  int EndStalled(MonoTime now);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const ReaderLimits limits_;
  mutable Mutex mu_;
  std::list<Reader*> readers_ ABSL_GUARDED_BY(mu_);
  // By caller; those that have none are not there.
  std::map<std::string, int64_t> of_caller_ ABSL_GUARDED_BY(mu_);
  std::array<int64_t, kCallRoles> of_role_ ABSL_GUARDED_BY(mu_) = {};
  int64_t stalled_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t refused_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_STREAM_STREAM_READERS_H_
