#include "tests/cluster/fixture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <thread>
#include <utility>

#include "common/base/fault_point.h"
#include "common/os/process.h"
#include "common/os/procfs.h"
#include "tests/support/idx_files.h"
#include "worker/task/rank_page.h"

namespace lockstep {
namespace {

namespace task = worker::task;

constexpr Duration kTurn = std::chrono::milliseconds(10);
constexpr size_t kLogTail = 24 << 10;

std::string SelfDir() {
  return std::filesystem::canonical("/proc/self/exe").parent_path();
}

std::string ReadLink(const std::string& path) {
  char target[4096];
  const ssize_t size = readlink(path.c_str(), target, sizeof(target));
  return size > 0 ? std::string(target, size) : "";
}

std::string Tail(const std::string& text) {
  return text.size() <= kLogTail ? text : text.substr(text.size() - kLogTail);
}

}  // namespace

bool Eventually(const std::function<bool()>& condition, Duration patience) {
  const MonoTime deadline = MonotonicNow() + patience;
  while (!condition()) {
    if (MonotonicNow() > deadline) return false;
    std::this_thread::sleep_for(kTurn);
  }
  return true;
}

std::vector<std::string> ProcessesUnder(const std::vector<std::string>& dirs) {
  std::vector<std::string> found;
  for (const ProcessStat& process : ReadAllProcesses()) {
    if (process.pid == getpid() || process.state == 'Z') continue;
    const std::string proc = fmt::format("/proc/{}", process.pid);
    const std::string command = ReadProcFile(proc + "/cmdline").value_or("");
    const std::string cwd = ReadLink(proc + "/cwd") + "/";
    for (const std::string& dir : dirs) {
      if (cwd.rfind(dir + "/", 0) == 0 ||
          command.find(dir + "/") != std::string::npos) {
        std::string words = command;
        std::replace(words.begin(), words.end(), '\0', ' ');
        found.push_back(fmt::format("{} {}", process.pid, words));
        break;
      }
    }
  }
  return found;
}

ClusterTest::ClusterTest() {
  char name[] = "/tmp/lockstep-XXXXXX";
  if (mkdtemp(name) != nullptr) root_ = name;
  const char* const bin = getenv("LOCKSTEP_BIN");
  bin_ = bin != nullptr && *bin != '\0' ? bin : SelfDir() + "/../bin";
  options_.dir = root_ + "/c";
  options_.bin_dir = bin_;
  options_.workers = 2;
  options_.cpus = 2;
  options_.memory_bytes = int64_t{4} << 30;
  options_.gpus = 0;
}

ClusterTest::~ClusterTest() = default;

void ClusterTest::SetUp() {
  ASSERT_FALSE(root_.empty());
  if (!manual_start_) StartCluster();
}

void ClusterTest::StartCluster() {
  auto cluster = cli::LocalCluster::Start(options_);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  cluster_ = *std::move(cluster);
  auto client = cli::Client::Connect(cluster_->client_options());
  ASSERT_TRUE(client.ok()) << client.status();
  client_ = *std::move(client);
}

void ClusterTest::TearDown() {
  if (!cluster_) {
    // It may have come up half.
    if (auto half = cli::LocalCluster::Open(options_); half.ok()) {
      cluster_ = *std::move(half);
    }
  }
  if (cluster_) {
    if (client_) EndJobs();
    client_.reset();
    StopDaemons();
    if (HasFailure() || getenv("LOCKSTEP_TEST_LOGS") != nullptr) DumpLogs();
    const auto down = cluster_->Down({});
    EXPECT_TRUE(down.ok()) << down.status();
    EXPECT_EQ(down.ok() ? down->killed_tasks : 0, 0) << "tasks were left over";
    EXPECT_THAT(ProcessesUnder({root_, cluster_->record().runtime_dir}),
                testing::IsEmpty());
  }
  EXPECT_TRUE(RealFileSystem()->RemoveAll(root_).ok());
}

void ClusterTest::EndJobs() {
  for (const cli::DaemonStatus& daemon : cluster_->Daemons()) {
    if (daemon.running) continue;
    EXPECT_TRUE(stopped_.contains(daemon.name))
        << daemon.name << " ended by itself";
    StartDaemon(daemon.name);
  }
  const auto jobs = client_->ListJobs();
  EXPECT_TRUE(jobs.ok()) << jobs.status();
  if (!jobs.ok()) return;
  for (const v1::Job& job : *jobs) {
    if (cli::IsFinalState(job.state())) continue;
    EXPECT_TRUE(client_->CancelJob(job.name()).ok());
    const auto ended = client_->WaitJob(job.name(), kPatience, nullptr);
    EXPECT_TRUE(ended.ok()) << job.name() << ": " << ended.status();
  }
  CheckNothingLeft();
}

void ClusterTest::CheckNothingLeft() {
  // No shim and no rank, and nothing that they left on the disk.
  std::vector<std::string> left;
  const bool gone = Eventually(
      [&] {
        left.clear();
        for (const cli::WorkerRecord& worker : cluster_->record().workers) {
          const std::string dir = cluster_->layout().DaemonDir(worker.name);
          const auto tasks = RealFileSystem()->List(dir + "/tasks");
          if (tasks.ok()) {
            for (const std::string& task : *tasks) {
              left.push_back(dir + "/tasks/" + task);
            }
          }
        }
        for (const std::string& process : ProcessesUnder({root_})) {
          if (process.find("/lockstep-coordinator ") == std::string::npos &&
              process.find("/lockstep-worker ") == std::string::npos) {
            left.push_back(process);
          }
        }
        return left.empty();
      },
      std::chrono::seconds(20));
  EXPECT_TRUE(gone) << "left over:\n"
                    << fmt::format("{}", fmt::join(left, "\n"));
}

void ClusterTest::StopDaemons() {
  // Workers first: the other way they would look for their coordinator.
  std::vector<cli::DaemonStatus> daemons = cluster_->Daemons();
  std::reverse(daemons.begin(), daemons.end());
  for (const cli::DaemonStatus& daemon : daemons) {
    if (daemon.running) StopDaemon(daemon.name);
  }
}

void ClusterTest::DumpLogs() {
  for (const cli::DaemonStatus& daemon : cluster_->Daemons()) {
    std::cerr << "---- " << daemon.log << "\n"
              << Tail(RealFileSystem()->Read(daemon.log).value_or("")) << "\n";
  }
}

v1::JobSpec ClusterTest::Spec(const std::string& name, v1::JobKind kind,
                              int tasks, std::vector<std::string> argv) {
  v1::JobSpec spec;
  spec.set_name(name);
  spec.set_kind(kind);
  for (std::string& argument : argv) spec.add_argv(std::move(argument));
  v1::RoleSpec* role = spec.add_roles();
  role->set_type(v1::TASK_TYPE_CHIEF);
  role->set_count(1);
  role->mutable_resources()->set_cpus(1);
  if (tasks > 1) {
    role = spec.add_roles();
    role->set_type(v1::TASK_TYPE_WORKER);
    role->set_count(tasks - 1);
    role->mutable_resources()->set_cpus(1);
  }
  return spec;
}

v1::JobSpec ClusterTest::Steps(const std::string& name, int tasks,
                               std::vector<std::string> flags) {
  flags.insert(flags.begin(), TestBinary("step_program"));
  v1::JobSpec spec = Spec(name, v1::JOB_KIND_NATIVE, tasks, std::move(flags));
  spec.set_output_directory(OutputOf(name));
  return spec;
}

std::string ClusterTest::OutputOf(const std::string& job) const {
  return root_ + "/out-" + job;
}

void ClusterTest::Submit(const v1::JobSpec& spec) {
  const auto answer = client_->SubmitJob(spec);
  ASSERT_TRUE(answer.ok()) << answer.status();
}

v1::Job ClusterTest::Get(const std::string& name) {
  const auto job = client_->GetJob(name);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : v1::Job();
}

v1::Job ClusterTest::WaitUntil(
    const std::string& name, const std::string& what,
    const std::function<bool(const v1::Job&)>& condition, Duration patience) {
  v1::Job job;
  bool holds = false;
  Eventually(
      [&] {
        job = Get(name);
        holds = condition(job);
        return holds || job.name().empty() || cli::IsFinalState(job.state());
      },
      patience);
  EXPECT_TRUE(holds) << name << " did not come to " << what << ":\n"
                     << job.DebugString();
  return job;
}

v1::Job ClusterTest::WaitFor(const std::string& name, v1::JobState state,
                             Duration patience) {
  return WaitUntil(
      name, v1::JobState_Name(state),
      [&](const v1::Job& job) { return job.state() == state; }, patience);
}

v1::Job ClusterTest::AwaitRecovered(const std::string& name,
                                    int32_t recoveries) {
  return WaitUntil(
      name, fmt::format("recovery {}", recoveries), [&](const v1::Job& job) {
        if (job.recoveries() < recoveries) return false;
        const auto ranks = Ranks(job);
        return std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) {
          return rank.second.state() == v1::RANK_STATE_JOINED &&
                 rank.second.recovery() >= static_cast<uint32_t>(recoveries);
        });
      });
}

v1::Job ClusterTest::WaitEnd(const std::string& name, v1::JobState state,
                             Duration patience) {
  return WaitFor(name, state, patience);
}

v1::Job ClusterTest::RunJob(const v1::JobSpec& spec, v1::JobState state,
                            Duration patience) {
  Submit(spec);
  if (HasFatalFailure()) return v1::Job();
  return WaitEnd(spec.name(), state, patience);
}

std::vector<std::string> ClusterTest::Output(const std::string& job, int rank,
                                             int attempt) {
  cli::LogOptions options;
  options.name = job;
  options.ranks = {rank};
  options.attempt = attempt;
  std::vector<std::string> lines;
  const Status status = client_->StreamLogs(
      options,
      [&](const v1::LogLine& line) {
        EXPECT_EQ(line.rank(), rank);
        lines.push_back(line.text());
        return true;
      },
      nullptr);
  EXPECT_TRUE(status.ok()) << status;
  return lines;
}

std::string ClusterTest::Line(const std::string& job, int rank,
                              std::string_view start, int attempt) {
  for (const std::string& line : Output(job, rank, attempt)) {
    if (line.rfind(start, 0) == 0) return line;
  }
  return "";
}

bool ClusterTest::HasLine(const std::string& job, int rank,
                          std::string_view start) {
  return Eventually([&] { return !Line(job, rank, start).empty(); });
}

std::map<int, v1::RankStatus> ClusterTest::Ranks(const v1::Job& job) {
  std::map<int, v1::RankStatus> ranks;
  for (const v1::TaskStatus& task : job.tasks()) {
    for (const v1::RankStatus& rank : task.ranks()) ranks[rank.rank()] = rank;
  }
  return ranks;
}

int64_t ClusterTest::PidOf(const v1::Job& job, int rank) {
  return Ranks(job)[rank].pid();
}

std::optional<worker::task::RankPage> ClusterTest::PageOf(const v1::Job& job,
                                                          int rank) const {
  for (const v1::TaskStatus& task : job.tasks()) {
    for (const v1::RankStatus& status : task.ranks()) {
      if (status.rank() != rank) continue;
      const std::string path =
          fmt::format("{}/tasks/{}.g{}/rank-{}/work/.lockstep-page",
                      cluster_->layout().DaemonDir(task.node()), job.name(),
                      job.generation(), rank);
      std::string error;
      const auto reader = worker::task::PageReader::Open(path, &error);
      worker::task::RankPage page;
      if (!reader || reader->ReadLast(&page, &error) !=
                         worker::task::PageReader::Result::kOk) {
        return std::nullopt;
      }
      return page;
    }
  }
  return std::nullopt;
}

int64_t ClusterTest::CommittedOnPage(const v1::Job& job, int rank) const {
  const auto page = PageOf(job, rank);
  return page ? page->progress.last_committed : -1;
}

void ClusterTest::KillDaemon(const std::string& daemon) {
  stopped_.insert(daemon);
  const Status killed = cluster_->Kill(daemon, SIGKILL);
  ASSERT_TRUE(killed.ok()) << killed;
}

void ClusterTest::StopDaemon(const std::string& daemon) {
  stopped_.insert(daemon);
  const Status sent = cluster_->Kill(daemon, SIGTERM);
  EXPECT_TRUE(sent.ok()) << sent;
  const auto exit = cluster_->WaitEnded(daemon, std::chrono::seconds(20));
  ASSERT_TRUE(exit.ok()) << daemon << ": " << exit.status();
  EXPECT_TRUE(exit->ok()) << daemon << " " << exit->Describe();
}

void ClusterTest::StartDaemon(const std::string& daemon) {
  stopped_.erase(daemon);
  const Status started = cluster_->StartDaemon(daemon);
  ASSERT_TRUE(started.ok()) << started;
  const Status ready = cluster_->WaitReady();
  ASSERT_TRUE(ready.ok()) << ready;
}

void ClusterTest::StartAll() {
  stopped_.clear();
  const auto started = cluster_->Up();
  ASSERT_TRUE(started.ok()) << started.status();
}

bool ClusterTest::FaultStruck(const std::string& daemon) {
  const auto exit = cluster_->WaitEnded(daemon, Duration{});
  if (!exit.ok()) return false;
  EXPECT_TRUE(exit->code == kFaultExitCode)
      << daemon << " " << exit->Describe();
  stopped_.insert(daemon);
  return true;
}

ClusterTest::Command ClusterTest::StartCommand(
    const std::vector<std::string>& argv, const std::vector<std::string>& env) {
  SpawnOptions spawn;
  spawn.program = argv.at(0);
  spawn.argv = argv;
  std::vector<std::string> variables = env;
  variables.push_back("HOME=" + root_);
  for (const std::string& variable : CurrentEnvironment()) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    const bool given = std::any_of(
        variables.begin(), variables.end(),
        [&](const std::string& other) { return other.rfind(name, 0) == 0; });
    if (!given) spawn.env.push_back(variable);
  }
  spawn.env.insert(spawn.env.end(), variables.begin(), variables.end());
  spawn.stdout_path = fmt::format("{}/command-{}.out", root_, ++commands_);
  spawn.stderr_path = fmt::format("{}/command-{}.err", root_, commands_);
  auto process = Spawn(spawn);
  EXPECT_TRUE(process.ok()) << process.status();
  Command command;
  if (process.ok()) command.process = *std::move(process);
  command.out = spawn.stdout_path;
  command.err = spawn.stderr_path;
  return command;
}

CommandResult ClusterTest::WaitCommand(const Command& command,
                                       Duration patience) {
  CommandResult result;
  if (!command.process.pidfd) return result;
  const auto exit = WaitExit(command.process, MonotonicNow() + patience);
  if (!exit.ok()) {
    ADD_FAILURE() << exit.status();
    StopProcess(command.process, std::chrono::seconds(1)).IgnoreError();
  } else {
    result.code = exit->signal != 0 ? 128 + exit->signal : exit->code;
  }
  result.out = RealFileSystem()->Read(command.out).value_or("");
  result.err = RealFileSystem()->Read(command.err).value_or("");
  return result;
}

CommandResult ClusterTest::RunCommand(const std::vector<std::string>& argv,
                                      const std::vector<std::string>& env,
                                      Duration patience) {
  return WaitCommand(StartCommand(argv, env), patience);
}

std::vector<std::string> ClusterTest::CliEnvironment() const {
  const cli::ClientOptions how = cluster_->client_options();
  return {"LOCKSTEP_ADDRESS=" + how.address, "LOCKSTEP_CA=" + how.ca,
          "LOCKSTEP_CERT=" + how.certificate, "LOCKSTEP_KEY=" + how.key,
          "NO_COLOR=1"};
}

CommandResult ClusterTest::Lockstep(std::vector<std::string> arguments,
                                    Duration patience) {
  arguments.insert(arguments.begin(), Binary("lockstep"));
  return RunCommand(arguments, CliEnvironment(), patience);
}

void ClusterTest::UseSite(const std::string& table) {
  ASSERT_NE(cluster(), nullptr);
  WriteFile(options_.dir + "/machines.yaml", table);
  for (const cli::DaemonStatus& daemon : cluster()->Daemons()) {
    if (daemon.name != "coordinator") continue;
    ASSERT_EQ(kill(daemon.pid, SIGHUP), 0);
    ASSERT_TRUE(Eventually([&] {
      return ReadFile(daemon.log)
                 .find("reloaded the site's tables, prices and receivers") !=
             std::string::npos;
    }));
  }
}

std::string ClusterTest::Binary(const std::string& name) const {
  return bin_ + "/" + name;
}

std::string ClusterTest::TestBinary(const std::string& name) {
  return SelfDir() + "/" + name;
}

std::string ClusterTest::Path(const std::string& name) const {
  return root_ + "/" + name;
}

std::string ClusterTest::PackImages(const std::string& name, int count,
                                    int records_per_shard) {
  const IdxFiles files = BrightQuarters(count);
  WriteFile(Path(name + "-images"), files.images);
  WriteFile(Path(name + "-labels"), files.labels);
  const CommandResult packed =
      RunCommand({Binary("lockstep-data"), "pack", "idx", "--images",
                  Path(name + "-images"), "--labels", Path(name + "-labels"),
                  "--out", Path(name), "--name", "synthetic",
                  "--records-per-shard", std::to_string(records_per_shard)});
  EXPECT_EQ(packed.code, 0) << packed.err;
  return Path(name);
}

void ClusterTest::WriteFile(const std::string& path, std::string_view bytes) {
  const Status written = RealFileSystem()->WriteAtomic(path, bytes);
  ASSERT_TRUE(written.ok()) << written;
}

std::string ClusterTest::ReadFile(const std::string& path) {
  const auto bytes = RealFileSystem()->Read(path);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or("");
}

}  // namespace lockstep
