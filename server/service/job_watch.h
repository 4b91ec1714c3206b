// What one caller of WatchJobs is sent: the jobs as they are, then what
// happens to them.
#ifndef LOCKSTEP_SERVER_SERVICE_JOB_WATCH_H_
#define LOCKSTEP_SERVER_SERVICE_JOB_WATCH_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "lockstep/v1/job.pb.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/watch_hub.h"
#include "server/service/stream_metrics.h"
#include "server/service/stream_reactor.h"
#include "server/service/visibility.h"

namespace lockstep {

class JobWatch final : public StreamSource<v1::WatchJobsResponse> {
 public:
  // All outlive it; `streams` may be null. `reader` sees what it may.
  JobWatch(Coordinator* coordinator, WatchHub* hub, StreamMetrics* streams,
           JobReader reader, v1::WatchJobsRequest request, StreamPeer* peer);

  // It ends when the one job that is watched has ended and its reader has seen
  // it. InvalidArgument, NotFound: of the request. OutOfRange: the version is
  // not known, or the reader fell behind what the hub keeps. Unavailable: the
  // coordinator stops.
  StreamStep Next(v1::WatchJobsResponse* message) override;

 private:
  // One of: a change, a job's progress, the end of the first jobs.
  struct Item {
    std::optional<JobSnapshot> job;
    // With what is not in the store, as it is when the job is sent.
    bool complete = false;
    JobName deleted;
    std::optional<JobProgressInfo> progress;
    JobName progress_of;
    std::optional<int64_t> synced;
  };

  Status CheckRequest();
  Status Start();
  // The jobs as they are, and that these were all.
  void PushJobs(int64_t version);
  void PushNews(WatchHub::News news);
  void Push(Item item);
  // The first that waits; false: nothing does.
  bool Fill(v1::WatchJobsResponse* message);
  // Adds what is not in the store, where `job` is still the newest: a reader
  // that is behind need not see what is over, but no state is left out.
  void Complete(JobSnapshot* job);
  // Whether nothing can happen to the job after `version`.
  bool IsOver(int64_t version);

  Coordinator* const coordinator_;
  WatchHub* const hub_;
  StreamMetrics* const streams_;
  StreamPeer* const peer_;
  const JobReader reader_;
  const JobName name_;
  const int64_t first_version_;
  // A list: an idle watch has none, and then keeps no memory for them.
  std::list<Item> items_;
  // Of items_: for the lag, which other threads ask for.
  std::atomic<int64_t> waiting_ = 0;
  // The first jobs have been pushed, and not all sent.
  bool first_jobs_ = false;
  bool ended_ = false;
  MonoTime next_bookmark_{};
  // Null before Start.
  std::optional<WatchHub::Watch> watch_;
  std::optional<StreamMetrics::Open> open_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_JOB_WATCH_H_
