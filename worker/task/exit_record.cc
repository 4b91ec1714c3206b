#include "worker/task/exit_record.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "worker/task/bytes.h"

namespace lockstep::task {
namespace {
constexpr std::string_view kExitMagic = "LSEXITRC";
// Version 1 lacks the fields of containers.
constexpr uint32_t kPlainExitVersion = 1;
constexpr uint32_t kContainerExitVersion = 2;
constexpr size_t kMaxExitText = 8192;
}  // namespace

std::string SignalName(int signo) {
  static constexpr std::pair<int, const char*> kNames[] = {
      {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},       {SIGQUIT, "SIGQUIT"},
      {SIGILL, "SIGILL"},   {SIGTRAP, "SIGTRAP"},     {SIGABRT, "SIGABRT"},
      {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},       {SIGKILL, "SIGKILL"},
      {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"},     {SIGUSR2, "SIGUSR2"},
      {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"},     {SIGTERM, "SIGTERM"},
      {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"},     {SIGSYS, "SIGSYS"},
      {SIGCONT, "SIGCONT"}, {SIGSTOP, "SIGSTOP"},     {SIGTSTP, "SIGTSTP"},
      {SIGCHLD, "SIGCHLD"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"},
  };
  for (const auto& [number, name] : kNames) {
    if (number == signo) return name;
  }
  return "signal " + std::to_string(signo);
}

int ExitCode(const ExitRecord& record) {
  switch (record.kind) {
    case ExitKind::kExited:
      return WEXITSTATUS(record.wait_status);
    case ExitKind::kSignaled:
      return 128 + WTERMSIG(record.wait_status);
    case ExitKind::kNotStarted:
      break;
  }
  return record.start_errno == ENOENT ? 127 : 126;
}

std::string DescribeExit(const ExitRecord& record) {
  switch (record.kind) {
    case ExitKind::kExited:
      return "exited with code " +
             std::to_string(WEXITSTATUS(record.wait_status));
    case ExitKind::kSignaled: {
      const int signo = WTERMSIG(record.wait_status);
      return "killed by signal " + std::to_string(signo) + " (" +
             SignalName(signo) + ")" +
             (WCOREDUMP(record.wait_status) ? ", core dumped" : "");
    }
    case ExitKind::kNotStarted:
      break;
  }
  return "not started: " + record.message;
}

std::string EncodeExitRecord(const ExitRecord& record) {
  ByteWriter w;
  w.Str(record.job);
  w.U64(record.generation);
  w.U32(record.rank);
  w.Str(record.boot_id);
  w.I32(record.process.pid);
  w.U64(record.process.start_time);
  w.U8(static_cast<uint8_t>(record.kind));
  w.I32(record.wait_status);
  w.I32(record.start_errno);
  w.Str(std::string_view(record.message).substr(0, kMaxExitText));
  w.I64(record.user_nanos);
  w.I64(record.system_nanos);
  w.U64(record.max_rss_bytes);
  w.I64(record.start_unix_nanos);
  w.I64(record.end_unix_nanos);
  w.I64(record.start_mono_nanos);
  w.I64(record.end_mono_nanos);
  w.U32(record.tree_killed);
  w.U32(record.tree_left);
  w.U64(record.log_bytes);
  w.U64(record.log_lost_bytes);
  w.Str(std::string_view(record.log_error).substr(0, kMaxExitText));
  if (record.oom_kills == 0)
    return Seal(kExitMagic, kPlainExitVersion, w.Take());
  w.U32(record.oom_kills);
  return Seal(kExitMagic, kContainerExitVersion, w.Take());
}

bool DecodeExitRecord(std::string_view bytes, ExitRecord* record,
                      std::string* error) {
  std::string_view payload;
  const char* what = "the exit record";
  const bool contained =
      Unseal(what, kExitMagic, kContainerExitVersion, bytes, &payload, error);
  if (!contained &&
      !Unseal(what, kExitMagic, kPlainExitVersion, bytes, &payload, error)) {
    return false;
  }
  ByteReader r(payload);
  record->job = r.Str(256);
  record->generation = r.U64();
  record->rank = r.U32();
  record->boot_id = r.Str(64);
  record->process.pid = r.I32();
  record->process.start_time = r.U64();
  const uint8_t kind = r.U8();
  record->kind = static_cast<ExitKind>(kind);
  record->wait_status = r.I32();
  record->start_errno = r.I32();
  record->message = r.Str(kMaxExitText);
  record->user_nanos = r.I64();
  record->system_nanos = r.I64();
  record->max_rss_bytes = r.U64();
  record->start_unix_nanos = r.I64();
  record->end_unix_nanos = r.I64();
  record->start_mono_nanos = r.I64();
  record->end_mono_nanos = r.I64();
  record->tree_killed = r.U32();
  record->tree_left = r.U32();
  record->log_bytes = r.U64();
  record->log_lost_bytes = r.U64();
  record->log_error = r.Str(kMaxExitText);
  record->oom_kills = contained ? r.U32() : 0;
  if (!r.AtEnd() || kind < 1 || kind > 3 || record->process.pid < 0) {
    *error = "the exit record has a field out of range";
    return false;
  }
  return true;
}

}  // namespace lockstep::task
