// What one caller of WatchJobs is sent: the jobs as they are, then what
// happens to them.
#ifndef LOCKSTEP_SERVER_SERVICE_JOB_WATCH_H_
#define LOCKSTEP_SERVER_SERVICE_JOB_WATCH_H_

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "lockstep/v1/job.pb.h"
#include "server/coordinator/cluster_queries.h"
#include "server/coordinator/watch_hub.h"
#include "server/metrics/stream_metrics.h"
#include "server/query/visibility.h"
#include "server/service/initial_jobs.h"
#include "server/stream/stream_reactor.h"

namespace lockstep {

class JobWatch final : public StreamSource<v1::WatchJobsResponse> {
 public:
  // All outlive it; `streams` may be null. `reader` sees what it may.
  JobWatch(const ClusterQueries* queries, WatchHub* hub, StreamMetrics* streams,
           JobReader reader, v1::WatchJobsRequest request, StreamPeer* peer);

  // It ends when the one job that is watched has ended and its reader has seen
  // it. InvalidArgument, NotFound: of the request. OutOfRange: the version is
  // not known, or the reader fell behind what the hub keeps. Unavailable: the
  // coordinator stops.
  StreamStep Next(v1::WatchJobsResponse* message) override;
  int64_t KeptBytes() const override { return kept_ + initial_.bytes(); }

 private:
  // One of: a change, a job's progress.
  struct Item {
    // Of a change; null: the job was deleted.
    std::shared_ptr<const Job> job;
    int64_t version = 0;
    JobName name;
    std::optional<JobProgressInfo> progress;
    // About what it takes.
    int64_t bytes = 0;
  };

  Status CheckRequest();
  Status Start();
  // Notes the jobs that exist.
  void NoteJobs(int64_t version);
  void PushNews(WatchHub::News news);
  void Push(Item item);
  // The first that waits; false: nothing does.
  bool Fill(v1::WatchJobsResponse* message);
  // Fills in the next initial job, or that these were all.
  void FillInitial(v1::WatchJobsResponse* message);
  // False: nothing is to be sent of it.
  bool FillItem(const Item& item, v1::WatchJobsResponse* message);
  // Adds what is not in the store, where `job` is still the newest: a reader
  // that is behind need not see what is over, but no state is left out.
  void Complete(JobSnapshot* job);
  // Whether nothing can happen to the job after `version`.
  bool IsOver(int64_t version);

  const ClusterQueries* const queries_;
  WatchHub* const hub_;
  StreamMetrics* const streams_;
  StreamPeer* const peer_;
  const JobReader reader_;
  const JobName name_;
  const int64_t first_version_;
  InitialJobs initial_;
  // A list: an idle watch has none, and then keeps no memory for them.
  std::list<Item> items_;
  // What `items_` takes in memory, in bytes.
  int64_t kept_ = 0;
  // The number of messages that wait. Other threads ask for it.
  std::atomic<int64_t> waiting_ = 0;
  bool ended_ = false;
  MonoTime next_bookmark_{};
  // Null before Start.
  std::optional<WatchHub::Watch> watch_;
  std::optional<StreamMetrics::Open> open_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SERVICE_JOB_WATCH_H_
