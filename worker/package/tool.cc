#include "worker/package/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/random.h"
#include "common/os/marked_processes.h"
#include "common/os/procfs.h"

namespace lockstep::worker::package {
namespace {

constexpr size_t kKeptOutput = 64 << 10;
// A killed process ends within this time unless the kernel holds it.
constexpr Duration kEndTime = std::chrono::seconds(5);
// Of util-linux, which every Debian system has.
constexpr char kSetpriv[] = "/usr/bin/setpriv";
constexpr char kPrlimit[] = "/usr/bin/prlimit";
// Enters the group before it becomes anything else, so that nothing is started
// outside of it; $0 is the group.
constexpr char kEnter[] = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";

// As another user a program is started by setpriv(1): a process of many
// threads cannot change its own user for a child.
std::vector<std::string> AsUser(const ToolOptions& options) {
  if (!options.user || options.user->uid == geteuid()) return options.argv;
  std::string groups;
  for (const gid_t group : options.user->groups) {
    groups += (groups.empty() ? "" : ",") + std::to_string(group);
  }
  std::vector<std::string> argv = {
      kSetpriv,
      fmt::format("--reuid={}", options.user->uid),
      fmt::format("--regid={}", options.user->gid),
      groups.empty() ? "--clear-groups" : "--groups=" + groups,
      "--inh-caps=-all",
      "--no-new-privs",
      "--"};
  argv.insert(argv.end(), options.argv.begin(), options.argv.end());
  return argv;
}

// Those of the program's user, each thread counted, as the kernel does.
uint64_t ProcessesOf(uid_t uid) {
  uint64_t count = 0;
  for (const ProcessStat& process : ReadAllProcesses()) {
    struct stat info {};
    const std::string path = fmt::format("/proc/{}", process.pid);
    if (stat(path.c_str(), &info) == 0 && info.st_uid == uid) {
      count += static_cast<uint64_t>(std::max<int64_t>(1, process.threads));
    }
  }
  return count;
}

std::vector<std::string> Bounded(const ToolOptions& options) {
  const ToolLimits& limits = options.limits;
  std::vector<std::string> argv = AsUser(options);
  if (limits == ToolLimits()) return argv;
  std::vector<std::string> bounds = {kPrlimit, "--core=0"};
  const auto bound = [&](const char* name, uint64_t value) {
    if (value > 0) bounds.push_back(fmt::format("--{}={}", name, value));
  };
  bound("as", limits.address_space_bytes);
  bound("fsize", limits.file_bytes);
  bound("cpu",
        static_cast<uint64_t>(limits.cpu_time / std::chrono::seconds(1)));
  if (limits.processes > 0) {
    const uid_t uid = options.user ? options.user->uid : geteuid();
    bound("nproc", ProcessesOf(uid) + limits.processes);
  }
  bounds.push_back("--");
  argv.insert(argv.begin(), bounds.begin(), bounds.end());
  if (!limits.cgroup.empty()) {
    argv.insert(argv.begin(), {"/bin/sh", "-c", kEnter, limits.cgroup});
  }
  return argv;
}

void Keep(const char* bytes, size_t size, std::string* output) {
  output->append(bytes, size);
  if (output->size() > 2 * kKeptOutput) {
    output->erase(0, output->size() - kKeptOutput);
  }
}

// Reads what there is; false at the end.
bool Drain(int fd, std::string* output) {
  char buffer[4096];
  for (;;) {
    const ssize_t count = ::read(fd, buffer, sizeof(buffer));
    if (count > 0) {
      Keep(buffer, static_cast<size_t>(count), output);
    } else if (count == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
}

}  // namespace

std::string LastLine(std::string_view output) {
  while (!output.empty()) {
    const size_t newline = output.find_last_of("\r\n");
    std::string_view line =
        newline == output.npos ? output : output.substr(newline + 1);
    output =
        newline == output.npos ? std::string_view() : output.substr(0, newline);
    std::string text;
    for (const char c : line.substr(0, 400)) {
      text += c >= 0x20 && c < 0x7f ? c : '?';
    }
    const size_t begin = text.find_first_not_of(' ');
    if (begin != text.npos) return text.substr(begin);
  }
  return "it printed nothing";
}

StatusOr<ToolResult> RunTool(const ToolOptions& options, Cancellation* cancel) {
  const MonoTime deadline = MonotonicNow() + options.timeout;
  LOCKSTEP_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  const Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake || fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "preparing to run a program");
  }
  SpawnOptions spawn;
  spawn.argv = Bounded(options);
  spawn.program = spawn.argv[0];
  const std::string mark = RandomHex(16);
  spawn.env = options.env;
  spawn.env.push_back(fmt::format("{}={}", kToolVariable, mark));
  spawn.cwd = options.cwd;
  spawn.stdout_fd = spawn.stderr_fd = pipe.write.get();
  spawn.new_session = true;
  LOCKSTEP_ASSIGN_OR_RETURN(const Process process, Spawn(spawn));
  pipe.write.Reset();
  const Cancellation::Listener listener(cancel, [&wake] {
    const uint64_t one = 1;
    (void)!::write(wake.get(), &one, sizeof(one));
  });

  ToolResult result;
  bool late = false;
  while (!HasEnded(process) && !late && !cancel->cancelled()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - MonotonicNow());
    late = left.count() <= 0;
    pollfd fds[] = {{process.pidfd.get(), POLLIN, 0},
                    {wake.get(), POLLIN, 0},
                    {pipe.read ? pipe.read.get() : -1, POLLIN, 0}};
    poll(fds, 3, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60000)));
    if (pipe.read && !Drain(pipe.read.get(), &result.output)) {
      pipe.read.Reset();
    }
  }
  // Its group is its own, and the number cannot be another's: the leader,
  // dead or not, is not waited for yet.
  ::kill(-process.id.pid, SIGKILL);
  const MonoTime end = MonotonicNow() + kEndTime;
  // Processes that have left the group, like daemons.
  const bool gone = KillMarked(kToolVariable, mark, end);
  LOCKSTEP_ASSIGN_OR_RETURN(result.exit, WaitExit(process, end));
  if (pipe.read) (void)Drain(pipe.read.get(), &result.output);
  LOCKSTEP_RETURN_IF_ERROR(cancel->Check());
  if (late) {
    return DeadlineExceeded("it did not exit within {}: {}",
                            FormatDuration(options.timeout),
                            LastLine(result.output));
  }
  if (!gone) {
    return Unavailable("its child processes did not exit within {}",
                       FormatDuration(kEndTime));
  }
  return result;
}

}  // namespace lockstep::worker::package
