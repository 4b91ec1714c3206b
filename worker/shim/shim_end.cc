// The end of a rank: Shim's phases "ending" and "exited".
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>

#include "worker/shim/process_tree.h"
#include "worker/shim/shim.h"

namespace lockstep::shim {
namespace {

using task::ExitKind;

// How long the tree is killed.
constexpr int64_t kTreeTime = 5 * kNanosPerSecond;
// How often a record that cannot be written is tried again, and for how long.
constexpr int64_t kRecordAgain = kNanosPerSecond;
constexpr int64_t kRecordTime = 3600 * kNanosPerSecond;

int64_t NanosOf(const timeval& t) {
  return t.tv_sec * kNanosPerSecond + t.tv_usec * 1000;
}

}  // namespace

void Shim::AddUsage(const rusage& usage) {
  record_.user_nanos += NanosOf(usage.ru_utime);
  record_.system_nanos += NanosOf(usage.ru_stime);
  record_.max_rss_bytes =
      std::max(record_.max_rss_bytes,
               static_cast<uint64_t>(std::max(usage.ru_maxrss, 0L)) * 1024);
}

void Shim::OnRankEnded(int wait_status) {
  rank_reaped_ = true;
  // What it left behind is in there, too; the rest is killed one by one.
  KillCgroup(spec_.cgroup);
  record_.end_unix_nanos = WallNanos();
  record_.end_mono_nanos = MonoNanos();
  OnStartStatus();
  OnInitReport();
  container_.OnClientEnded(&wait_status, err_.last_line(), &record_);
  if (record_.kind != ExitKind::kNotStarted) {
    record_.kind =
        WIFSIGNALED(wait_status) ? ExitKind::kSignaled : ExitKind::kExited;
    record_.wait_status = wait_status;
    record_.message = task::DescribeExit(record_);
  }
  tree_deadline_ = record_.end_mono_nanos + kTreeTime;
  EnterPhase(Phase::kEnding);
}

void Shim::KillWhatIsDue(int64_t now) {
  if (rank_reaped_) return;
  container_.SignalIfDue(now);
  if (kill_at_ < 0 || now < kill_at_) return;
  // Its engine first: it knows processes that are none of ours.
  if (!container_.MayKillTree(now)) return;
  KillCgroup(spec_.cgroup);
  SignalTree(SIGKILL);
  kill_at_ = now + kKillAgain;  // For what was forked meanwhile.
}

void Shim::GoOnEnding(int64_t now) {
  if (!container_ended_) {
    // The engine's commands make children anew.
    if (container_.any()) {
      tree_gone_ = false;
      OnChild();
    }
    if (!container_.GoOnEnding(now, tree_gone_, &record_)) return;
    container_ended_ = true;
    if (container_.any()) tree_deadline_ = now + kTreeTime;
  }
  if (!tree_gone_) {
    KillCgroup(spec_.cgroup);
    SignalTree(SIGKILL);
    OnChild();
    if (!tree_gone_ && now >= tree_deadline_) {
      record_.tree_left += static_cast<uint32_t>(SignalTree(0));
      tree_gone_ = true;
    }
    if (!tree_gone_) return;
  }
  if (drain_deadline_ == 0) drain_deadline_ = now + spec_.drain_nanos;
  // Again, for what came between poll and the end of the tree.
  if (out_.open()) out_.OnReadable();
  if (err_.open()) err_.OnReadable();
  if ((out_.open() || err_.open()) && now < drain_deadline_) return;
  Finish();
}

void Shim::Finish() {
  out_.Close();
  err_.Close();
  log_.Sync();
  record_.log_bytes = log_.end_offset();
  record_.log_lost_bytes = log_.lost_bytes();
  record_.log_error = log_.error();
  give_up_recording_at_ = MonoNanos() + kRecordTime;
  TryToRecord(MonoNanos());
  EnterPhase(Phase::kExited);
}

void Shim::NotStarted(const std::string& message, int error_number) {
  record_.kind = ExitKind::kNotStarted;
  record_.start_errno = error_number;
  record_.message = message;
  record_.end_unix_nanos = WallNanos();
  record_.end_mono_nanos = MonoNanos();
  rank_reaped_ = tree_gone_ = true;
  Finish();
}

void Shim::TryToRecord(int64_t now) {
  if (durable_ || now < next_record_try_) return;
  if (log_.say_due() >= 0) {
    // There may be space by now: the log is complete before the record is.
    log_.Sync();
    record_.log_bytes = log_.end_offset();
  }
  if (WriteRecord(spec_.exit_record_path, task::EncodeExitRecord(record_))) {
    durable_ = true;
    return;
  }
  const int error = errno;
  if (next_record_try_ == 0) {
    Complain(
        ErrorText("writing the exit record " + spec_.exit_record_path, error));
  }
  next_record_try_ = now + kRecordAgain;
  // A directory that is gone has nobody left who would read it.
  given_up_ = (error == ENOENT && !server_.HasConnections()) ||
              now >= give_up_recording_at_;
}

bool Shim::Done() const {
  if (phase_ != Phase::kExited) return false;
  if (forgotten_ || given_up_) return true;
  return durable_ && !server_.HasConnections();
}

}  // namespace lockstep::shim
