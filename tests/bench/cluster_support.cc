#include "tests/bench/cluster_support.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <thread>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/os/procfs.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

constexpr int kSlots = 1 << 16;
constexpr char kMachine[] = "bench";
constexpr int64_t kMachineMebibytes = 16;
constexpr double kWorkerCpus = 2;
constexpr char kSlurmScript[] = LOCKSTEP_SOURCE_DIR "/tests/bench/peers/slurm";

std::string ReadText(const std::string& path) {
  return RealFileSystem()->Read(path).value_or("");
}

std::string WithoutNewlines(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string LastLine(const std::string& path) {
  const std::string text = WithoutNewlines(ReadText(path));
  return text.empty() ? "it said nothing" : text.substr(text.rfind('\n') + 1);
}

[[noreturn]] void Die(const std::string& what) {
  fmt::print(stderr, "{}: {}\n", what, strerror(errno));
  exit(1);
}

}  // namespace

double Percentile(std::vector<double> values, int percent) {
  std::sort(values.begin(), values.end());
  return values.at((percent * values.size() + 99) / 100 - 1);
}

Status AwaitTrue(const std::string& what,
                 const std::function<StatusOr<bool>()>& done, Duration pause) {
  const MonoTime limit = MonotonicNow() + seconds(60);
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool ready, done());
    if (ready) return OkStatus();
    if (MonotonicNow() > limit) return DeadlineExceeded("{} after 60 s", what);
    std::this_thread::sleep_for(pause);
  }
}

BenchDir::BenchDir() {
  const char* const parent = getenv("LOCKSTEP_BENCH_DIR");
  path_ = parent == nullptr ? "/var/tmp/lockstep-bench-XXXXXX"
                            : std::string(parent) + "/XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) Die(path_);
}

BenchDir::~BenchDir() {
  const Status removed = RealFileSystem()->RemoveAll(path_);
  if (!removed.ok()) fmt::print(stderr, "{}\n", Message(removed));
}

StatusOr<std::unique_ptr<BenchCluster>> BenchCluster::Start(
    int workers, const std::string& site) {
  std::unique_ptr<BenchCluster> bench(new BenchCluster);
  cli::LocalClusterOptions options;
  options.workers = workers;
  options.cpus = kWorkerCpus;
  options.gpus = 0;
  options.dir = bench->dir_.path() + "/cluster";
  options.bin_dir = BinDir();
  if (!site.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(options.dir));
    LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
        cli::LocalLayout(options.dir).MachinesFile(), site));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(bench->cluster_, cli::LocalCluster::Start(options));
  LOCKSTEP_ASSIGN_OR_RETURN(
      bench->client_, cli::Client::Connect(bench->cluster_->client_options()));
  return bench;
}

BenchCluster::~BenchCluster() {
  client_.reset();
  if (!cluster_) return;
  const auto down = cluster_->Down({});
  if (!down.ok()) fmt::print(stderr, "{}\n", Message(down.status()));
}

Words BenchCluster::environment() const {
  const cli::ClientOptions options = cluster_->client_options();
  return CurrentEnvironment() + Words{"LOCKSTEP_ADDRESS=" + options.address,
                                      "LOCKSTEP_CA=" + options.ca,
                                      "LOCKSTEP_CERT=" + options.certificate,
                                      "LOCKSTEP_KEY=" + options.key};
}

StatusOr<v1::Job> BenchCluster::AwaitSuccess(const std::string& name) {
  LOCKSTEP_ASSIGN_OR_RETURN(v1::Job job,
                            client_->WaitJob(name, seconds(60), nullptr));
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return job;
  return Internal("{}: {}", name, job.cause().message());
}

Status BenchCluster::CancelAndWait(const std::string& name) {
  LOCKSTEP_RETURN_IF_ERROR(client_->CancelJob(name).status());
  return client_->WaitJob(name, seconds(60), nullptr).status();
}

v1::JobSpec BenchCluster::Program(const std::string& name, int count,
                                  double cpus, const Words& argv) {
  v1::JobSpec spec;
  spec.set_name(name);
  spec.set_kind(v1::JOB_KIND_PROGRAM);
  for (const std::string& word : argv) spec.add_argv(word);
  for (const auto& [type, tasks] :
       {std::pair(v1::TASK_TYPE_CHIEF, 1),
        std::pair(v1::TASK_TYPE_WORKER, count - 1)}) {
    if (tasks == 0) continue;
    v1::RoleSpec* role = spec.add_roles();
    role->set_type(type);
    role->set_count(tasks);
    role->mutable_resources()->set_cpus(cpus);
  }
  spec.set_restart_budget(0);
  return spec;
}

StatusOr<v1::Package> BenchCluster::Upload(const cli::PackedPackage& packed) {
  v1::Package package;
  package.set_digest(packed.package.digest);
  package.set_bytes(packed.package.bytes);
  package.set_format(v1::PACKAGE_FORMAT_TREE);
  package.set_file_name(packed.package.file_name);
  LOCKSTEP_RETURN_IF_ERROR(
      client_
          ->UploadPackage(
              package,
              [&](uint64_t offset, char* buffer, size_t size) {
                return ReadPackage(packed, offset, buffer, size);
              },
              {}, nullptr)
          .status());
  return package;
}

StatusOr<v1::Package> BenchCluster::UploadTrainer(const std::string& folder) {
  LOCKSTEP_ASSIGN_OR_RETURN(const cli::PackedPackage packed,
                            PackTrainer(folder));
  return Upload(packed);
}

StatusOr<pki::CertificateAuthority> BenchCluster::Authority() const {
  return pki::CertificateAuthority::Load(
      RealFileSystem(), cluster_->layout().CaDir(), SystemClock().Now().wall);
}

StatusOr<std::shared_ptr<grpc::Channel>> BenchCluster::Connect(
    const pki::CertificateAuthority& ca, const pki::Identity& identity,
    const std::string& target) {
  pki::LeafRequest request;
  request.identity = identity;
  LOCKSTEP_ASSIGN_OR_RETURN(const pki::KeyAndCertificate leaf,
                            ca.Issue(request, SystemClock().Now().wall));
  ChannelOptions options;
  options.target = target.empty() ? cluster_->grpc_address() : target;
  options.credentials.emplace();
  options.credentials->ca = ca.certificate();
  options.credentials->certificate = leaf.certificate;
  options.credentials->key = leaf.key;
  options.credentials->identity = identity;
  return MakeChannel(options);
}

StatusOr<std::string> WriteTrainer(const std::string& dir) {
  const std::string folder = JoinPath(dir, "trainer");
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->MakeDirs(folder));
  for (const auto& [name, text] : {std::pair("__init__.py", ""),
                                   std::pair("task.py", "print('here')\n")}) {
    LOCKSTEP_RETURN_IF_ERROR(
        RealFileSystem()->WriteAtomic(JoinPath(folder, name), text));
  }
  return folder;
}

StatusOr<cli::PackedPackage> PackTrainer(const std::string& folder) {
  cli::PackOptions options;
  options.prefix = "trainer";
  return PackFolder(folder, options);
}

std::string SiteTable(double cpus,
                      const std::map<std::string, std::string>& runtimes) {
  std::string text =
      fmt::format("machines:\n  {}: {{cpus: {:g}, memory: {}}}\nruntimes:\n",
                  kMachine, cpus, kMachineMebibytes);
  for (const auto& [name, python] : runtimes) {
    text += fmt::format("  {}: {{python: {}}}\n", name, python);
  }
  return text;
}

Status SubmitTraining(cli::Client* client, const std::string& name,
                      const v1::Package& package, const std::string& runtime,
                      int workers, const Words& args) {
  v1::TrainingJob job;
  job.set_job_id(name);
  v1::TrainingInput* const input = job.mutable_training_input();
  input->set_scale_tier("CUSTOM");
  input->set_master_type(kMachine);
  if (workers > 0) {
    input->set_worker_type(kMachine);
    input->set_worker_count(workers);
  }
  input->add_package_uris(package.file_name());
  input->set_python_module("trainer.task");
  for (const std::string& word : args) input->add_args(word);
  job.mutable_lockstep()->set_runtime(runtime);
  job.mutable_lockstep()->mutable_restart()->set_budget(0);
  return client->SubmitTraining(job, {package}).status();
}

StatusOr<std::unique_ptr<SlurmPeer>> SlurmPeer::Start() {
  std::unique_ptr<SlurmPeer> peer(new SlurmPeer);
  const Status started = RunProgram({kSlurmScript, "start", peer->dir_.path()},
                                    CurrentEnvironment());
  if (!started.ok()) return NotFound("no Slurm: {}", Message(started));
  peer->environment_ = CurrentEnvironment() +
                       Words{"SLURM_CONF=" + peer->dir_.path() + "/slurm.conf"};
  LOCKSTEP_ASSIGN_OR_RETURN(
      peer->version_, OutputOf({"srun", "--version"}, peer->environment_));
  return peer;
}

SlurmPeer::~SlurmPeer() {
  const Status stopped =
      RunProgram({kSlurmScript, "stop", dir_.path()}, CurrentEnvironment());
  if (!stopped.ok()) fmt::print(stderr, "{}\n", Message(stopped));
}

Status SlurmPeer::Run(const Words& argv) const {
  return RunProgram(argv, environment_);
}

pid_t SlurmPeer::Pid(const std::string& daemon) const {
  return atoi(ReadText(fmt::format("{}/{}.pid", dir_.path(), daemon)).c_str());
}

uint16_t SlurmPeer::control_port() const {
  return static_cast<uint16_t>(
      atoi(ReadText(dir_.path() + "/control_port").c_str()));
}

Status SlurmPeer::AwaitEmptyQueue() {
  return AwaitTrue(
      "Slurm's queue is not empty",
      [&]() -> StatusOr<bool> {
        LOCKSTEP_ASSIGN_OR_RETURN(
            const std::string queue,
            OutputOf({"squeue", "--noheader"}, environment_));
        return queue.empty();
      },
      std::chrono::milliseconds(10));
}

Board::Board(const std::string& path) : path_(path) {
  const Fd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file || ftruncate(file.get(), kSlots * sizeof(int64_t)) != 0) Die(path);
  void* const memory = mmap(nullptr, kSlots * sizeof(int64_t),
                            PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) Die(path);
  times_ = static_cast<int64_t*>(memory);
}

Board::~Board() { munmap(times_, kSlots * sizeof(int64_t)); }

StatusOr<int64_t> Board::WaitAll(int first, int count) const {
  int64_t latest = 0;
  for (int i = first; i < first + count; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(AwaitTrue(
        fmt::format("slot {} is still empty", i), [&] { return Get(i) != 0; },
        std::chrono::microseconds(50)));
    latest = std::max(latest, Get(i));
  }
  return latest;
}

StatusOr<double> Board::SecondsUntil(int64_t start, int first,
                                     int count) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t last, WaitAll(first, count));
  return static_cast<double>(last - start) / 1e9;
}

Status AwaitListening(int loopback_port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(loopback_port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return AwaitTrue("nothing listens", [&] {
    const Fd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return connect(probe.get(), reinterpret_cast<sockaddr*>(&address),
                   sizeof(address)) == 0;
  });
}

std::string BenchProgram(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}
std::string BinDir() { return BenchProgram("../bin"); }

Status RunProgram(const Words& argv, const Words& environment,
                  const std::function<void(std::string_view)>& sink,
                  Duration patience) {
  const BenchDir dir;
  SpawnOptions spawn;
  spawn.program = argv.at(0);
  spawn.argv = argv;
  spawn.env = environment;
  spawn.stderr_path = dir.path() + "/err";
  Pipe pipe;
  if (sink) {
    LOCKSTEP_ASSIGN_OR_RETURN(pipe, MakePipe());
    spawn.stdout_fd = pipe.write.get();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Process process, Spawn(spawn));
  pipe.write.Reset();
  const MonoTime deadline = MonotonicNow() + patience;
  std::string buffer(sink ? 1 << 20 : 0, '\0');
  pollfd readable = {.fd = pipe.read.get(), .events = POLLIN, .revents = 0};
  for (ssize_t got = 1; sink && got > 0 && MonotonicNow() < deadline;) {
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

StatusOr<std::string> OutputOf(const Words& argv, const Words& environment) {
  std::string output;
  LOCKSTEP_RETURN_IF_ERROR(RunProgram(
      argv, environment, [&](std::string_view piece) { output += piece; }));
  return WithoutNewlines(output);
}

StatusOr<ProcessUse> UseOf(pid_t pid) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ProcessStat stat, ReadProcessStat(pid));
  return ProcessUse{stat.user_seconds + stat.system_seconds,
                    static_cast<double>(stat.resident_bytes)};
}

}  // namespace lockstep
