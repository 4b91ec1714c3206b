// Client's streams: reads them and resumes after interruptions.
#include <algorithm>
#include <map>
#include <utility>

#include "client/lib/client.h"
#include "client/lib/client_impl.h"

namespace lockstep::cli {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(200);
constexpr Duration kLongestPause = std::chrono::seconds(3);

int64_t VersionOf(const v1::WatchJobsResponse& message) {
  switch (message.event_case()) {
    case v1::WatchJobsResponse::kSynced:
      return message.synced();
    case v1::WatchJobsResponse::kBookmark:
      return message.bookmark();
    default:
      return 0;
  }
}

// Drops lines that were already delivered when a stream restarts. A rank's
// lines come in time order, so the newest time and the number of lines with it
// suffice. Only restarted streams are filtered: after a host's clock stepped
// back, new lines may be older than earlier ones.
class LineFilter {
 public:
  // Call it before a new stream.
  void Restart() {
    for (auto& [key, seen] : seen_) seen.skip = seen.count;
  }
  bool IsNew(const v1::LogLine& line) {
    const int64_t time =
        line.time().seconds() * 1'000'000'000 + line.time().nanos();
    earliest_ = std::min(earliest_, time);
    Seen& seen = seen_[{line.attempt(), line.rank()}];
    if (time < seen.time) return false;
    if (time == seen.time) {
      if (seen.skip > 0) {
        --seen.skip;
        return false;
      }
      ++seen.count;
      return true;
    }
    seen = {time, 1, 0};
    return true;
  }
  // The earliest time of all lines so far; INT64_MAX if none.
  int64_t earliest() const { return earliest_; }

 private:
  struct Seen {
    int64_t time = INT64_MIN;
    int64_t count = 0;
    int64_t skip = 0;
  };
  std::map<std::pair<int32_t, int32_t>, Seen> seen_;
  int64_t earliest_ = INT64_MAX;
};

void SetTime(int64_t unix_nanos, google::protobuf::Timestamp* time) {
  time->set_seconds(unix_nanos / 1'000'000'000);
  time->set_nanos(static_cast<int32_t>(unix_nanos % 1'000'000'000));
}

v1::StreamLogsRequest LogRequest(const LogOptions& options) {
  v1::StreamLogsRequest request;
  request.set_name(options.name);
  for (const int32_t rank : options.ranks) request.add_ranks(rank);
  request.set_attempt(options.attempt);
  request.set_follow(options.follow);
  request.set_tail(options.tail);
  if (options.since) {
    SetTime(ToUnixNanos(*options.since), request.mutable_since());
  }
  if (options.until) {
    SetTime(ToUnixNanos(*options.until), request.mutable_until());
  }
  for (const std::string& task : options.tasks) request.add_tasks(task);
  request.set_grep(options.grep);
  request.set_min_severity(options.min_severity);
  request.set_include_events(options.include_events);
  request.set_partial_lines(options.partial_lines);
  return request;
}

}  // namespace

Persistence::Persistence(Duration patience,
                         std::function<void(const Status&)> on_break,
                         StopToken* stop)
    : patience_(patience),
      on_break_(std::move(on_break)),
      stop_(stop),
      good_(MonotonicNow()),
      pause_(kFirstPause) {}

void Persistence::Good() {
  pause_ = kFirstPause;
  good_ = MonotonicNow();
  told_ = false;
}

bool Persistence::Retry(const Status& error) {
  // A reader that was too slow is disconnected and starts again.
  if (error.code() != StatusCode::kUnavailable &&
      error.code() != StatusCode::kResourceExhausted) {
    return false;
  }
  if (MonotonicNow() - good_ >= patience_) return false;
  if (on_break_ && !told_) on_break_(error);
  told_ = true;
  StopToken never;
  if ((stop_ ? stop_ : &never)->WaitFor(pause_)) return false;
  pause_ = std::min(pause_ * 2, kLongestPause);
  return true;
}

Status StoppedByCaller() { return Cancelled("stopped by the caller"); }

Status Client::WatchJobs(const WatchOptions& options,
                         const WatchCallback& callback, StopToken* stop) {
  Persistence persistence(options.patience, options.on_interrupted, stop);
  v1::WatchJobsRequest request;
  request.set_name(options.name);
  int64_t version = options.resource_version;
  // Until SYNCED, the versions of a snapshot's jobs are not ordered.
  bool synced = version > 0;
  while (true) {
    if (stop && stop->stopped()) return StoppedByCaller();
    request.set_resource_version(synced ? version : 0);
    grpc::ClientContext context;
    const CancelOnStop cancel(stop, &context);
    auto reader = impl_->jobs->WatchJobs(&context, request);
    v1::WatchJobsResponse message;
    while (reader->Read(&message)) {
      persistence.Good();
      if (message.has_job() && synced) {
        version = std::max(version, message.job().resource_version());
      }
      version = std::max(version, VersionOf(message));
      if (message.event_case() == v1::WatchJobsResponse::kSynced) synced = true;
      if (!callback(message)) {
        context.TryCancel();
        reader->Finish();
        return OkStatus();
      }
    }
    const grpc::Status end = reader->Finish();
    const Status status = FromServer(end);
    if (stop && stop->stopped()) return StoppedByCaller();
    if (status.ok()) return status;
    // What follows the version is no longer kept: it begins with a snapshot.
    if (status.code() == StatusCode::kOutOfRange && synced) {
      synced = false;
      version = 0;
      continue;
    }
    if (!persistence.Retry(status)) {
      return stop && stop->stopped() ? StoppedByCaller()
                                     : Convert(end, address());
    }
  }
}

StatusOr<v1::Job> Client::WaitJob(const std::string& name,
                                  std::optional<Duration> timeout,
                                  StopToken* stop) {
  const MonoTime start = MonotonicNow();
  StopToken own;
  StopToken* const token = stop ? stop : &own;
  std::optional<MonoTime> answered;
  while (true) {
    StatusOr<v1::Job> job = GetJob(name);
    if (job.ok()) {
      if (IsFinalState(job->state())) return job;
      answered = MonotonicNow();
    } else if (job.status().code() != StatusCode::kUnavailable || !answered ||
               MonotonicNow() - *answered >= WatchOptions().patience) {
      return job.status();
    }
    // Polls instead of watching, so the deadline needs no second thread.
    Duration pause = std::chrono::milliseconds(500);
    if (timeout) {
      const Duration left = *timeout - (MonotonicNow() - start);
      if (left <= Duration::zero()) {
        return DeadlineExceeded("job {} has not ended after {}", name,
                                FormatDuration(*timeout));
      }
      pause = std::min(pause, left);
    }
    if (token->WaitFor(pause)) return StoppedByCaller();
  }
}

Status Client::StreamLogs(const LogOptions& options,
                          const LogCallback& callback, StopToken* stop) {
  Persistence persistence(options.patience, options.on_interrupted, stop);
  v1::StreamLogsRequest request = LogRequest(options);
  LineFilter filter;
  bool restarted = false;
  std::optional<std::chrono::system_clock::time_point> deadline;
  if (options.timeout) {
    deadline = std::chrono::system_clock::now() +
               std::chrono::duration_cast<std::chrono::system_clock::duration>(
                   *options.timeout);
  }
  while (true) {
    if (stop && stop->stopped()) return StoppedByCaller();
    grpc::ClientContext context;
    if (deadline) context.set_deadline(*deadline);
    const CancelOnStop cancel(stop, &context);
    auto reader = impl_->jobs->StreamLogs(&context, request);
    v1::StreamLogsResponse message;
    while (reader->Read(&message)) {
      persistence.Good();
      for (const v1::LogLine& line : message.lines()) {
        const bool is_new = line.partial() || filter.IsNew(line);
        if (restarted && !is_new) continue;
        if (!callback(line)) {
          context.TryCancel();
          reader->Finish();
          return OkStatus();
        }
      }
    }
    const grpc::Status end = reader->Finish();
    const Status status = FromServer(end);
    if (stop && stop->stopped()) return StoppedByCaller();
    // A reader without `follow`, such as a pager, also resumes after a break.
    const bool goes_on =
        options.follow || (status.code() == StatusCode::kResourceExhausted &&
                           filter.earliest() != INT64_MAX);
    if (status.ok() || !goes_on || !persistence.Retry(status)) {
      return stop && stop->stopped() ? StoppedByCaller()
                                     : Convert(end, address());
    }
    restarted = true;
    filter.Restart();
    // The last N lines may have changed by now.
    if (request.tail() > 0 && filter.earliest() != INT64_MAX) {
      request.set_tail(0);
      SetTime(filter.earliest(), request.mutable_since());
    }
  }
}

}  // namespace lockstep::cli
