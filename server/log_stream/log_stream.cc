#include "server/log_stream/log_stream.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "server/log_stream/log_request.h"

namespace lockstep::server {
namespace {

// Well below gRPC's message limit of 4 MiB.
constexpr size_t kMaxMessageBytes = 1 << 20;
// The minimum tail of each log, whatever kMaxTailBytes allows.
constexpr size_t kMinTailBytes = 64 << 10;
// Poll interval near the end of a job's logs or of the selected time.
constexpr Duration kPoll = std::chrono::milliseconds(500);
// Interval of a safety check for readers with `follow`, in case a wake-up is
// missing.
constexpr Duration kLookAgain = std::chrono::seconds(10);
// A reader's time on the thread before other calls get a turn.
constexpr Duration kTurn = std::chrono::milliseconds(50);
// How long the last lines of an ended job are awaited: by a reader with
// `follow`, and by one without.
constexpr Duration kLastLines = std::chrono::seconds(30);
constexpr Duration kLastLinesUnasked = std::chrono::seconds(5);

// How long a line waits for older ones of other ranks, and the age at which it
// no longer waits.
constexpr Duration kHold = std::chrono::milliseconds(300);
constexpr int64_t kOldNanos = 2'000'000'000;
// Interval for checking the other logs while much is read from some.
constexpr Duration kLookAround = std::chrono::milliseconds(100);

}  // namespace

LogStream::LogStream(const ClusterQueries* queries, WatchHub* hub,
                     LogStore* logs, StreamMetrics* streams, JobReader reader,
                     v1::StreamLogsRequest request, StreamPeer* peer)
    : queries_(queries),
      hub_(hub),
      store_(logs),
      peer_(peer),
      reader_(std::move(reader)),
      request_(std::move(request)),
      logs_(logs, &request_),
      tailing_(request_.tail() > 0),
      open_(streams, StreamKind::kLogs, [this] { return +lines_waiting_; }) {}

// Collects lines into a message.
class LogStream::Sender {
 public:
  explicit Sender(v1::StreamLogsResponse* message) : message_(message) {}

  // Further lines wait for the next message.
  bool full() const { return bytes_ > kMaxMessageBytes; }
  int lines() const { return message_->lines_size(); }
  void Send(v1::LogLine line) {
    bytes_ += line.text().size() + 64;
    *message_->add_lines() = std::move(line);
  }

 private:
  v1::StreamLogsResponse* const message_;
  size_t bytes_ = 0;
};

bool LogStream::IsTurnOver() const {
  return peer_->IsCancelled() || MonotonicNow() >= turn_end_;
}

StatusOr<bool> LogStream::Fill(RankLog* log, Heads* heads) {
  // With a selective filter, much is read before a line matches.
  while (log->empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool read, logs_.Read(log));
    if (!read) return true;
    if (log->empty() && IsTurnOver()) return false;
  }
  heads->emplace(log->front().order, log->key());
  return true;
}

StatusOr<bool> LogStream::FillAll(Heads* heads) {
  for (auto& [key, log] : logs_.all()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool filled, Fill(&log, heads));
    if (!filled) return false;
  }
  return true;
}

StatusOr<bool> LogStream::ReadTails() {
  const auto most = static_cast<size_t>(request_.tail());
  const size_t most_bytes = std::max(
      kMinTailBytes, kMaxTailBytes / std::max<size_t>(1, logs_.all().size()));
  std::map<int32_t, std::vector<RankLog*>> ranks;
  for (auto& [key, log] : logs_.all()) {
    bool read = true;
    while (read) {
      LOCKSTEP_ASSIGN_OR_RETURN(read, logs_.Read(&log));
      log.KeepLast(most, most_bytes);
      if (read && IsTurnOver()) return false;
    }
    ranks[key.rank].push_back(&log);
  }
  // The attempts of a rank are in order; the newest lines stay.
  for (auto& [rank, attempts] : ranks) {
    size_t left = most;
    for (auto it = attempts.rbegin(); it != attempts.rend(); ++it) {
      while ((*it)->size() > left) (*it)->PopFront();
      left -= (*it)->size();
      (*it)->AddCutNote();
    }
  }
  return true;
}

StatusOr<LogStream::Merged> LogStream::SendMerged(bool more, Sender* sender) {
  const Merged unfinished{.unfinished = true, .held = std::nullopt};
  Heads heads;
  // Taken before the logs are read, so that later changes are checked again.
  Time looked = SystemClock().Now();
  LOCKSTEP_ASSIGN_OR_RETURN(bool filled, FillAll(&heads));
  if (!filled) return unfinished;
  const auto quiet = [](const RankLog& log) {
    return log.empty() && !log.is_over();
  };
  const auto count_quiet = [&] {
    return std::count_if(logs_.all().begin(), logs_.all().end(),
                         [&](const auto& log) { return quiet(log.second); });
  };
  auto quiet_count = count_quiet();
  while (!heads.empty()) {
    if (sender->full()) return unfinished;
    RankLog& log = logs_.all().at(heads.begin()->second);
    RankLog::Line& next = log.front();
    if (more && quiet_count > 0 &&
        next.order > ToUnixNanos(looked.wall) - kOldNanos &&
        looked.mono < next.arrived + kHold) {
      return Merged{.unfinished = false, .held = next.arrived + kHold};
    }
    sender->Send(std::move(next.line));
    heads.erase(heads.begin());
    log.PopFront();
    const bool refill = log.empty();
    LOCKSTEP_ASSIGN_OR_RETURN(filled, Fill(&log, &heads));
    // Expensive checks run once per read, not per line.
    if (!refill) continue;
    if (!filled || IsTurnOver()) return unfinished;
    if (quiet(log)) ++quiet_count;
    const Time now = SystemClock().Now();
    if (now.mono - looked.mono < kLookAround) continue;
    looked = now;
    heads.clear();
    LOCKSTEP_ASSIGN_OR_RETURN(filled, FillAll(&heads));
    if (!filled) return unfinished;
    quiet_count = count_quiet();
  }
  return Merged{};
}

void LogStream::SendPartialLines(Sender* sender) {
  for (auto& [key, log] : logs_.all()) {
    // Lines that do not fit go into the next message.
    while (!sender->full()) {
      auto line = log.NextPartialLine(logs_.filter());
      if (!line) break;
      sender->Send(*std::move(line));
    }
  }
}

void LogStream::ListenToJob() {
  const auto wake = [peer = peer_] { peer->Wake(); };
  if (!job_news_) {
    job_news_.emplace(hub_, request_.name(), queries_->version(), wake);
  }
  for (;;) {
    const auto news = job_news_->Take();
    if (!news.ok()) {
      // A wake-up during a long send must not be lost.
      job_news_.reset();
      job_news_.emplace(hub_, request_.name(), queries_->version(), wake);
      (void)job_news_->Take();
      return;
    }
    if (news->changes.empty() && news->progress.empty()) return;
  }
}

void LogStream::ListenToLogs(const std::string& job_uid) {
  if (log_news_ && listened_uid_ == job_uid) return;
  log_news_.reset();
  listened_uid_ = job_uid;
  log_news_.emplace(store_, job_uid, [peer = peer_] { peer->Wake(); });
}

StreamStep LogStream::AfterAll(const JobSnapshot& snapshot, bool follow,
                               const Merged& merged) const {
  const bool final = IsFinal(snapshot.job->state);
  if (merged.held) return StreamStep::Sleep(merged.held);
  const bool all_done = final && logs_.AreOver();
  if (all_done || (!follow && !final)) return StreamStep::End(OkStatus());
  // The last lines may still arrive when a job ends. A job that ended long ago
  // on a lost node has logs without end.
  if (final && snapshot.job->end_time &&
      snapshot.time - *snapshot.job->end_time >
          (follow ? kLastLines : kLastLinesUnasked)) {
    return StreamStep::End(OkStatus());
  }
  const bool ends_by_time = final || request_.has_until();
  return StreamStep::Sleep(MonotonicNow() +
                           (ends_by_time ? kPoll : kLookAgain));
}

StatusOr<StreamStep> LogStream::Pass(Sender* sender) {
  ListenToJob();
  LOCKSTEP_ASSIGN_OR_RETURN(const JobSnapshot snapshot,
                            queries_->GetJob(request_.name()));
  // Checked each time, because another job may have got the name.
  LOCKSTEP_RETURN_IF_ERROR(
      CheckSees(reader_, request_.name(), snapshot.job->owner, "logs"));
  LOCKSTEP_RETURN_IF_ERROR(CheckLogSelection(request_, *snapshot.job));
  ListenToLogs(snapshot.job->uid);
  logs_.Find(*snapshot.job);
  if (tailing_) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool found, ReadTails());
    if (!found) return StreamStep::Again();
    tailing_ = false;
  }
  const bool final = IsFinal(snapshot.job->state);
  const bool follow =
      request_.follow() && !IsPast(request_, SystemClock().Now().wall);
  const auto merged = SendMerged(follow || final, sender);
  if (!merged.ok()) {
    return Annotate(merged.status(), "job " + request_.name());
  }
  if (merged->unfinished) return StreamStep::Again();
  if (follow && request_.partial_lines()) SendPartialLines(sender);
  if (sender->full()) return StreamStep::Again();
  return AfterAll(snapshot, follow, *merged);
}

StreamStep LogStream::Next(v1::StreamLogsResponse* message) {
  if (end_) return StreamStep::End(*end_);
  turn_end_ = MonotonicNow() + kTurn;
  Sender sender(message);
  auto step = Pass(&sender);
  if (!step.ok()) {
    end_ = step.status();
  } else if (step->kind == StreamStep::Kind::kEnd) {
    end_ = step->status;
  }
  lines_waiting_ = logs_.LinesRead() + sender.lines();
  // Lines read before an error are sent first.
  if (sender.lines() > 0) return StreamStep::Send();
  return end_ ? StreamStep::End(*end_) : *std::move(step);
}

}  // namespace lockstep::server
