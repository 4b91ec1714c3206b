// Limits of slow stream readers: how long a message may wait for its reader,
// and how much memory the streams of one caller, and of one role, may keep.
//
// Streams are served piece by piece (stream_reactor.h) and wait without a
// thread, so idle readers cost only memory.
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

namespace lockstep::server {

struct ReaderLimits {
  // A stream ends if its message has waited this long.
  Duration stall = std::chrono::seconds(60);
  // Memory for the streams of one caller, and of one role.
  int64_t caller_bytes = int64_t{256} << 20;
  int64_t role_bytes = int64_t{1} << 30;
  // A caller may always keep this much.
  int64_t caller_share = int64_t{4} << 20;
};

// Thread-safe.
class StreamReaders final : public prometheus::Collectable {
 public:
  explicit StreamReaders(const ReaderLimits& limits = {}) : limits_(limits) {}

  // One stream. `readers` outlives it. Its calls are serial.
  class Reader {
   public:
    // `end` ends the call from another thread, with a lock of `readers` held
    // that SetWaiting does not take.
    Reader(StreamReaders* readers, const pki::Identity& caller,
           std::function<void(const Status&)> end);
    ~Reader();
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    // A message starts to wait for the reader, or has been taken.
    void SetWaiting(bool waiting);
    // Sets the memory kept for it. ResourceExhausted (reason READERS_TOO_SLOW)
    // if it is too much, and the stream must end.
    Status Keep(int64_t bytes);

   private:
    friend class StreamReaders;
    StreamReaders* const readers_;
    const std::string caller_;
    const CallRole role_;
    const std::function<void(const Status&)> end_;
    int64_t kept_ = 0;
    // MonoTime::max() if none waits. Not locked: within `end`, gRPC may report
    // on the same thread that no message waits any more.
    std::atomic<MonoTime> waiting_since_ = MonoTime::max();
    bool ended_ ABSL_GUARDED_BY(readers_->mu_) = false;
    std::list<Reader*>::iterator at_ ABSL_GUARDED_BY(readers_->mu_);
  };

  // Ends the streams whose message has waited longer than the limit at `now`.
  // Returns their number. Call it about once per second.
  int EndStalled(MonoTime now);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const ReaderLimits limits_;
  mutable Mutex mu_;
  std::list<Reader*> readers_ ABSL_GUARDED_BY(mu_);
  // By caller, without zero entries.
  std::map<std::string, int64_t> of_caller_ ABSL_GUARDED_BY(mu_);
  std::array<int64_t, kCallRoles> of_role_ ABSL_GUARDED_BY(mu_) = {};
  int64_t stalled_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t refused_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STREAM_STREAM_READERS_H_
