#include "worker/task/exit_record.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "worker/task/bytes.h"
#include "worker/task/record_fields.h"

namespace lockstep::worker::task {
namespace {
constexpr std::string_view kExitMagic = "LSEXITRC";
// Version 1 lacks the fields of containers.
constexpr uint32_t kPlainExitVersion = 1;
constexpr uint32_t kContainerExitVersion = 2;
// Also says that its shim ended it.
constexpr uint32_t kFencedExitVersion = 3;
constexpr size_t kMaxExitText = 8192;

template <typename F, typename Record>
void ExitFieldsOf(F& f, Record& record, uint32_t version) {
  f(record.job, 256);
  f(record.generation);
  f(record.rank);
  f(record.boot_id, 64);
  f.Pid(record.process.pid);
  f(record.process.start_time);
  f.Enum(record.kind, ExitKind::kNotStarted);
  f(record.wait_status);
  f(record.start_errno);
  f.Text(record.message, kMaxExitText);
  f(record.user_nanos);
  f(record.system_nanos);
  f(record.max_rss_bytes);
  f(record.start_unix_nanos);
  f(record.end_unix_nanos);
  f(record.start_mono_nanos);
  f(record.end_mono_nanos);
  f(record.tree_killed);
  f(record.tree_left);
  f(record.log_bytes);
  f(record.log_lost_bytes);
  f.Text(record.log_error, kMaxExitText);
  if (version >= kContainerExitVersion) f(record.oom_kills);
  if (version >= kFencedExitVersion) f(record.fenced);
}

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
  // The oldest that has all of it, for a daemon that is older.
  const uint32_t version = record.fenced           ? kFencedExitVersion
                           : record.oom_kills != 0 ? kContainerExitVersion
                                                   : kPlainExitVersion;
  RecordWriter writer;
  ExitFieldsOf(writer, record, version);
  return Seal(kExitMagic, version, writer.Take());
}

bool DecodeExitRecord(std::string_view bytes, ExitRecord* record,
                      std::string* error) {
  std::string_view payload;
  const char* what = "the exit record";
  uint32_t version = kFencedExitVersion;
  while (!Unseal(what, kExitMagic, version, bytes, &payload, error)) {
    if (version == kPlainExitVersion) return false;
    --version;
  }
  *record = ExitRecord();
  RecordReader reader(payload);
  ExitFieldsOf(reader, *record, version);
  if (reader.Complete()) return true;
  *error = "the exit record has a field out of range";
  return false;
}

}  // namespace lockstep::worker::task
