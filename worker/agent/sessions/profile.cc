#include "worker/agent/sessions/profile.h"

#include <algorithm>
#include <utility>

#include "common/base/file.h"
#include "common/base/random.h"
#include "common/os/procfs.h"
#include "worker/container/command.h"
#include "worker/evidence/py_spy.h"
#include "worker/evidence/rank_processes.h"

namespace lockstep::worker::agent {
namespace {

// For py-spy to begin and to write its file.
constexpr Duration kMoreTime = std::chrono::seconds(30);
constexpr size_t kMaxProfile = 64 << 20;

struct Python {
  int64_t pid = 0;
  std::string py_spy;
};

StatusOr<Python> FindPython(const ProfileTarget& target) {
  RankEvidence rank;
  evidence::ConnectionTables connections;
  evidence::AddProcesses(target.shim, ReadAllProcesses(), &connections, &rank);
  bool found = false;
  for (const ProcessEvidence& process : rank.processes) {
    const evidence::ProcessPlace place =
        evidence::PlaceOf(static_cast<pid_t>(process.pid));
    if (!evidence::IsPythonName(place.program) &&
        !evidence::IsPythonName(process.command)) {
      continue;
    }
    found = true;
    if (auto py_spy = evidence::PySpyOf(target.tools, place); !py_spy.empty()) {
      return Python{process.pid, std::move(py_spy)};
    }
  }
  if (!found) {
    return FailedPrecondition("the rank has no Python process on node {}",
                              target.node);
  }
  return FailedPrecondition(
      "node {} has no py-spy, which reads Python processes: install it there "
      "(pip install py-spy) and name it by --py-spy of the worker daemon",
      target.node);
}

// Returns the bytes of the file that py-spy has written.
StatusOr<std::string> Record(const ProfileTarget& target,
                             const ProfileSession& profile,
                             const SessionCall* call) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Python python, FindPython(target));
  const std::string file =
      JoinPath(target.directory, "profile-" + RandomHex(8));
  container::Command command;
  command.argv = PySpyArguments(python.py_spy, python.pid, profile, file);
  command.env = {"PATH=" + target.tools.path, "LANG=C", "RUST_BACKTRACE=0"};
  std::string first;
  // It is called once a second without a line, too.
  command.on_line = [&](const std::string& line) {
    if (first.empty() && line.starts_with("Error: ")) first = line.substr(7);
    return !call->ended();
  };
  const auto result = container::RunCommand(
      command,
      MonotonicNow() + std::chrono::seconds(profile.seconds) + kMoreTime);
  auto bytes = RealFileSystem()->Read(file, kMaxProfile);
  RealFileSystem()->Remove(file).IgnoreError();
  LOCKSTEP_RETURN_IF_ERROR(result.status());
  if (!result->ok() || !bytes.ok()) {
    std::string why = first.empty() ? result->last_error : first;
    if (why.find("ermission") != why.npos) why += "; " + evidence::WhyRefused();
    return Unavailable("py-spy failed on node {}: {}", target.node,
                       why.empty() ? "it gave no reason" : why);
  }
  return *std::move(bytes);
}

}  // namespace

std::vector<std::string> PySpyArguments(const std::string& py_spy, int64_t pid,
                                        const ProfileSession& profile,
                                        const std::string& output) {
  const char* format = "flamegraph";
  if (profile.format == ProfileFormat::kSpeedscope) format = "speedscope";
  if (profile.format == ProfileFormat::kRaw) format = "raw";
  // --nonblocking: the rank is never stopped, so a py-spy that is killed leaves
  // it as it was.
  std::vector<std::string> argv = {
      py_spy,          "record",
      "--nonblocking", "--subprocesses",
      "--pid",         std::to_string(pid),
      "--duration",    std::to_string(profile.seconds),
      "--rate",        std::to_string(profile.rate),
      "--format",      format,
      "--output",      output};
  if (profile.idle) argv.emplace_back("--idle");
  if (profile.native) {
    // It reads native stacks of a stopped process only.
    argv.emplace_back("--native");
    std::erase(argv, "--nonblocking");
  }
  return argv;
}

void RunProfile(const ProfileTarget& target, const ProfileSession& profile,
                const v1::SessionStarted& started, SessionCall* call,
                Bell* bell) {
  v1::SessionOutput message;
  *message.mutable_started() = started;
  if (!Send(std::move(message), call, bell)) return;
  const auto bytes = Record(target, profile, call);
  if (!bytes.ok()) return SendLast(NotStarted(bytes.status()), call, bell);
  for (size_t at = 0; at < bytes->size(); at += kMaxSessionData) {
    v1::SessionOutput piece;
    piece.set_data(bytes->substr(at, kMaxSessionData));
    if (!Send(std::move(piece), call, bell)) return;
  }
  v1::SessionOutput last;
  last.mutable_end();
  SendLast(std::move(last), call, bell);
}

}  // namespace lockstep::worker::agent
