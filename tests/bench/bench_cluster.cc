#include "tests/bench/bench_cluster.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/os/procfs.h"

namespace lockstep {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

std::string SelfDir() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error)
      .parent_path()
      .string();
}

std::string SourceDir() { return LOCKSTEP_SOURCE_DIR; }

pid_t PidIn(const std::string& path) {
  const auto text = RealFileSystem()->Read(path);
  return text.ok() ? static_cast<pid_t>(atoi(text->c_str())) : 0;
}

std::string LastLine(const std::string& path) {
  const std::string text = RealFileSystem()->Read(path).value_or("");
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "it said nothing";
  const size_t begin = text.rfind('\n', end);
  return text.substr(begin + 1, end - begin);  // npos + 1 is 0.
}

}  // namespace

BenchDir::BenchDir() {
  char name[] = "/var/tmp/lockstep-bench-XXXXXX";
  if (mkdtemp(name) == nullptr) {
    fprintf(stderr, "no directory under /var/tmp: %s\n", strerror(errno));
    exit(1);
  }
  path_ = name;
}

BenchDir::~BenchDir() {
  const Status removed = RealFileSystem()->RemoveAll(path_);
  if (!removed.ok()) fprintf(stderr, "%s\n", Message(removed).c_str());
}

StatusOr<std::unique_ptr<BenchCluster>> BenchCluster::Start(
    LocalClusterOptions options) {
  std::unique_ptr<BenchCluster> bench(new BenchCluster);
  options.dir = bench->dir() + "/cluster";
  options.bin_dir = BinDir();
  LOCKSTEP_ASSIGN_OR_RETURN(bench->cluster_, LocalCluster::Start(options));
  LOCKSTEP_ASSIGN_OR_RETURN(bench->client_,
                            Client::Connect(bench->cluster_->client_options()));
  return bench;
}

BenchCluster::~BenchCluster() {
  client_.reset();
  if (!cluster_) return;
  const auto down = cluster_->Down({});
  if (!down.ok()) fprintf(stderr, "%s\n", Message(down.status()).c_str());
}

std::vector<std::string> BenchCluster::environment() const {
  const ClientOptions options = cluster_->client_options();
  std::vector<std::string> env = CurrentEnvironment();
  env.push_back("LOCKSTEP_ADDRESS=" + options.address);
  env.push_back("LOCKSTEP_CA=" + options.ca);
  env.push_back("LOCKSTEP_CERT=" + options.certificate);
  env.push_back("LOCKSTEP_KEY=" + options.key);
  return env;
}

v1::JobSpec BenchCluster::Program(const std::string& name, int count,
                                  double cpus, std::vector<std::string> argv) {
  v1::JobSpec spec;
  spec.set_name(name);
  spec.set_kind(v1::JOB_KIND_PROGRAM);
  for (const std::string& word : argv) spec.add_argv(word);
  const auto add = [&](v1::TaskType type, int tasks) {
    if (tasks == 0) return;
    v1::RoleSpec* role = spec.add_roles();
    role->set_type(type);
    role->set_count(tasks);
    role->mutable_resources()->set_cpus(cpus);
  };
  add(v1::TASK_TYPE_CHIEF, 1);
  add(v1::TASK_TYPE_WORKER, count - 1);
  spec.set_restart_budget(0);
  return spec;
}

StatusOr<std::unique_ptr<SlurmPeer>> SlurmPeer::Start() {
  std::unique_ptr<SlurmPeer> peer(new SlurmPeer);
  LOCKSTEP_RETURN_IF_ERROR(RunProgram(
      {SourceDir() + "/tests/bench/peers/slurm", "start", peer->dir_.path()},
      CurrentEnvironment()));
  peer->environment_ = CurrentEnvironment();
  peer->environment_.push_back("SLURM_CONF=" + peer->dir_.path() +
                               "/slurm.conf");
  LOCKSTEP_ASSIGN_OR_RETURN(
      peer->version_, OutputOf({"srun", "--version"}, peer->environment_));
  while (!peer->version_.empty() && peer->version_.back() == '\n') {
    peer->version_.pop_back();
  }
  return peer;
}

SlurmPeer::~SlurmPeer() {
  const Status stopped = RunProgram(
      {SourceDir() + "/tests/bench/peers/slurm", "stop", dir_.path()},
      CurrentEnvironment());
  if (!stopped.ok()) fprintf(stderr, "%s\n", Message(stopped).c_str());
}

pid_t SlurmPeer::controller() const {
  return PidIn(dir_.path() + "/slurmctld.pid");
}
pid_t SlurmPeer::node() const { return PidIn(dir_.path() + "/slurmd.pid"); }

std::string SlurmPeer::job_state_path() const {
  return dir_.path() + "/state/job_state";
}

uint16_t SlurmPeer::control_port() const {
  const std::string conf =
      RealFileSystem()->Read(dir_.path() + "/slurm.conf").value_or("");
  constexpr std::string_view kName = "\nSlurmctldPort=";
  const size_t at = conf.find(kName);
  if (at == std::string::npos) return 0;
  return static_cast<uint16_t>(atoi(conf.c_str() + at + kName.size()));
}

Board::Board(const std::string& path, int slots) : path_(path), slots_(slots) {
  const size_t size = static_cast<size_t>(slots) * sizeof(int64_t);
  const Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(size)) != 0) {
    fprintf(stderr, "%s: %s\n", path.c_str(), strerror(errno));
    exit(1);
  }
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) {
    fprintf(stderr, "%s: %s\n", path.c_str(), strerror(errno));
    exit(1);
  }
  times_ = static_cast<int64_t*>(memory);
}

Board::~Board() {
  munmap(times_, static_cast<size_t>(slots_) * sizeof(int64_t));
}

int64_t Board::Get(int slot) const {
  return __atomic_load_n(&times_[slot], __ATOMIC_ACQUIRE);
}

StatusOr<int64_t> Board::WaitAll(int first, int count) const {
  const int64_t until = MonotonicNanos() + int64_t{30'000'000'000};
  int64_t latest = 0;
  for (int i = first; i < first + count; ++i) {
    while (Get(i) == 0) {
      if (MonotonicNanos() > until) {
        return DeadlineExceeded("slot {} is still empty after 30 s", i);
      }
      std::this_thread::sleep_for(microseconds(50));
    }
    latest = std::max(latest, Get(i));
  }
  return latest;
}

bool Listens(uint16_t loopback_port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(loopback_port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const Fd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(probe.get(), reinterpret_cast<sockaddr*>(&address),
                 sizeof(address)) == 0;
}

std::string BenchProgram(const std::string& name) {
  return SelfDir() + "/" + name;
}
std::string BinDir() { return SelfDir() + "/../bin"; }

namespace {

Status RunInto(const std::vector<std::string>& argv,
               const std::vector<std::string>& environment, Duration patience,
               std::string* output) {
  const BenchDir dir;
  SpawnOptions spawn;
  spawn.program = argv.at(0);
  spawn.argv = argv;
  spawn.env = environment;
  spawn.stdout_path = dir.path() + "/out";
  spawn.stderr_path = dir.path() + "/err";
  LOCKSTEP_ASSIGN_OR_RETURN(const Process process, Spawn(spawn));
  const auto exit = WaitExit(process, MonotonicNow() + patience);
  if (!exit.ok()) {
    (void)StopProcess(process, seconds(1));
    return exit.status();
  }
  if (!exit->ok()) {
    return FailedPrecondition("{} {}: {}", argv[0], exit->Describe(),
                              LastLine(spawn.stderr_path));
  }
  if (output != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(*output,
                              RealFileSystem()->Read(spawn.stdout_path));
  }
  return OkStatus();
}

}  // namespace

Status RunProgram(const std::vector<std::string>& argv,
                  const std::vector<std::string>& environment,
                  Duration patience) {
  return RunInto(argv, environment, patience, nullptr);
}

StatusOr<std::string> OutputOf(const std::vector<std::string>& argv,
                               const std::vector<std::string>& environment,
                               Duration patience) {
  std::string output;
  LOCKSTEP_RETURN_IF_ERROR(RunInto(argv, environment, patience, &output));
  return output;
}

Status StreamOutput(const std::vector<std::string>& argv,
                    const std::vector<std::string>& environment,
                    Duration patience,
                    const std::function<void(std::string_view)>& sink) {
  const BenchDir dir;
  LOCKSTEP_ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  SpawnOptions spawn;
  spawn.program = argv.at(0);
  spawn.argv = argv;
  spawn.env = environment;
  spawn.stdout_fd = pipe.write.get();
  spawn.stderr_path = dir.path() + "/err";
  LOCKSTEP_ASSIGN_OR_RETURN(const Process process, Spawn(spawn));
  pipe.write.Reset();
  const MonoTime deadline = MonotonicNow() + patience;
  std::string buffer(1 << 20, '\0');
  pollfd readable = {.fd = pipe.read.get(), .events = POLLIN, .revents = 0};
  ssize_t got = 1;
  while (got > 0 && MonotonicNow() < deadline) {
    if (poll(&readable, 1, 100) <= 0) continue;
    got = read(pipe.read.get(), buffer.data(), buffer.size());
    if (got > 0) sink({buffer.data(), static_cast<size_t>(got)});
  }
  const auto exit = WaitExit(process, deadline);
  if (!exit.ok()) {
    (void)StopProcess(process, seconds(1));
    return exit.status();
  }
  if (exit->ok()) return OkStatus();
  return FailedPrecondition("{} {}: {}", argv[0], exit->Describe(),
                            LastLine(spawn.stderr_path));
}

StatusOr<ProcessUse> UseOf(pid_t pid) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ProcessStat stat, ReadProcessStat(pid));
  return ProcessUse{stat.user_seconds + stat.system_seconds,
                    static_cast<int64_t>(stat.resident_bytes)};
}

BenchFlags ParseBenchFlags(int argc, char** argv) {
  BenchFlags flags;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      flags.json = argv[++i];
    } else {
      fprintf(stderr, "usage: %s [--json FILE]\n", argv[0]);
      exit(2);
    }
  }
  return flags;
}

int BenchMain(const Status& status) {
  if (status.ok()) return 0;
  fprintf(stderr, "%s\n", Message(status).c_str());
  return 1;
}

}  // namespace lockstep
