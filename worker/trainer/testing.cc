#include "worker/trainer/testing.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "worker/data/shard_writer.h"
#include "worker/rank_link/packet.h"

namespace lockstep::worker::trainer {
namespace {

constexpr Duration kPatience = std::chrono::seconds(100);
constexpr int kNonceFd = 20;
constexpr char kJob[] = "test";

// Starts `arguments` with `environment` added, its output going to `output`
// and `nonce_fd` (or -1) as kNonceFd. 0 when it cannot be started.
pid_t Spawn(const std::vector<std::string>& arguments,
            const std::vector<std::string>& environment,
            const std::string& output, int nonce_fd) {
  std::vector<char*> argv;
  for (const std::string& a : arguments) {
    argv.push_back(const_cast<char*>(a.c_str()));
  }
  argv.push_back(nullptr);
  std::vector<char*> envp;
  for (char** e = environ; *e != nullptr; ++e) {
    if (!std::string_view(*e).starts_with("LOCKSTEP_LINK")) envp.push_back(*e);
  }
  for (const std::string& e : environment) {
    envp.push_back(const_cast<char*>(e.c_str()));
  }
  envp.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 1, output.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, 1, 2);
  if (nonce_fd >= 0) {
    ::posix_spawn_file_actions_adddup2(&actions, nonce_fd, kNonceFd);
  }
  pid_t pid = 0;
  if (::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(),
                    envp.data()) != 0) {
    pid = 0;
  }
  ::posix_spawn_file_actions_destroy(&actions);
  return pid;
}

int Reap(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int WaitUntil(pid_t pid, MonoTime deadline) {
  if (pid == 0) return -1;
  // The wrapper of glibc 2.36 lacks its extern "C".
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const Duration left = deadline - MonotonicNow();
  pollfd waited{fd.get(), POLLIN, 0};
  const auto milliseconds =
      std::max<int64_t>(0, left / std::chrono::milliseconds(1));
  if (::poll(&waited, 1, static_cast<int>(milliseconds)) == 1) {
    return Reap(pid);
  }
  ::kill(pid, SIGKILL);
  Reap(pid);
  return -1;
}

std::string Program() {
  const char* bin = std::getenv("LOCKSTEP_BIN");
  return JoinPath(bin == nullptr ? "build/release/bin" : bin, "lockstep-train");
}

std::string ReadAll(const std::string& path) {
  StatusOr<std::string> text = RealFileSystem()->Read(path);
  return text.ok() ? *text : Message(text.status());
}

}  // namespace

void WriteQuarters(const std::string& directory, uint64_t samples,
                   uint64_t seed) {
  data::ShardOptions options;
  options.directory = directory;
  options.name = "quarters";
  options.records_per_shard = 1000;
  StatusOr<std::unique_ptr<data::ShardWriter>> writer =
      data::ShardWriter::Create(RealFileSystem(), options);
  if (!writer.ok()) std::abort();
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (uint64_t i = 0; i < samples; ++i) {
    const int32_t label = static_cast<int32_t>(random() % 4);
    std::string pixels;
    for (int y = 0; y < 8; ++y) {
      for (int x = 0; x < 8; ++x) {
        const bool bright = (y / 4) * 2 + x / 4 == label;
        pixels += static_cast<char>(random() % 160 + (bright ? 60 : 0));
      }
    }
    data::LabelledImage image;
    image.encoded = pixels;
    image.shape = {8, 8, 1};
    image.label = label;
    if (!(*writer)->Add(image).ok()) std::abort();
  }
  if (!(*writer)->Publish().ok()) std::abort();
}

TestJob::TestJob(const JobOptions& options) : options_(options) {
  daemon_ = std::make_unique<rank_link::TestDaemon>(dir_.path() + "/link");
  Expect({});
  for (int rank = 0; rank < options_.ranks; ++rank) {
    pids_.push_back(Start(rank));
  }
}

v1::RankWelcome TestJob::Welcome(int rank, const std::vector<int>& away) const {
  v1::RankWelcome welcome;
  welcome.set_rank(rank);
  welcome.set_world_size(options_.ranks);
  welcome.set_local_rank(rank);
  welcome.set_local_size(options_.ranks);
  welcome.set_generation(options_.generation);
  welcome.set_job(kJob);
  welcome.set_job_key(std::string(32, 'k'));
  welcome.set_spec_hash(std::string(32, 's'));
  welcome.set_bind_address("127.0.0.1");
  welcome.set_output_directory(options_.output);
  welcome.set_checkpoint_interval_steps(options_.checkpoint_interval);
  welcome.set_checkpoint_keep(3);
  welcome.set_page_path(PagePath(rank));
  welcome.set_cpus(1);
  welcome.set_attempt(static_cast<int32_t>(options_.generation));
  for (size_t g = 0; g < options_.starts.size(); ++g) {
    v1::RankLineage* entry = welcome.add_lineage();
    entry->set_generation(g + 1);
    entry->set_start_step(options_.starts[g]);
  }
  welcome.set_recovery(recovery_);
  for (const int other : away) welcome.add_away_ranks(other);
  return welcome;
}

void TestJob::Expect(const std::vector<int>& away) {
  for (int rank = 0; rank < options_.ranks; ++rank) {
    daemon_->Expect(key(rank), "nonce-" + std::to_string(rank),
                    Welcome(rank, away));
  }
}

void TestJob::Recover(const std::vector<int>& away) {
  ++recovery_;
  Expect(away);
}

void TestJob::Replace(int rank) {
  pids_[static_cast<size_t>(rank)] = Start(rank);
}

TestJob::~TestJob() {
  for (const pid_t pid : pids_) {
    if (pid == 0) continue;
    ::kill(pid, SIGKILL);
    Reap(pid);
  }
}

rank_link::RankKey TestJob::key(int rank) const {
  return {kJob, options_.generation, rank};
}

std::string TestJob::PagePath(int rank) const {
  return dir_.path() + "/page-" + std::to_string(rank);
}

task::RankPage TestJob::page(int rank) const {
  task::RankPage page;
  std::string error;
  const auto reader = task::PageReader::Open(PagePath(rank), &error);
  if (reader != nullptr) reader->ReadLast(&page, &error);
  return page;
}

std::string TestJob::OutputPath(int rank) const {
  return dir_.path() + "/output-" + std::to_string(rank);
}

int64_t TestJob::committed(int rank) const {
  task::RankPage page;
  std::string error;
  const auto reader = task::PageReader::Open(PagePath(rank), &error);
  if (reader == nullptr ||
      reader->Read(&page, &error) != task::PageReader::Result::kOk) {
    return -1;
  }
  return page.progress.last_committed;
}

pid_t TestJob::Start(int rank) {
  const std::string nonce = "nonce-" + std::to_string(rank);
  Fd fd(::memfd_create("nonce", MFD_CLOEXEC));
  if (::write(fd.get(), nonce.data(), nonce.size()) !=
      static_cast<ssize_t>(nonce.size())) {
    std::abort();
  }
  std::vector<std::string> arguments = {Program()};
  arguments.insert(arguments.end(), options_.flags.begin(),
                   options_.flags.end());
  if (rank == options_.only_rank && recovery_ == 0) {
    arguments.insert(arguments.end(), options_.only.begin(),
                     options_.only.end());
  }
  return Spawn(
      arguments,
      {std::string(rank_link::kLinkVariable) + "=" + daemon_->path(),
       std::string(rank_link::kJobVariable) + "=" + kJob,
       std::string(rank_link::kGenerationVariable) + "=" +
           std::to_string(options_.generation),
       std::string(rank_link::kRankVariable) + "=" + std::to_string(rank),
       std::string(rank_link::kNonceFdVariable) + "=" +
           std::to_string(kNonceFd)},
      OutputPath(rank), fd.get());
}

int TestJob::WaitFor(int rank) {
  const int code = WaitUntil(pid(rank), MonotonicNow() + kPatience);
  pids_[static_cast<size_t>(rank)] = 0;
  return code;
}

std::vector<RankResult> TestJob::Wait() {
  const MonoTime deadline = MonotonicNow() + kPatience;
  std::vector<RankResult> results;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    RankResult result;
    result.code = WaitUntil(pid(rank), deadline);
    pids_[static_cast<size_t>(rank)] = 0;
    result.output = ReadAll(OutputPath(rank));
    results.push_back(std::move(result));
  }
  return results;
}

std::vector<v1::RankReport> TestJob::reports(int rank) {
  std::vector<v1::RankReport> reports;
  daemon_->With([&](rank_link::RankLinkServer*) {
    for (const auto& [from, report] : daemon_->reports) {
      if (from == key(rank)) reports.push_back(report);
    }
  });
  return reports;
}

std::vector<int64_t> TestJob::checkpoints(int rank) {
  std::vector<int64_t> steps;
  for (const v1::RankReport& report : reports(rank)) {
    if (report.checkpoint_path().empty()) continue;
    steps.push_back(report.checkpoint_step());
  }
  return steps;
}

std::vector<RankResult> RunJob(const JobOptions& options) {
  return TestJob(options).Wait();
}

rank_link::TempDir* DisturbedJobTest::data_ = nullptr;

void DisturbedJobTest::SetUpTestSuite() {
  data_ = new rank_link::TempDir;
  // With steps of 60 or 64 the last one of an epoch has two: shards are empty.
  WriteQuarters(data_->path() + "/train", 962, 1);
  WriteQuarters(data_->path() + "/eval", 100, 2);
}

void DisturbedJobTest::TearDownTestSuite() { delete data_; }

JobOptions DisturbedJobTest::JobOf(int ranks, int batch, std::string output) {
  JobOptions job;
  job.ranks = ranks;
  job.output = std::move(output);
  job.checkpoint_interval = 10;
  job.flags = {"--train",      data_->path() + "/train",
               "--eval",       data_->path() + "/eval",
               "--batch-size", std::to_string(batch),
               "--epochs",     "3",
               "--classes",    "4",
               "--param-hash"};
  return job;
}

void DisturbedJobTest::Add(JobOptions* job,
                           std::initializer_list<std::string> flags) {
  job->flags.insert(job->flags.end(), flags);
}

JobOptions DisturbedJobTest::Next(JobOptions job, int64_t start) {
  ++job.generation;
  job.starts.push_back(start);
  return job;
}

RankResult RunAlone(const std::vector<std::string>& flags) {
  rank_link::TempDir dir;
  std::vector<std::string> arguments = {Program()};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const std::string output = dir.path() + "/output";
  RankResult result;
  result.code =
      WaitUntil(Spawn(arguments, {}, output, -1), MonotonicNow() + kPatience);
  result.output = ReadAll(output);
  return result;
}

std::string ParamHash(const RankResult& result) {
  const std::string_view mark = "param_hash rank=";
  const size_t at = result.output.find(mark);
  if (at == std::string::npos) return "no hash in: " + result.output;
  std::istringstream line(result.output.substr(at));
  std::string word;
  std::string step;
  std::string hash;
  line >> word >> word >> step >> hash;
  return step.substr(step.find('=') + 1) + " " + hash;
}

}  // namespace lockstep::worker::trainer
