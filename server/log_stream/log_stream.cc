#include "server/log_stream/log_stream.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "server/log_stream/log_request.h"

namespace lockstep {
namespace {

// Well below the 4 MiB that a gRPC message may have.
constexpr size_t kMaxMessageBytes = 1 << 20;
// At least so much of each log fits a tail, beside kMaxTailBytes.
constexpr size_t kMinTailBytes = 64 << 10;
// While the end of a job's logs, or of the time that is asked for, is near.
constexpr Duration kPoll = std::chrono::milliseconds(500);
// A reader who follows is woken by what happens. It looks so often all the
// same: what is seldom and cheap makes up for a wake-up that nobody thought of.
constexpr Duration kLookAgain = std::chrono::seconds(10);
// A reader has a thread for so long, then others have their turn.
constexpr Duration kTurn = std::chrono::milliseconds(50);
// How long after the end of a job its last lines are waited for: by a reader
// that follows, and by one that only wants what is there.
constexpr Duration kLastLines = std::chrono::seconds(30);
constexpr Duration kLastLinesUnasked = std::chrono::seconds(5);

// How long a line waits for older ones of other ranks, which are on their way
// from other hosts; and how old it is when it need not any more.
constexpr Duration kHold = std::chrono::milliseconds(300);
constexpr int64_t kOldNanos = 2'000'000'000;
// While much is read of some logs, the others are looked at so often.
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

// Gathers lines into a message.
class LogStream::Sender {
 public:
  explicit Sender(v1::StreamLogsResponse* message) : message_(message) {}

  // What is more waits for the next message.
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
  // Where few lines are wanted, much is read before one is found.
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
  // Of each rank over its attempts, which are in order: the newest stay.
  for (auto& [rank, attempts] : ranks) {
    size_t left = most;
    for (auto it = attempts.rbegin(); it != attempts.rend(); ++it) {
      while ((*it)->size() > left) (*it)->PopFront();
      left -= (*it)->size();
      (*it)->TellCut();
    }
  }
  return true;
}

StatusOr<LogStream::Merged> LogStream::SendMerged(bool more, Sender* sender) {
  const Merged unfinished{.unfinished = true, .held = std::nullopt};
  Heads heads;
  // Before the logs are read: what came since is looked for once more.
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
    // What costs more than a line is asked once a read.
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
    // What does not fit comes with the next message.
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
      // This was with its reader for long, and what it missed is not asked for.
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
  // What a job wrote last is on its way when it ends. One that ended long ago
  // on a node that is gone has logs without end.
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
  // Each time: another job may have come to have the name.
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
  // What was read before an error is the reader's all the same.
  if (sender.lines() > 0) return StreamStep::Send();
  return end_ ? StreamStep::End(*end_) : *std::move(step);
}

}  // namespace lockstep
