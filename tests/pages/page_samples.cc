// Writes the status pages of a made-up cluster into a folder, for page_test.py,
// and prints how long the coordinator takes for each. Fails if one of the gated
// pages takes more than 50 ms.
//
//   page_samples DIR
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "server/history/history_keeper.h"
#include "server/page/compare_page.h"
#include "server/page/logs_page.h"
#include "server/page/overview_page.h"
#include "server/page/status_page.h"

namespace lockstep::server {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr double kMostMilliseconds = 50;
constexpr int kJobs = 500;
constexpr int kNodes = 64;
constexpr int kGpusOfNode = 8;
const WallTime kNow = FromUnixNanos(int64_t{1'767'225'600} * 1'000'000'000);
const JobReader kReader{.name = "", .sees_all = true};
const char* const kOwners[] = {"user/ann", "user/bob", "user/chen",
                               "user/dana"};

// A repeatable number between 0 and 1.
double Noise(int a, int b) {
  const double x = std::sin(a * 12.9898 + b * 78.233) * 43758.5453;
  return x - std::floor(x);
}

std::shared_ptr<Job> NewJob(const std::string& name, JobState state,
                            WallTime created) {
  auto job = std::make_shared<Job>();
  job->spec.name = name;
  job->uid = "uid-" + name;
  job->spec.kind = JobKind::kProgram;
  job->spec.argv.Edit() = {"python3", "train.py", "--epochs", "90"};
  job->spec.labels = {{"team", "vision"}};
  job->owner = kOwners[name.size() % std::size(kOwners)];
  job->create_time = created;
  job->state = state;
  job->state_time = created + minutes(5);
  job->generation = job->attempt = 1;
  if (state != JobState::kQueued) job->start_time = created + minutes(1);
  if (IsFinal(state)) job->end_time = job->state_time;
  return job;
}

void AddRoles(int32_t tasks, Job* job) {
  RoleSpec role;
  role.type = TaskType::kWorker;
  role.count = tasks;
  role.resources = {4, int64_t{16} << 30, 1, ""};
  job->spec.roles.Edit() = {role};
}

void AddTask(int32_t rank, const NodeName& node, std::vector<int32_t> gpus,
             Job* job) {
  TaskStatus task;
  task.type = TaskType::kWorker;
  task.index = rank;
  task.node = node;
  task.gpus = std::move(gpus);
  task.ranks.resize(1);
  task.ranks[0].rank = rank;
  task.ranks[0].state = RankState::kJoined;
  job->tasks.push_back(std::move(task));
}

NodeName NodeOf(int node) { return fmt::format("gpu-{:02}", node); }

std::vector<NodeSnapshot> Nodes() {
  std::vector<NodeSnapshot> nodes;
  for (int n = 0; n < kNodes; ++n) {
    NodeSnapshot node;
    Member& member = node.member;
    member.info.name = NodeOf(n);
    member.info.capacity = {64, int64_t{512} << 30, kGpusOfNode, ""};
    member.info.pool = "default";
    member.state = n == 13 ? NodeState::kUnknown : NodeState::kReady;
    member.last_beat_wall = kNow;
    member.readings.cpu_utilization = Noise(n, 1);
    for (int g = 0; g < kGpusOfNode; ++g) {
      member.info.gpus.push_back(
          {g, fmt::format("GPU-{}-{}", n, g), "H100", int64_t{80} << 30});
      GpuUsage usage;
      usage.index = g;
      usage.utilization = Noise(n, g);
      usage.power_watts = 400;
      member.readings.gpus.push_back(usage);
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

// 500 jobs: those that run hold the GPUs of the nodes.
CoordinatorView Cluster() {
  CoordinatorView view;
  view.time.wall = kNow;
  view.nodes = Nodes();
  int slot = 0;
  for (int i = 0; i < kJobs; ++i) {
    const JobState state = i % 5 < 3    ? JobState::kRunning
                           : i % 5 == 3 ? JobState::kQueued
                           : i % 2 == 0 ? JobState::kFailed
                                        : JobState::kSucceeded;
    const std::string name =
        fmt::format("{}-{:03}", i % 2 == 0 ? "resnet" : "transformer", i);
    auto job = NewJob(name, state, kNow - hours(10) + minutes(i));
    job->owner = kOwners[i % 4];
    AddRoles(1, job.get());
    JobSnapshot snapshot;
    if (state == JobState::kRunning && slot < kNodes * kGpusOfNode) {
      const int n = slot / kGpusOfNode;
      const int32_t gpu = slot % kGpusOfNode;
      ++slot;
      AddTask(0, NodeOf(n), {gpu}, job.get());
      Hold hold;
      hold.node = NodeOf(n);
      hold.gpus = {gpu};
      hold.resources = {4, 0, 1, ""};
      job->holds = {hold};
      NodeSnapshot& node = view.nodes[static_cast<size_t>(n)];
      node.jobs.push_back(name);
      node.allocated.gpus += 1;
      node.allocated.cpus += 4;
      JobProgressInfo progress;
      progress.chief.committed_step = 10 * i;
      progress.chief.total_steps = 5000;
      progress.samples_per_second = 1000 + i;
      snapshot.progress = progress;
    }
    if (state == JobState::kFailed) {
      job->cause = {Reason::kRankExit,
                    "rank 0 (worker 0 on gpu-03) ended with exit code 1: "
                    "ValueError: no data"};
    }
    if (state == JobState::kQueued) {
      snapshot.waiting = Cause{Reason::kNoCapacity,
                               "no node has 1 free GPU; 2 jobs are before it"};
      snapshot.queue_position = i / 5 + 1;
    }
    snapshot.job = job;
    snapshot.time = kNow;
    view.jobs.push_back({std::move(snapshot), std::nullopt});
    ++view.jobs_by_state[state];
  }
  return view;
}

// A joined job whose rank 17 is late, or a program that only logs steps.
JobSnapshot Training(const std::string& name, int ranks, bool joined) {
  auto job = NewJob(name, JobState::kRunning, kNow - hours(6));
  job->owner = "user/ann";
  job->spec.kind = joined ? JobKind::kNative : JobKind::kProgram;
  AddRoles(ranks, job.get());
  JobSnapshot snapshot;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    AddTask(rank, NodeOf(rank / kGpusOfNode), {rank % kGpusOfNode}, job.get());
    RankStatus& live = snapshot.live[rank];
    live.rank = rank;
    live.state = RankState::kJoined;
  }
  Attempt attempt;
  attempt.ordinal = 1;
  attempt.start_time = *job->start_time;
  attempt.end_time = *job->start_time + hours(2);
  attempt.end_cause = {Reason::kRankSignal, "rank 3 was killed by SIGKILL"};
  job->attempts = {attempt};
  job->attempt = 2;
  job->restarts = 1;
  job->events = {{*job->start_time + hours(4), 1, Reason::kNoProgress,
                  "rank 17 stands still"}};
  snapshot.job = job;
  snapshot.time = *job->start_time;
  return snapshot;
}

void Step(int i, Duration passed, bool joined, CoordinatorView* view) {
  JobSnapshot& job = view->jobs[0].snapshot;
  job.time += passed;
  view->time.wall = job.time;
  for (auto& [rank, live] : job.live) {
    const double load = (rank == 17 ? 1.6 : 3.2) + Noise(rank, i) * 0.5;
    live.usage.seconds += ToSeconds(passed);
    live.usage.cpu_seconds += load * ToSeconds(passed);
    // One rank carries more than the others.
    const double speed = (live.rank == 3 ? 90e6 : 30e6) * load;
    live.usage.network_sent_bytes =
        live.usage.network_sent_bytes.value_or(0) +
        static_cast<int64_t>(speed * ToSeconds(passed));
    live.usage.network_received_bytes = live.usage.network_sent_bytes;
    live.usage.memory_bytes =
        (int64_t{10} << 30) + int64_t{rank} * (50 << 20) + int64_t{i} * 100'000;
    live.progress.phases.compute += 0.6 * ToSeconds(passed);
    live.progress.phases.allreduce += 0.15 * ToSeconds(passed);
    live.progress.phases.straggler_wait +=
        (0.1 + 0.1 * Noise(i, 3)) * ToSeconds(passed);
    live.progress.phases.input += 0.05 * ToSeconds(passed);
    if (!joined) {
      live.progress.phases = {};
      ProgressSigns signs;
      signs.log_step =
          std::lround(4 * ToSeconds(job.time - *job.job->start_time));
      live.progress.signs = signs;
    }
  }
  if (!joined) return;
  if (!job.progress) job.progress.emplace();
  RankProgress& chief = job.progress->chief;
  chief.committed_step = std::max<int64_t>(0, chief.committed_step) +
                         std::lround((2 + Noise(i, 9)) * ToSeconds(passed));
  chief.total_steps = 100'000;
  chief.samples = chief.committed_step * 256;
  chief.loss = 2.3 * std::exp(-i / 500.0) + 0.1 + Noise(i, 5) * 0.05;
  chief.values = {{"accuracy", 1 - std::exp(-i / 400.0)}};
  job.progress->samples_per_second = 640;
  if (i % 200 == 0) {
    auto next = std::make_shared<Job>(*job.job);
    next->last_checkpoint =
        Checkpoint{chief.committed_step, 1, "/out", job.time, 1};
    job.job = std::move(next);
  }
}

HistoryPlot HistoryOf(const std::string& dir, bool joined,
                      JobSnapshot* snapshot, HistoryKeeper* keeper) {
  (void)dir;
  CoordinatorView view;
  view.jobs.push_back({*snapshot, std::nullopt});
  for (const NodeSnapshot& node : Nodes()) view.nodes.push_back(node);
  // Six hours, the last quarter of one in seconds.
  const int coarse = (6 * 3600 - 960) / 15;
  for (int i = 0; i < coarse + 900; ++i) {
    for (NodeSnapshot& node : view.nodes) {
      for (GpuUsage& gpu : node.member.readings.gpus) {
        gpu.utilization = 0.75 + 0.25 * Noise(gpu.index, i);
      }
    }
    if (i == coarse / 2) {
      // The job was down for ten minutes.
      Step(i, minutes(10), joined, &view);
    }
    Step(i, i < coarse ? seconds(15) : seconds(1), joined, &view);
    keeper->Look(view);
  }
  *snapshot = view.jobs[0].snapshot;
  return keeper->Read({snapshot->job->spec.name, snapshot->job->uid,
                       *snapshot->job->start_time, snapshot->time});
}

class Samples {
 public:
  explicit Samples(std::string dir) : dir_(std::move(dir)) {}

  // Writes the page and prints the time of the fastest of a few calls.
  void Write(const std::string& name, bool gated,
             const std::function<http::HttpResponse()>& make) {
    Duration fastest = hours(1);
    http::HttpResponse page;
    for (int i = 0; i < 7; ++i) {
      const MonoTime begin = MonotonicNow();
      page = make();
      fastest = std::min(fastest, MonotonicNow() - begin);
    }
    const double took = ToSeconds(fastest) * 1e3;
    const bool slow = gated && took > kMostMilliseconds;
    printf("%-12s %6.1f ms  %5zu KiB%s\n", name.c_str(), took,
           page.body.size() >> 10, slow ? "  TOO SLOW" : "");
    failed_ |= slow;
    const Status status = RealFileSystem()->WriteAtomic(
        JoinPath(dir_, name + ".html"), page.body);
    if (!status.ok()) {
      fprintf(stderr, "page_samples: %s\n", Message(status).c_str());
      failed_ = true;
    }
  }
  bool failed() const { return failed_; }

 private:
  const std::string dir_;
  bool failed_ = false;
};

JobSnapshot FailedJob() {
  auto job = NewJob("broken", JobState::kFailed, kNow - minutes(30));
  AddRoles(2, job.get());
  AddTask(0, NodeOf(0), {0}, job.get());
  AddTask(1, NodeOf(1), {0}, job.get());
  for (TaskStatus& task : job->tasks) {
    ExitStatus exit;
    exit.value = 1;
    exit.end_time = kNow;
    exit.victim = task.index == 0;
    exit.location = "train.py:88";
    exit.message = "ValueError: no data in <shard-0007>";
    task.ranks[0].exit = exit;
    task.ranks[0].state = RankState::kExited;
  }
  job->cause = {Reason::kRankExit,
                "rank 1 (worker 1 on gpu-01) ended with exit code 1, at "
                "train.py:88: ValueError: no data in <shard-0007>"};
  job->exit_code = 1;
  JobSnapshot snapshot;
  snapshot.job = job;
  snapshot.time = kNow;
  return snapshot;
}

LogTail Lines() {
  LogTail tail;
  const char* const texts[] = {
      "epoch 3 step 1200 loss 0.412",
      "UserWarning: the loader is slow",
      "Traceback (most recent call last):",
      "  File \"/work/train.py\", line 88, in <module>",
      "    batch = next(loader)",
      "ValueError: no data in <shard-0007>"};
  int i = 0;
  for (const char* text : texts) {
    TailLine line;
    line.unix_nanos = ToUnixNanos(kNow) - (6 - i) * int64_t{1'000'000'000};
    line.rank = 1;
    line.severity = i == 1  ? Severity::kWarning
                    : i > 1 ? Severity::kError
                            : Severity::kInfo;
    line.text = text;
    tail.lines.push_back(line);
    ++i;
  }
  return tail;
}

int Run(const std::string& dir) {
  HistoryOptions options;
  options.work_interval = {};
  HistoryKeeper keeper(options, RealFileSystem(), dir);
  JobSnapshot wide = Training("wide", 64, true);
  JobSnapshot plain = Training("plain", 2, false);
  const HistoryPlot wide_plot = HistoryOf(dir, true, &wide, &keeper);
  HistoryPlot plain_plot = HistoryOf(dir, false, &plain, &keeper);
  const CoordinatorView cluster = Cluster();
  Samples samples(dir);
  samples.Write("overview", true, [&] {
    // The coordinator copies its state first.
    const CoordinatorView view = cluster;
    return OverviewPage("lab", kReader, view, {});
  });
  samples.Write("wide", true, [&] {
    JobExtras extras;
    extras.history =
        keeper.Read({"wide", "uid-wide", *wide.job->start_time, wide.time});
    extras.late_rank = 17;
    return JobPage("lab", kReader, wide, extras);
  });
  samples.Write("plain", true, [&] {
    JobExtras extras;
    extras.history =
        keeper.Read({"plain", "uid-plain", *plain.job->start_time, plain.time});
    return JobPage("lab", kReader, plain, extras);
  });
  const JobSnapshot broken = FailedJob();
  const LogTail lines = Lines();
  samples.Write("failed", false, [&] {
    JobExtras extras;
    extras.last_lines = lines;
    extras.history = plain_plot;
    return JobPage("lab", kReader, broken, extras);
  });
  samples.Write("logs", false,
                [&] { return LogsPage("lab", *broken.job, {}, lines); });
  samples.Write("compare", false, [&] {
    return ComparePage("lab", {"wide", "plain"},
                       {{"wide", wide_plot}, {"plain", plain_plot}});
  });
  return samples.failed() ? 1 : 0;
}

}  // namespace
}  // namespace lockstep::server

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: page_samples DIR\n");
    return 2;
  }
  return lockstep::server::Run(argv[1]);
}
