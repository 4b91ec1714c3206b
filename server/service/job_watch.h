// One WatchJobs call: sends the current jobs, then their changes.
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

namespace lockstep::server {

class JobWatch final : public StreamSource<v1::WatchJobsResponse> {
 public:
  // All outlive this object; `streams` may be null. `reader` limits what is
  // visible.
  JobWatch(const ClusterQueries* queries, WatchHub* hub, StreamMetrics* streams,
           JobReader reader, v1::WatchJobsRequest request, StreamPeer* peer);

  // Ends when the one watched job has ended and the reader got it.
  // InvalidArgument, NotFound for the request. OutOfRange if the version is
  // unknown or the reader fell behind what the hub keeps. Unavailable if the
  // coordinator stops.
  StreamStep Next(v1::WatchJobsResponse* message) override;
  int64_t KeptBytes() const override { return kept_ + initial_.bytes(); }

 private:
  // A change or a job's progress.
  struct Item {
    // For a change. Null if the job was deleted.
    std::shared_ptr<const Job> job;
    int64_t version = 0;
    JobName name;
    std::optional<JobProgressInfo> progress;
    // Approximate memory.
    int64_t bytes = 0;
  };

  Status CheckRequest();
  Status Start();
  // Records the jobs that exist.
  void NoteJobs(int64_t version);
  void PushNews(WatchHub::News news);
  void Push(Item item);
  // Fills in the first waiting item. Returns false if there is none.
  bool Fill(v1::WatchJobsResponse* message);
  // Fills in the next initial job, or SYNCED after the last.
  void FillInitial(v1::WatchJobsResponse* message);
  // Returns false if there is nothing to send.
  bool FillItem(const Item& item, v1::WatchJobsResponse* message);
  // Adds soft state if `job` is still the newest. A slow reader may miss it for
  // older versions but misses no version.
  void Complete(JobSnapshot* job);
  // True if nothing can change the job after `version`.
  bool IsOver(int64_t version);

  const ClusterQueries* const queries_;
  WatchHub* const hub_;
  StreamMetrics* const streams_;
  StreamPeer* const peer_;
  const JobReader reader_;
  const JobName name_;
  const int64_t first_version_;
  InitialJobs initial_;
  // A list, because an empty one keeps no memory for idle watches.
  std::list<Item> items_;
  // Bytes of `items_`.
  int64_t kept_ = 0;
  // Waiting messages. Other threads read it.
  std::atomic<int64_t> waiting_ = 0;
  bool ended_ = false;
  MonoTime next_bookmark_{};
  // Null before Start.
  std::optional<WatchHub::Watch> watch_;
  std::optional<StreamMetrics::Open> open_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_JOB_WATCH_H_
