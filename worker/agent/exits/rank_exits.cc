#include "worker/agent/exits/rank_exits.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/base/fault_point.h"
#include "common/base/fd.h"
#include "common/base/logging.h"
#include "common/os/procfs.h"
#include "worker/agent/exits/exit_message.h"
#include "worker/agent/readings/rank_readings.h"
#include "worker/shim/log_reader.h"

namespace lockstep::worker::agent {
namespace {

constexpr size_t kMaxErrorFile = 256 << 10;
// A file that the rank's user may make whatever he likes of: a link, a pipe.
std::string ReadRanksFile(const std::string& path) {
  const Fd fd(
      open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!fd || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_nlink != 1 || info.st_size > static_cast<off_t>(kMaxErrorFile)) {
    return "";
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t n = pread(fd.get(), text.data(), text.size(), 0);
  text.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return text;
}

// A rank that was killed from outside wrote nothing about it: its log ends with
// something else.
bool NeedsExitMessage(const ExitStatus& exit) {
  if (exit.how == ExitStatus::How::kCode) return true;
  if (exit.how != ExitStatus::How::kSignal) return false;
  switch (exit.value) {
    case SIGABRT:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGSEGV:
    case SIGTRAP:
      return true;
    default:
      return false;
  }
}

std::optional<uint64_t> ReadOomKills() {
  const auto text = ReadProcFile("/proc/vmstat");
  return text.ok() ? ParseOomKills(*text) : std::nullopt;
}

// The node was alone, which is nothing that the program did. One that ends with
// 0 when it is told to has not done its work for that.
void JudgeFenced(ExitStatus* exit) {
  exit->victim = true;
  exit->reason = Reason::kNodeLost;
  exit->message = task::kFencedMessage;
  if (!exit->ok()) return;
  exit->how = ExitStatus::How::kSignal;
  exit->value = SIGTERM;
}

}  // namespace

void RankExits::OnExited(const RankRef& ref, const task::ExitRecord& record) {
  parts_.sampler->TakeExit(ref, record);
  parts_.table->Get(ref).ended = true;
  parts_.logs->SetEnded(ref);
  ExitStatus exit = ToExitStatus(record);
  if (record.fenced) JudgeFenced(&exit);
  Explain(ref, record, &exit);
  AddExitMessage(ref, &exit);
  NotePlainBind(ref, &exit);
  (void)FaultPoint("worker.before_exit");
  LOG_INFO("{}: {}", Describe(ref), task::DescribeExit(record));
  if (record.tree_left > 0) {
    LOG_WARN("{}: {} of its processes could not be killed", Describe(ref),
             record.tree_left);
    processes_left_();
  }
  parts_.core->Tell([&](AgentCore* core, Actions* out) {
    core->OnRankExited(ref.gang, ref.rank, exit,
                       parts_.sampler->ProgressOf(ref),
                       parts_.sampler->UsageOf(ref), out);
  });
}

void RankExits::OnNotStarted(const RankRef& ref, int error,
                             const std::string& message) {
  task::ExitRecord record;
  record.kind = task::ExitKind::kNotStarted;
  record.start_errno = error;
  record.message = message;
  record.end_unix_nanos = ToUnixNanos(parts_.loop->Now().wall);
  OnExited(ref, record);
}

void RankExits::NoteAvailable(double part) {
  oom_.AddAvailable(parts_.loop->Now().mono, part);
}

void RankExits::ReadHostOomKills() {
  if (const auto kills = ReadOomKills()) {
    oom_.Add(parts_.loop->Now().mono, *kills);
  }
}

OomEvidence RankExits::EvidenceOf(const RankRef& ref,
                                  const task::ExitRecord& record,
                                  bool told_to_end) {
  OomEvidence evidence;
  evidence.told_to_end = told_to_end;
  const std::string& id = parts_.table->Get(ref).task_id;
  if (const auto reading = parts_.cgroups->Read(id)) {
    evidence.cgroup_kills = reading->oom_kills;
    parts_.sampler->TakeCgroup(ref, *reading);
  }
  parts_.cgroups->Drop(id);
  if (record.oom_kills > 0) evidence.cgroup_kills = record.oom_kills;
  // Without the shim's own record it is not known when the rank ended.
  if (record.process.pid > 0) {
    const MonoTime end{Duration(record.end_mono_nanos)};
    if (const auto kills = ReadOomKills()) {
      evidence.host_kills = oom_.RiseAround(end, *kills);
    }
    evidence.least_available = oom_.LeastAvailable(end);
  }
  return evidence;
}

void RankExits::Explain(const RankRef& ref, const task::ExitRecord& record,
                        ExitStatus* exit) {
  const LocalGang* gang = parts_.core->Find(ref.gang);
  const bool told_to_end =
      gang == nullptr || gang->assignment.goal >= Goal::kStop || record.fenced;
  JudgeOutOfMemory(EvidenceOf(ref, record, told_to_end), exit);
  if (exit->ok() || told_to_end || parts_.ports->Of(ref).empty() ||
      exit->out_of_memory) {
    return;
  }
  if (record.kind == task::ExitKind::kNotStarted &&
      record.start_errno != EADDRINUSE) {
    return;  // The rank itself reports the reason.
  }
  const auto taken = parts_.ports->CheckEnded(ref);
  if (!taken) return;
  exit->reason = Reason::kPortTaken;
  exit->message = fmt::format(
      "port {}, leased to this task, is taken by {}, which does not belong to "
      "the task",
      taken->port, taken->holder);
}

void RankExits::AddExitMessage(const RankRef& ref, ExitStatus* exit) {
  if (exit->ok() || !exit->message.empty()) return;
  const LocalGang* gang = parts_.core->Find(ref.gang);
  if (gang == nullptr) return;
  // The message of a stopped rank does not count, unless the rank had ended
  // before the stop request.
  const bool told = gang->assignment.goal >= Goal::kStop;
  const bool before = gang->stopped_at && exit->end_time < *gang->stopped_at;
  if (told && !before) return;
  const RankPaths& paths = parts_.table->Get(ref).paths;
  ExitMessage words = MessageOfErrorFile(ReadRanksFile(paths.error_file));
  if (words.location.empty() && NeedsExitMessage(*exit)) {
    // A shell reports a signal as a code above 128.
    const bool crashed =
        exit->how == ExitStatus::How::kSignal || exit->value > 128;
    ExitMessage logged =
        MessageOfLog(shim::LogTail(paths.log, kExitMessageLog), crashed);
    // The error file has no place in one of its shapes, and the class without
    // its package.
    if (logged.message.ends_with(words.message)) {
      words.location = std::move(logged.location);
    }
    if (words.message.empty()) words.message = std::move(logged.message);
  }
  exit->message = std::move(words.message);
  exit->location = std::move(words.location);
}

void RankExits::NotePlainBind(const RankRef& ref, ExitStatus* exit) {
  const LocalGang* gang = parts_.core->Find(ref.gang);
  if (exit->ok() || exit->reason != Reason::kNone || exit->victim ||
      gang == nullptr || gang->assignment.goal >= Goal::kStop ||
      parts_.ports->Of(ref).empty() || !SaysAddressInUse(exit->message)) {
    return;
  }
  // The ports were already released, so another socket holds this one.
  if (!parts_.ports->AddPlainBinder(gang->assignment.job_uid)) return;
  exit->reason = Reason::kPortTaken;
  exit->message +=
      "; the worker holds leased ports open, so a program must set "
      "SO_REUSEADDR to bind its port; the worker no longer holds the ports of "
      "this job";
}

}  // namespace lockstep::worker::agent
