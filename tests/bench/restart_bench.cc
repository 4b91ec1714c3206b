// R4: SIGKILL the coordinator while 200 tasks sleep, start it again at once:
// how long until it serves, knows every task as running, and all worker
// daemons are back. The tasks' pids must be the same. Beside slurmctld killed
// and started again with as many tasks, until squeue shows the job running.
#include <signal.h>
#include <sys/wait.h>

#include <map>
#include <thread>

#include "tests/bench/bench_cluster.h"
#include "tests/bench/report.h"
#include "worker/task/rank_page.h"

namespace lockstep {
namespace {

constexpr int kRounds = 8;
constexpr int kJobs = 10;
constexpr int kTasksPerJob = 20;
constexpr int64_t kPatience = 60'000'000'000;

void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

// Pids by job and rank; fewer than all while something is not running.
std::map<std::pair<std::string, int>, int64_t> Pids(Client* client) {
  std::map<std::pair<std::string, int>, int64_t> pids;
  for (int i = 0; i < kJobs; ++i) {
    const std::string name = "sleep" + std::to_string(i);
    const auto job = client->GetJob(name);
    if (!job.ok() || job->state() != v1::JOB_STATE_RUNNING) return pids;
    for (const auto& task : job->tasks()) {
      for (const auto& rank : task.ranks()) {
        if (rank.pid() != 0) pids[{name, rank.rank()}] = rank.pid();
      }
    }
  }
  return pids;
}

bool AllReady(Client* client) {
  const auto nodes = client->ListNodes();
  if (!nodes.ok() || nodes->size() != 2) return false;
  for (const v1::Node& node : *nodes) {
    if (node.state() != v1::NODE_STATE_READY) return false;
  }
  return true;
}

StatusOr<double> Ours(BenchCluster* bench) {
  Client* const client = bench->client();
  const auto before = Pids(client);
  LOCKSTEP_RETURN_IF_ERROR(bench->cluster()->Kill("coordinator", SIGKILL));
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(bench->cluster()->StartDaemon("coordinator"));
  // A client of its own: the other one backs off.
  std::unique_ptr<Client> fresh;
  for (;;) {
    if (MonotonicNanos() - start > kPatience) {
      return DeadlineExceeded("the cluster is not back after 60 s");
    }
    auto connected = Client::Connect(bench->cluster()->client_options());
    if (connected.ok() && AllReady(connected->get())) {
      fresh = *std::move(connected);
      break;
    }
    Pause();
  }
  auto after = Pids(fresh.get());
  while (after.size() < before.size()) {
    if (MonotonicNanos() - start > kPatience) {
      return DeadlineExceeded("{} of {} tasks are known after 60 s",
                              after.size(), before.size());
    }
    Pause();
    after = Pids(fresh.get());
  }
  const double took = static_cast<double>(MonotonicNanos() - start) / 1e9;
  if (after != before) return Internal("a task's pid has changed");
  return took;
}

StatusOr<double> Slurm(SlurmPeer* slurm) {
  const pid_t controller = slurm->controller();
  if (controller <= 0 || kill(controller, SIGKILL) != 0) {
    return Internal("slurmctld does not run");
  }
  while (kill(controller, 0) == 0) Pause();
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(RunProgram({"slurmctld"}, slurm->environment()));
  for (;;) {
    const auto queue =
        OutputOf({"squeue", "--noheader", "--states=RUNNING", "--format=%j"},
                 slurm->environment());
    if (queue.ok() && queue->find("sleep") != std::string::npos) break;
    if (MonotonicNanos() - start > kPatience) {
      return DeadlineExceeded("slurmctld does not show its job after 60 s");
    }
    Pause();
  }
  return static_cast<double>(MonotonicNanos() - start) / 1e9;
}

constexpr char kStepsJob[] = "steps";
constexpr auto kStepWindow = std::chrono::seconds(3);

int64_t Committed(LocalCluster* cluster) {
  const std::string path = cluster->layout().DaemonDir("worker-0") + "/tasks/" +
                           kStepsJob + ".g1/rank-0/work/.lockstep-page";
  std::string error;
  const auto reader = task::PageReader::Open(path, &error);
  task::RankPage page;
  if (!reader ||
      reader->ReadLast(&page, &error) != task::PageReader::Result::kOk) {
    return -1;
  }
  return page.progress.last_committed;
}

StatusOr<double> SecondsPerStep(LocalCluster* cluster) {
  const int64_t first = Committed(cluster);
  const int64_t start = MonotonicNanos();
  std::this_thread::sleep_for(kStepWindow);
  const int64_t last = Committed(cluster);
  const double took = static_cast<double>(MonotonicNanos() - start) / 1e9;
  if (first < 0 || last <= first) return Internal("the job does not step");
  return took / static_cast<double>(last - first);
}

// The coordinator is there again at the end.
StatusOr<BenchResult> Steps(BenchCluster* bench) {
  v1::JobSpec spec =
      BenchCluster::Program(kStepsJob, 2, 1,
                            {BinDir() + "/../tests/step_program", "--steps",
                             "1000000", "--step_ms", "2"});
  spec.set_kind(v1::JOB_KIND_NATIVE);
  LOCKSTEP_RETURN_IF_ERROR(bench->client()->SubmitJob(spec).status());
  const int64_t start = MonotonicNanos();
  while (Committed(bench->cluster()) < 100) {
    if (MonotonicNanos() - start > kPatience) {
      return DeadlineExceeded("no 100 steps after 60 s");
    }
    Pause();
  }
  BenchResult result;
  result.id = "R4-steps";
  result.ranks = 2;
  result.peer = "the same job while the coordinator is there";
  for (int round = 0; round < kRounds; ++round) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double with,
                              SecondsPerStep(bench->cluster()));
    LOCKSTEP_RETURN_IF_ERROR(bench->cluster()->Kill("coordinator", SIGKILL));
    LOCKSTEP_ASSIGN_OR_RETURN(const double without,
                              SecondsPerStep(bench->cluster()));
    LOCKSTEP_RETURN_IF_ERROR(bench->cluster()->StartDaemon("coordinator"));
    LOCKSTEP_RETURN_IF_ERROR(bench->cluster()->WaitReady());
    if (round == 0) continue;
    result.ours_seconds.push_back({without});
    result.peer_seconds.push_back({with});
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job,
                            bench->client()->GetJob(kStepsJob));
  result.verified =
      job.state() == v1::JOB_STATE_RUNNING && job.generation() == 1;
  LOCKSTEP_RETURN_IF_ERROR(bench->client()->CancelJob(kStepsJob).status());
  LOCKSTEP_RETURN_IF_ERROR(
      bench->client()
          ->WaitJob(kStepsJob, std::chrono::seconds(60), nullptr)
          .status());
  return result;
}

Status Run(const std::string& json) {
  LocalClusterOptions options;
  options.workers = 2;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto ours, BenchCluster::Start(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto slurm, SlurmPeer::Start());
  LOCKSTEP_ASSIGN_OR_RETURN(const BenchResult steps, Steps(ours.get()));
  for (int i = 0; i < kJobs; ++i) {
    const auto spec =
        BenchCluster::Program("sleep" + std::to_string(i), kTasksPerJob, 0.005,
                              {"/bin/sleep", "3600"});
    LOCKSTEP_RETURN_IF_ERROR(ours->client()->SubmitJob(spec).status());
  }
  const int64_t start = MonotonicNanos();
  while (Pids(ours->client()).size() < kJobs * kTasksPerJob) {
    if (MonotonicNanos() - start > kPatience) {
      return DeadlineExceeded("200 tasks do not run after 60 s");
    }
    Pause();
  }
  LOCKSTEP_RETURN_IF_ERROR(
      RunProgram({"sbatch", "--quiet", "-n64", "--job-name=sleep",
                  "--output=/dev/null", "--wrap=srun -O -n200 sleep 3600"},
                 slurm->environment()));
  BenchResult result;
  result.id = "R4";
  result.ranks = kJobs * kTasksPerJob;
  result.peer = slurm->version() + " slurmctld, 200 tasks of one job";
  result.verified = true;
  for (int round = 0; round < kRounds; ++round) {
    LOCKSTEP_ASSIGN_OR_RETURN(const double a, Ours(ours.get()));
    LOCKSTEP_ASSIGN_OR_RETURN(const double b, Slurm(slurm.get()));
    if (round == 0) continue;
    result.ours_seconds.push_back({a});
    result.peer_seconds.push_back({b});
  }
  LOCKSTEP_RETURN_IF_ERROR(
      RunProgram({"scancel", "--name=sleep"}, slurm->environment()));
  PrintResults({result, steps});
  if (json.empty()) return OkStatus();
  return AddToJson(json, {{"slurm", slurm->version()}}, {result, steps});
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  return lockstep::BenchMain(lockstep::Run(flags.json));
}
