// Open streams of the coordinator's services and the lag of their readers:
// lockstep_watch_*.
#ifndef LOCKSTEP_SERVER_METRICS_STREAM_METRICS_H_
#define LOCKSTEP_SERVER_METRICS_STREAM_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <functional>
#include <list>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace lockstep::server {

enum class StreamKind {
  kJobs,     // WatchJobs.
  kLogs,     // StreamLogs.
  kWorkers,  // Connect of worker daemons.
};
inline constexpr size_t kStreamKinds = 3;

// Thread-safe.
class StreamMetrics final : public prometheus::Collectable {
 public:
  // Counts one stream from construction to destruction.
  class Open {
   public:
    // `lag` returns the number of events that wait for the reader. It is called
    // on other threads with a lock of `metrics` held, so it must not lock a
    // mutex that is held while an Open is made or destroyed. `metrics` outlives
    // this object; null if not counted.
    Open(StreamMetrics* metrics, StreamKind kind, std::function<int64_t()> lag);
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    StreamMetrics* const metrics_;
    std::list<std::pair<StreamKind, std::function<int64_t()>>>::iterator at_;
  };

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  mutable Mutex mu_;
  std::list<std::pair<StreamKind, std::function<int64_t()>>> open_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_STREAM_METRICS_H_
