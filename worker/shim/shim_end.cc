// The end of a rank: Shim's phases "ending" and "exited".
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>

#include "worker/shim/process_tree.h"
#include "worker/shim/shim.h"

namespace lockstep::worker::shim {
namespace {

using task::ExitKind;

// How long the tree is killed.
constexpr int64_t kTreeTime = 5 * kNanosPerSecond;

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
  fence_.End();
  // First, so that keepers know why their commands end.
  sessions_.End();
  // The cgroup contains leftover processes, too; others are killed one by one.
  KillCgroup(spec_.cgroup);
  record_.end_unix_nanos = WallNanos();
  record_.end_mono_nanos = MonoNanos();
  OnStartStatus();
  OnInitReport();
  container_.OnClientEnded(&wait_status, output_.last_error_line(), &record_);
  if (record_.kind != ExitKind::kNotStarted) {
    record_.kind =
        WIFSIGNALED(wait_status) ? ExitKind::kSignaled : ExitKind::kExited;
    record_.wait_status = wait_status;
    record_.message = record_.fenced ? std::string(task::kFencedMessage)
                                     : task::DescribeExit(record_);
  }
  ending_.tree_deadline = record_.end_mono_nanos + kTreeTime;
  EnterPhase(Phase::kEnding);
}

void Shim::KillWhatIsDue(int64_t now) {
  if (rank_reaped_) return;
  container_.signal().SendIfDue(now);
  if (kill_at_ < 0 || now < kill_at_) return;
  // Its engine first: it knows processes that are none of ours.
  if (container_.any() && !container_.signal().MayKillTree(now)) return;
  KillCgroup(spec_.cgroup);
  SignalTree(SIGKILL, sessions_.Spared(now));
  kill_at_ = now + kKillAgain;  // For what was forked meanwhile.
}

void Shim::CheckFence() {
  if (rank_reaped_) return;
  const Fence::Due due = fence_.Check(BootNanos());
  if (due == Fence::Due::kNothing) return;
  record_.fenced = true;
  if (due == Fence::Due::kKill) {
    kill_at_ = MonoNanos();
  } else {
    Terminate();
  }
}

void Shim::GoOnEnding(int64_t now) {
  if (!ending_.container_ended) {
    // The engine's commands create new children.
    if (container_.any()) {
      ending_.tree_gone = false;
      OnChild();
    }
    if (!container_.GoOnEnding(now, ending_.tree_gone, &record_)) return;
    ending_.container_ended = true;
    if (container_.any()) ending_.tree_deadline = now + kTreeTime;
  }
  if (!ending_.tree_gone) {
    KillCgroup(spec_.cgroup);
    SignalTree(SIGKILL, sessions_.Spared(now));
    OnChild();
    if (!ending_.tree_gone && now >= ending_.tree_deadline) {
      record_.tree_left += static_cast<uint32_t>(SignalTree(0));
      ending_.tree_gone = true;
    }
    if (!ending_.tree_gone) return;
  }
  if (ending_.drain_deadline == 0)
    ending_.drain_deadline = now + spec_.drain_nanos;
  // Again, for what came between poll and the end of the tree.
  if (!output_.Drain() && now < ending_.drain_deadline) return;
  Finish();
}

void Shim::Finish() {
  output_.Close(&record_);
  recorder_.Begin(MonoNanos());
  TryToRecord(MonoNanos());
  EnterPhase(Phase::kExited);
}

void Shim::NotStarted(const std::string& message, int error_number) {
  Abandon(&launch_);
  record_.kind = ExitKind::kNotStarted;
  record_.start_errno = error_number;
  record_.message = message;
  record_.end_unix_nanos = WallNanos();
  record_.end_mono_nanos = MonoNanos();
  rank_reaped_ = ending_.tree_gone = true;
  Finish();
}

void Shim::TryToRecord(int64_t now) {
  if (!recorder_.IsDue(now)) return;
  // There may be space by now: the log is complete before the record is.
  output_.Complete(&record_);
  recorder_.Write(record_, now, server_.HasConnections());
}

bool Shim::Done() const {
  if (phase_ != Phase::kExited) return false;
  if (ending_.forgotten || recorder_.given_up()) return true;
  return recorder_.durable() && !server_.HasConnections();
}

}  // namespace lockstep::worker::shim
