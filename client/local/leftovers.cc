#include "client/local/leftovers.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <thread>

#include "common/base/file.h"
#include "common/os/process.h"
#include "common/os/procfs.h"

namespace lockstep::cli {
namespace {

constexpr Duration kLeftoverPoll = std::chrono::milliseconds(20);
// Time for a shim to record its rank's end before it is killed.
constexpr Duration kShimGrace = std::chrono::seconds(2);
constexpr std::string_view kShimCommand = "lockstep-shim";
// The kernel's limit on a command name.
constexpr size_t kCommandBytes = 15;

std::string ReadLink(const std::string& path) {
  char target[4096];
  const ssize_t size = readlink(path.c_str(), target, sizeof(target));
  return size > 0 ? std::string(target, size) : "";
}

bool IsUnder(std::string_view path, const std::vector<std::string>& dirs) {
  return std::any_of(dirs.begin(), dirs.end(), [&](const std::string& dir) {
    return path.substr(0, dir.size()) == dir &&
           (path.size() == dir.size() || path[dir.size()] == '/');
  });
}

bool WorksIn(pid_t pid, const std::vector<std::string>& dirs) {
  const std::string proc = fmt::format("/proc/{}", pid);
  if (IsUnder(ReadLink(proc + "/cwd"), dirs)) return true;
  const auto fds = RealFileSystem()->List(proc + "/fd");
  if (fds.ok()) {
    for (const std::string& fd : *fds) {
      if (IsUnder(ReadLink(proc + "/fd/" + fd), dirs)) return true;
    }
  }
  const auto arguments = ReadProcFile(proc + "/cmdline");
  if (!arguments.ok()) return false;
  std::string_view rest = *arguments;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\0'), rest.size());
    if (IsUnder(rest.substr(0, end), dirs)) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

// The pid may have been reused between reading /proc and opening the pidfd. The
// start time shows it.
void Kill(pid_t pid, const std::vector<ProcessStat>& all) {
  for (const ProcessStat& stat : all) {
    if (stat.pid != pid) continue;
    const auto process = OpenVerified({pid, stat.start_time});
    if (process.ok()) SendSignal(*process, SIGKILL).IgnoreError();
  }
}

}  // namespace

StatusOr<int> KillLeftovers(const std::vector<std::string>& dirs,
                            Duration timeout) {
  const SystemClock clock;
  const MonoTime start = clock.Now().mono;
  std::set<pid_t> seen;
  while (true) {
    const std::vector<ProcessStat> all = ReadAllProcesses();
    bool left = false;
    const Duration elapsed = clock.Now().mono - start;
    for (const ProcessStat& stat : all) {
      if (stat.command != kShimCommand || stat.state == 'Z' ||
          !WorksIn(stat.pid, dirs)) {
        continue;
      }
      left = true;
      seen.insert(stat.pid);
      for (const pid_t pid : TreeOf(stat.pid, all)) {
        if (pid != stat.pid) Kill(pid, all);
      }
      if (elapsed >= kShimGrace) Kill(stat.pid, all);
    }
    if (!left) return static_cast<int>(seen.size());
    if (elapsed >= timeout) {
      return DeadlineExceeded("tasks of the cluster are still running after {}",
                              FormatDuration(timeout));
    }
    std::this_thread::sleep_for(kLeftoverPoll);
  }
}

std::vector<Process> FindDaemons(const std::string& program,
                                 const std::string& dir) {
  std::vector<Process> found;
  std::error_code none;
  const std::string real = std::filesystem::canonical(dir, none);
  if (none) return found;
  for (const ProcessStat& stat : ReadAllProcesses()) {
    if (stat.command != program.substr(0, kCommandBytes) || stat.state == 'Z' ||
        ReadLink(fmt::format("/proc/{}/cwd", stat.pid)) != real) {
      continue;
    }
    auto process = OpenVerified({stat.pid, stat.start_time});
    if (process.ok()) found.push_back(*std::move(process));
  }
  return found;
}

}  // namespace lockstep::cli
