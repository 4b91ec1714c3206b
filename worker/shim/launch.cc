#include "worker/shim/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>
#include <vector>

#include "worker/shim/init_report.h"
#include "worker/shim/send_descriptors.h"

namespace lockstep::worker::shim {
namespace {

using task::ShimSpec;

enum class Stage : int {
  kSetUp,
  kCgroup,
  kGroups,
  kUser,
  kDirectory,
  kExec,
  kInterpreter,
};

// Report of a failed child on the status pipe.
struct ChildReport {
  Stage stage = Stage::kSetUp;
  int error = 0;
};

constexpr char kDefaultPath[] = "/usr/local/bin:/usr/bin:/bin";
// What an interpreter may print before its rank is known: the kernel's limit
// for users other than root.
constexpr int kMostPrinted = 1 << 20;
// Above every descriptor that the rank is given.
constexpr int kHigh = 256;

std::string PathOf(const ShimSpec& spec) {
  for (const std::string& variable : spec.env) {
    if (variable.starts_with("PATH=")) return variable.substr(5);
  }
  return kDefaultPath;
}

[[noreturn]] void Fail(int status, Stage stage, int error) {
  const ChildReport report{stage, error};
  // A report that cannot be given leaves the exit code.
  (void)!write(status, &report, sizeof(report));
  _exit(error == ENOENT ? 127 : 126);
}

// The shim sends it after the task record is on disk; a dead shim leaves end of
// file.
void WaitForGo(int go) {
  char byte = 0;
  ssize_t n;
  do {
    n = read(go, &byte, 1);
  } while (n < 0 && errno == EINTR);
  if (n != 1) _exit(126);
}

// When the host runs out of memory the kernel ends a rank before the daemons
// and shims, whose score a rank would inherit. A raise needs no right; where it
// fails all the same the rank runs as it is.
void PreferAsVictim() {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!write(fd, "500", 3);
  close(fd);
}

// Before the program and all it starts: nothing of it is ever outside.
void EnterCgroup(const ShimSpec& spec, int status) {
  if (spec.cgroup.empty()) return;
  const int fd =
      open((spec.cgroup + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC);
  // 0: the process that writes.
  if (fd < 0 || write(fd, "0", 1) != 1) Fail(status, Stage::kCgroup, errno);
  close(fd);
}

void BecomeUser(const ShimSpec& spec, int status) {
  if (!spec.set_ids) return;
  std::vector<gid_t> groups(spec.groups.begin(), spec.groups.end());
  if (setgroups(groups.size(), groups.data()) != 0 ||
      setresgid(spec.gid, spec.gid, spec.gid) != 0) {
    Fail(status, Stage::kGroups, errno);
  }
  if (setresuid(spec.uid, spec.uid, spec.uid) != 0) {
    Fail(status, Stage::kUser, errno);
  }
}

// Where kernel.yama.ptrace_scope is 1, only a process's own ancestors may read
// its stack, and what the daemon starts for that is none. This lets the daemon
// and its children; it holds for this process until it or the daemon ends, also
// over execve, but not for what the rank starts. The program may take it back
// by the same call with 0. Without Yama it has no effect.
void LetTrace(const ShimSpec& spec, pid_t daemon) {
  // A daemon that changes the user is root.
  if (!spec.set_ids) (void)prctl(PR_SET_PTRACER, daemon, 0, 0, 0);
}

// As execvp(3), but with the rank's PATH and without handing files that are
// no programs to a shell.
[[noreturn]] void Exec(const ShimSpec& spec, const std::string& path,
                       char* const* argv, char* const* env, int status) {
  const std::string& program = spec.argv[0];
  if (program.find('/') != std::string::npos) {
    execve(program.c_str(), argv, env);
    const int error = errno;
    const bool there = access(program.c_str(), F_OK) == 0;
    Fail(status, error == ENOENT && there ? Stage::kInterpreter : Stage::kExec,
         error);
  }
  int error = ENOENT;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    std::string file = path.substr(begin, end - begin);
    begin = end + 1;
    if (file.empty()) file = ".";
    file += "/" + program;
    execve(file.c_str(), argv, env);
    if (errno == ENOENT && access(file.c_str(), F_OK) == 0) {
      Fail(status, Stage::kInterpreter, ENOENT);
    }
    if (errno == EACCES) {
      error = EACCES;  // Unless a later directory has a better one.
    } else if (errno != ENOENT && errno != ENOTDIR) {
      Fail(status, Stage::kExec, errno);
    }
  }
  Fail(status, Stage::kExec, error);
}

struct Parents {
  pid_t daemon;
  pid_t shim;
};

struct ChildFds {
  int go;
  int status;
  int in;
  int out;
  int err;
  int secret;  // -1: none.
  int init;    // -1: none.
  bool terminal = false;
};

// The forked child, up to its program. The order matters: the parent-death
// signal is cleared by a change of user, so it is set after it; and the
// directory is entered as the user, who must be able to.
[[noreturn]] void RunChild(const ShimSpec& spec, Parents parents,
                           ChildFds fds) {
  DefaultSignals();
  WaitForGo(fds.go);
  const int status = fcntl(fds.status, F_DUPFD_CLOEXEC, kHigh);
  if (status < 0) Fail(fds.status, Stage::kSetUp, errno);
  const int secret =
      fds.secret < 0 ? -1 : fcntl(fds.secret, F_DUPFD_CLOEXEC, kHigh);
  const int init = fds.init < 0 ? -1 : fcntl(fds.init, F_DUPFD_CLOEXEC, kHigh);
  if (setsid() < 0 || dup2(fds.in, 0) < 0 || dup2(fds.out, 1) < 0 ||
      dup2(fds.err, 2) < 0 || (fds.terminal && ioctl(0, TIOCSCTTY, 0) != 0)) {
    Fail(status, Stage::kSetUp, errno);
  }
  // Whatever the shim itself was given by mistake.
  syscall(SYS_close_range, 3u, ~0u, 1u << 2 /* CLOSE_RANGE_CLOEXEC */);
  if (secret >= 0 && dup2(secret, static_cast<int>(spec.secret_fd)) < 0) {
    Fail(status, Stage::kSetUp, errno);
  }
  if (init >= 0 && dup2(init, kInitReportFd) < 0) {
    Fail(status, Stage::kSetUp, errno);
  }
  umask(spec.umask);
  PreferAsVictim();
  rlimit core{spec.core_limit, spec.core_limit};
  if (spec.core_limit == UINT64_MAX) {
    core = {RLIM_INFINITY, RLIM_INFINITY};
  }
  if (setrlimit(RLIMIT_CORE, &core) != 0) {
    // A limit above the inherited one is for root only: as much as there is.
    getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = core.rlim_max;
    setrlimit(RLIMIT_CORE, &core);
  }
  EnterCgroup(spec, status);
  BecomeUser(spec, status);
  LetTrace(spec, parents.daemon);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    Fail(status, Stage::kSetUp, errno);
  }
  // An engine without root needs newuidmap; the container has it forbidden.
  if (spec.container.name.empty() &&
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    Fail(status, Stage::kSetUp, errno);
  }
  if (getppid() != parents.shim) _exit(126);  // It died before the line above.
  if (chdir(spec.cwd.c_str()) != 0) Fail(status, Stage::kDirectory, errno);
  const std::vector<char*> argv = Pointers(spec.argv);
  const std::vector<char*> env = Pointers(spec.env);
  Exec(spec, PathOf(spec), argv.data(), env.data(), status);
}

std::string UserText(const ShimSpec& spec) {
  return "user " + std::to_string(spec.set_ids ? spec.uid : geteuid());
}

std::string ExecMessage(const ShimSpec& spec, int error) {
  const std::string& program = spec.argv[0];
  const bool searched = program.find('/') == std::string::npos;
  switch (error) {
    case ENOENT:
      if (searched) {
        return "program " + program + " is not in PATH (" + PathOf(spec) + ")";
      }
      return "program " + program + " does not exist" +
             (program[0] == '/' ? "" : " in " + spec.cwd);
    case EACCES:
      return program + " is not executable for " + UserText(spec);
    case ENOEXEC:
      return program +
             " is neither an executable for this machine nor a script with #!";
    case E2BIG:
      return "the arguments and environment of " + program +
             " are larger than the system allows";
    default:
      return ErrorText("running " + program, error);
  }
}

std::string ReportMessage(const ShimSpec& spec, const ChildReport& report) {
  switch (report.stage) {
    case Stage::kSetUp:
      break;
    case Stage::kCgroup:
      return ErrorText("entering the cgroup " + spec.cgroup, report.error);
    case Stage::kGroups:
      return ErrorText("changing to the groups of " + UserText(spec),
                       report.error);
    case Stage::kUser:
      return ErrorText("becoming " + UserText(spec), report.error);
    case Stage::kDirectory:
      return ErrorText(
          UserText(spec) + " entering the working directory " + spec.cwd,
          report.error);
    case Stage::kExec:
      return ExecMessage(spec, report.error);
    case Stage::kInterpreter:
      return "the interpreter that the first line of " + spec.argv[0] +
             " names, or its loader, does not exist";
  }
  return ErrorText("preparing the process", report.error);
}

// For a launch whose pipes are made. Returns false, as ForkRank does.
bool Fork(const ShimSpec& spec, Parents parents, const ChildFds& fds,
          Launch* launch, std::string* error, int* error_number) {
  fcntl(launch->status.get(), F_SETFL, O_NONBLOCK);
  const pid_t pid = fork();
  if (pid < 0) {
    *error_number = errno;
    *error = ErrorText("forking the rank", *error_number);
    return false;
  }
  if (pid == 0) {
    launch->go.Reset();  // Else it would never see end of file.
    RunChild(spec, parents, fds);
  }
  launch->pid = pid;
  return true;
}

// As ForkRank. `control` becomes the child's descriptor 3, unless it is closed.
bool ForkWith(const ShimSpec& spec, const Fd& control, Launch* launch,
              std::string* error, int* error_number) {
  Fd go_read, status_write, out_write, err_write, secret;
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null || !MakePipe(&go_read, &launch->go) ||
      !MakePipe(&launch->status, &status_write) ||
      !MakePipe(&launch->out, &out_write) ||
      !MakePipe(&launch->err, &err_write) ||
      (!spec.secret.empty() &&
       !MakeSealed("lockstep-secret", spec.secret, &secret))) {
    *error_number = errno;
    *error = ErrorText("creating the rank's pipes", *error_number);
    return false;
  }
  return Fork(spec, {getppid(), getpid()},
              {go_read.get(), status_write.get(), null.get(), out_write.get(),
               err_write.get(), secret ? secret.get() : -1,
               control ? control.get() : -1},
              launch, error, error_number);
}

}  // namespace

bool MakePipe(Fd* read_end, Fd* write_end) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return false;
  read_end->Reset(fds[0]);
  write_end->Reset(fds[1]);
  return true;
}

void ReportExecFailure(int status, int error) {
  Fail(status, Stage::kExec, error);
}

bool ForkCommand(const ShimSpec& spec, const CommandIo& io, Launch* launch,
                 std::string* error, int* error_number) {
  Fd go_read, status_write;
  if (!MakePipe(&go_read, &launch->go) ||
      !MakePipe(&launch->status, &status_write)) {
    *error_number = errno;
    *error = ErrorText("creating the command's pipes", *error_number);
    return false;
  }
  return Fork(spec, {io.daemon, getpid()},
              {go_read.get(), status_write.get(), io.in, io.out, io.err, -1,
               io.control, io.terminal},
              launch, error, error_number);
}

bool ForkRank(const ShimSpec& spec, Launch* launch, std::string* error,
              int* error_number) {
  Fd init_write;
  if (spec.container.reports && !MakePipe(&launch->init, &init_write)) {
    *error_number = errno;
    *error = ErrorText("creating the rank's pipes", *error_number);
    return false;
  }
  if (launch->init) fcntl(launch->init.get(), F_SETFL, O_NONBLOCK);
  return ForkWith(spec, init_write, launch, error, error_number);
}

bool ForkWarm(const ShimSpec& spec, Launch* launch, std::string* error,
              int* error_number) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    *error_number = errno;
    *error = ErrorText("creating the interpreter's socket", *error_number);
    return false;
  }
  launch->warm.Reset(ends[0]);
  const Fd child(ends[1]);
  if (!ForkWith(spec, child, launch, error, error_number)) return false;
  // Imports may print, and nothing reads it before there is a log.
  fcntl(launch->out.get(), F_SETPIPE_SZ, kMostPrinted);
  fcntl(launch->err.get(), F_SETPIPE_SZ, kMostPrinted);
  return Release(launch);
}

bool Release(Launch* launch) {
  const bool sent = WriteFd(launch->go.get(), "g");
  launch->go.Reset();
  return sent;
}

bool Release(const ShimSpec& spec, Launch* launch) {
  if (!launch->warm) return Release(launch);
  // worker/warm/warm_start.py reads it.
  std::string text = spec.cwd + '\0' + std::to_string(spec.argv.size()) + '\0';
  for (const std::string& argument : spec.argv) text += argument + '\0';
  for (const std::string& variable : spec.env) text += variable + '\0';
  Fd memfd;
  const bool sent =
      MakeSealed("lockstep-rank", text, &memfd) &&
      SendWithDescriptors(launch->warm.get(), "r", {memfd.get()}) == 1;
  const int failed = errno;
  launch->warm.Reset();
  errno = failed;
  return sent;
}

void Abandon(Launch* launch) {
  launch->go.Reset();
  launch->warm.Reset();
}

StartResult PollStart(const ShimSpec& spec, Launch* launch,
                      StartFailure* failure) {
  ChildReport report;
  ssize_t n;
  do {
    n = read(launch->status.get(), &report, sizeof(report));
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return StartResult::kPending;
  launch->status.Reset();
  if (n != static_cast<ssize_t>(sizeof(report))) return StartResult::kRunning;
  failure->error = report.error;
  failure->message = ReportMessage(spec, report);
  return StartResult::kFailed;
}

}  // namespace lockstep::worker::shim
