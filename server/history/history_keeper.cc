#include "server/history/history_keeper.h"

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/logging.h"

namespace lockstep::server {
namespace {

// Between tries to write the file of an ended job, and how long its points are
// kept for them.
constexpr Duration kRetry = std::chrono::seconds(10);
constexpr Duration kMaxRetry = std::chrono::minutes(10);

bool IsRunning(JobState state) {
  return state == JobState::kRunning || state == JobState::kFinishing;
}

WallTime BeginOf(const Job& job) {
  return job.start_time ? *job.start_time : job.create_time;
}

}  // namespace

HistoryKeeper::HistoryKeeper(HistoryOptions options, FileSystem* files,
                             std::string dir)
    : options_(std::move(options)),
      files_(files, std::move(dir), options_.disk),
      history_(options_.memory) {
  if (options_.work_interval > Duration{}) {
    thread_ = std::make_unique<RepeatingThread>(options_.work_interval,
                                                [this] { Save(); });
  }
}

void HistoryKeeper::Look(const CoordinatorView& view) {
  MutexLock lock(&mu_);
  now_ = view.time.wall;
  history_.Look(view);
  std::set<std::string> unfinished;
  for (const CoordinatorView::JobEntry& entry : view.jobs) {
    const Job& job = *entry.snapshot.job;
    if (IsFinal(job.state)) continue;
    unfinished.insert(job.uid);
    if (!IsRunning(job.state)) continue;
    // The first file is due after one interval.
    known_.try_emplace(job.uid,
                       Known{job.spec.name, job.owner, BeginOf(job), now_});
  }
  for (auto& [uid, job] : known_) {
    if (job.ended || unfinished.contains(uid)) continue;
    job.ended = now_;
    // Due at once.
    job.saved = {};
  }
}

HistoryPlot HistoryKeeper::Build(const std::string& job, const std::string& uid,
                                 WallTime from, WallTime to, size_t points) {
  PlotBuilder builder(from, to, points);
  std::optional<WallTime> oldest;
  {
    MutexLock lock(&mu_);
    oldest = history_.AddTo(uid, &builder);
  }
  bool any = oldest.has_value();
  if (!oldest || *oldest > from) {
    if (const auto stored = files_.Read(job, uid)) {
      builder.Add(stored->plot, oldest.value_or(WallTime::max()));
      any = true;
    }
  }
  return any ? builder.Take() : HistoryPlot();
}

HistoryPlot HistoryKeeper::Read(const Query& query) {
  WallTime from = query.from;
  if (query.span) from = std::max(from, query.to - *query.span);
  constexpr Duration kLeast = std::chrono::seconds(1);
  const WallTime to = std::max(query.to, from + kLeast);
  // No more points than there are seconds.
  const auto seconds =
      static_cast<size_t>(std::max<int64_t>(1, (to - from) / kLeast));
  return Build(query.job, query.uid, from, to,
               std::clamp<size_t>(query.points, 1, seconds));
}

bool HistoryKeeper::SaveJob(const std::string& uid, const Known& job,
                            WallTime now) {
  const StoredSpan span = SpanOf(job.from, now);
  const StoredHistory stored{
      job.name, uid, job.owner,
      Build(job.name, uid, span.from, span.to, span.points)};
  if (stored.plot.empty()) return true;
  Status status = options_.space ? options_.space() : OkStatus();
  if (status.ok()) status = files_.Save(stored, now);
  MutexLock lock(&mu_);
  if (failed_ == status.ok()) {
    failed_ = !status.ok();
    if (failed_) {
      LOG_WARN("histories of jobs are not stored: {}", Message(status));
    } else {
      LOG_INFO("histories of jobs are stored again");
    }
  }
  return status.ok();
}

void HistoryKeeper::Remove(const std::string& uid) {
  MutexLock lock(&mu_);
  history_.Forget(uid);
  known_.erase(uid);
  removed_.insert(uid);
}

void HistoryKeeper::Save() { SaveDue(options_.save_interval, MonoTime::max()); }

void HistoryKeeper::SaveAll(Duration within) {
  thread_.reset();
  SaveDue(Duration{}, MonotonicNow() + within);
}

void HistoryKeeper::SaveDue(Duration interval, MonoTime by) {
  KnownJobs due;
  std::set<std::string> removed;
  WallTime now;
  {
    MutexLock lock(&mu_);
    now = now_;
    removed.swap(removed_);
    for (const auto& [uid, job] : known_) {
      if (now - job.saved >= (job.ended ? kRetry : interval)) {
        due.emplace(uid, job);
      }
    }
  }
  for (const std::string& uid : removed) files_.Remove(uid);
  for (const auto& [uid, job] : due) {
    if (MonotonicNow() >= by) return;
    const bool saved = SaveJob(uid, job, now);
    MutexLock lock(&mu_);
    const auto known = known_.find(uid);
    if (known == known_.end()) continue;  // It was deleted meanwhile.
    known->second.saved = now;
    if (job.ended && (saved || now - *job.ended >= kMaxRetry)) {
      history_.Forget(uid);
      known_.erase(known);
    }
  }
  if (!due.empty()) files_.Sweep(now);
}

size_t HistoryKeeper::bytes() const {
  MutexLock lock(&mu_);
  return history_.bytes();
}

}  // namespace lockstep::server
