#include "tests/bench/probe_run.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/base/fd.h"
#include "tests/bench/peers/probe.h"

namespace lockstep {
namespace {

using Strings = std::vector<std::string>;

std::string ProgramDir() {
  char path[PATH_MAX];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  const std::string self(path, size > 0 ? size : 0);
  return self.substr(0, self.rfind('/'));
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string Tail(const std::string& text, size_t most = 600) {
  return text.size() <= most ? text : "..." + text.substr(text.size() - most);
}

// A directory that goes with the object.
struct TempDir {
  TempDir() {
    char name[] = "/tmp/lockstep-bench-XXXXXX";
    if (mkdtemp(name) != nullptr) path = name;
  }
  ~TempDir() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
  std::string path;
};

// Programs in process groups of their own, which are killed with the object.
class Programs {
 public:
  ~Programs() {
    for (const pid_t pid : pids_) {
      kill(-pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

  Status Start(const Strings& argv, const std::string& output,
               const std::string& errors) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    const int flags = O_WRONLY | O_CREAT | O_APPEND;
    posix_spawn_file_actions_addopen(&files, 1, output.c_str(), flags, 0644);
    posix_spawn_file_actions_addopen(&files, 2, errors.c_str(), flags, 0644);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    std::vector<char*> words;
    for (const std::string& word : argv) {
      words.push_back(const_cast<char*>(word.c_str()));
    }
    words.push_back(nullptr);
    pid_t pid = 0;
    const int error = posix_spawnp(&pid, words[0], &files, &attributes,
                                   words.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) return ErrnoStatus(error, "starting " + argv[0]);
    pids_.push_back(pid);
    return OkStatus();
  }

  // Until all have ended well.
  Status Join(MonoTime deadline) {
    while (!pids_.empty()) {
      for (size_t i = 0; i < pids_.size(); ++i) {
        int status = 0;
        if (waitpid(pids_[i], &status, WNOHANG) != pids_[i]) continue;
        pids_.erase(pids_.begin() + static_cast<ptrdiff_t>(i));
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
        return WIFEXITED(status)
                   ? Internal("it ended with {}", WEXITSTATUS(status))
                   : Internal("signal {} ended it", WTERMSIG(status));
      }
      if (MonotonicNow() >= deadline) return DeadlineExceeded("it did not end");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return OkStatus();
  }

 private:
  std::vector<pid_t> pids_;
};

// The board's file, mapped here, too.
class Board {
 public:
  static StatusOr<std::unique_ptr<Board>> Make(const std::string& path,
                                               const ProbeJob& job) {
    auto board = std::make_unique<Board>();
    std::vector<probe_case> cases;
    for (const ProbeCase& c : job.cases) {
      cases.push_back(
          {c.bytes / sizeof(float), c.count.samples, c.count.batch, c.variant});
    }
    board->bytes_ = probe_board_bytes(
        cases.data(), static_cast<int>(cases.size()), job.ranks);
    const Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file ||
        ftruncate(file.get(), static_cast<off_t>(board->bytes_)) != 0) {
      return ErrnoStatus(errno, "making " + path);
    }
    board->memory_ = mmap(nullptr, board->bytes_, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_POPULATE, file.get(), 0);
    if (board->memory_ == MAP_FAILED) return ErrnoStatus(errno, path);
    return board;
  }
  ~Board() {
    if (memory_ != MAP_FAILED) munmap(memory_, bytes_);
  }

  ProbeResult Read(const ProbeJob& job) const {
    const auto* head = static_cast<const probe_board*>(memory_);
    const auto* at = reinterpret_cast<const probe_sample*>(
        static_cast<const char*>(memory_) + 4096);
    ProbeResult result;
    for (size_t i = 0; i < job.cases.size(); ++i) {
      std::vector<double> seconds;
      for (int s = 0; s < job.cases[i].count.samples; ++s, at += job.ranks) {
        int64_t start = at[0].start;
        int64_t end = at[0].end;
        for (int rank = 1; rank < job.ranks; ++rank) {
          start = std::min(start, at[rank].start);
          end = std::max(end, at[rank].end);
        }
        seconds.push_back(static_cast<double>(end - start) * 1e-9 /
                          job.cases[i].count.batch);
      }
      result.seconds.push_back(std::move(seconds));
      result.right.push_back((head->wrong >> i & 1) == 0);
      if (result.finished == i &&
          head->finished[i] == static_cast<uint32_t>(job.ranks)) {
        ++result.finished;
      }
    }
    return result;
  }
  bool AllDone(int ranks) const {
    return static_cast<const probe_board*>(memory_)->done ==
           static_cast<uint64_t>(ranks);
  }

 private:
  void* memory_ = MAP_FAILED;
  size_t bytes_ = 0;
};

// Rank `rank`'s command; for a starter that of all ranks.
Strings ArgvOf(const ProbeJob& job, int rank, const std::string& dir) {
  const Contender& c = *job.contender;
  Strings argv;
  if (job.hosts != nullptr) argv = job.hosts->Prefix(rank);
  for (const std::string& word : c.starter) {
    argv.push_back(word == "%n" ? std::to_string(job.ranks) : word);
  }
  argv.push_back(ProgramDir() + "/" + c.program);
  argv.insert(argv.end(), c.arguments.begin(), c.arguments.end());
  if (c.starter.empty()) {
    for (const std::string& word :
         {std::string("--rank"), std::to_string(rank), std::string("--ranks"),
          std::to_string(job.ranks), std::string("--store"), dir + "/store"}) {
      argv.push_back(word);
    }
  }
  if (job.hosts != nullptr) {
    argv.push_back("--address");
    argv.push_back(job.hosts->Address(rank));
  }
  argv.push_back("--board");
  argv.push_back(dir + "/board");
  argv.push_back("--watchdog");
  argv.push_back(
      std::to_string(static_cast<int>(std::max(1.0, ToSeconds(job.watchdog)))));
  for (const ProbeCase& one : job.cases) {
    argv.push_back("--case");
    argv.push_back(fmt::format("{}:{}:{}:{}", one.bytes, one.count.samples,
                               one.count.batch, one.variant));
  }
  return argv;
}

Status RunScript(const Strings& argv) {
  const TempDir dir;
  Programs programs;
  const std::string log = dir.path + "/log";
  LOCKSTEP_RETURN_IF_ERROR(programs.Start(argv, log, log));
  const Status status =
      programs.Join(MonotonicNow() + std::chrono::seconds(20));
  if (status.ok()) return status;
  return Annotate(
      Error(status.code(), "{}: {}", Message(status), Tail(ReadAll(log))),
      argv[0]);
}

}  // namespace

StatusOr<std::unique_ptr<BenchHosts>> BenchHosts::Make(
    int count, const std::string& rate) {
  if (geteuid() != 0) {
    return PermissionDenied("hosts as network namespaces need root");
  }
  const std::string prefix = fmt::format("lsb{}", getpid());
  std::unique_ptr<BenchHosts> hosts(new BenchHosts(prefix, count));
  LOCKSTEP_RETURN_IF_ERROR(RunScript({LOCKSTEP_BENCH_PEERS "/namespaces", "up",
                                      prefix, std::to_string(count), rate}));
  return hosts;
}

BenchHosts::~BenchHosts() {
  RunScript({LOCKSTEP_BENCH_PEERS "/namespaces", "down", prefix_,
             std::to_string(count_)})
      .IgnoreError();
}

std::vector<std::string> BenchHosts::Prefix(int host) const {
  return {"ip", "netns", "exec", fmt::format("{}-{}", prefix_, host)};
}

std::string BenchHosts::Address(int host) const {
  return fmt::format("10.99.0.{}", host + 1);
}

bool HasProgram(const Contender& contender) {
  return access((ProgramDir() + "/" + contender.program).c_str(), X_OK) == 0;
}

StatusOr<ProbeResult> RunProbe(const ProbeJob& job) {
  const TempDir dir;
  if (dir.path.empty()) return ErrnoStatus(errno, "a directory in /tmp");
  std::filesystem::create_directory(dir.path + "/store");
  LOCKSTEP_ASSIGN_OR_RETURN(const auto board,
                            Board::Make(dir.path + "/board", job));
  const std::string output = dir.path + "/out";
  const std::string errors = dir.path + "/err";
  // Refuses root else.
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  Status status;
  {
    Programs programs;
    const bool one = !job.contender->starter.empty();
    for (int rank = 0; rank < (one ? 1 : job.ranks) && status.ok(); ++rank) {
      status = programs.Start(ArgvOf(job, rank, dir.path), output, errors);
    }
    if (status.ok()) {
      status = programs.Join(MonotonicNow() + job.watchdog +
                             std::chrono::seconds(5));
    }
  }
  if (status.ok() && !board->AllDone(job.ranks)) {
    status = Internal("it ended before its time");
  }
  ProbeResult result = board->Read(job);
  if (!status.ok()) {
    result.failure = Error(status.code(), "{}: {} {}", job.contender->label,
                           Message(status), Tail(ReadAll(errors)));
  }
  result.output = ReadAll(output);
  return result;
}

std::string CommandOf(const ProbeJob& job) {
  return fmt::format("{}", fmt::join(ArgvOf(job, 0, "DIR"), " "));
}

}  // namespace lockstep
