// R4: SIGKILL the coordinator while 200 tasks sleep, start it again at once,
// beside slurmctld with as many tasks. How long until
//   R4         it shows their jobs as running, as squeue does
//   R4-ready   both worker daemons are back too and every task's pid is known
//              and the same (the same peer: slurmctld does not wait for that)
// Slurm's job was saved before; one younger than 5 s is lost with slurmctld.
// R4-steps: seconds a step of a training job, without and with a coordinator.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <map>
#include <optional>
#include <thread>

#include "common/base/file.h"
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

void AwaitListening(int port, int64_t start) {
  while (!Listens(static_cast<uint16_t>(port)) &&
         MonotonicNanos() - start < kPatience) {
    Pause();
  }
}

struct Back {
  double shown = 0;
  double ready = 0;
};

bool ShowsJobs(Client* client) {
  const auto jobs = client->ListJobs();
  return jobs.ok() &&
         std::count_if(jobs->begin(), jobs->end(), [](const v1::Job& job) {
           return job.state() == v1::JOB_STATE_RUNNING;
         }) >= kJobs;
}

StatusOr<Back> Ours(BenchCluster* bench) {
  const auto before = Pids(bench->client());
  LOCKSTEP_RETURN_IF_ERROR(bench->cluster()->Kill("coordinator", SIGKILL));
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(bench->cluster()->StartDaemon("coordinator"));
  const auto passed = [&] {
    return static_cast<double>(MonotonicNanos() - start) / 1e9;
  };
  const std::string address = bench->cluster()->grpc_address();
  AwaitListening(atoi(address.c_str() + address.rfind(':') + 1), start);
  Back back;
  // A client of its own each time: one that was refused backs off.
  for (;;) {
    if (passed() > kPatience / 1e9) {
      return DeadlineExceeded("the cluster is not back after 60 s");
    }
    const auto client = Client::Connect(bench->cluster()->client_options());
    if (client.ok() && back.shown == 0 && ShowsJobs(client->get())) {
      back.shown = passed();
    }
    if (back.shown > 0 && AllReady(client->get())) {
      const auto after = Pids(client->get());
      if (after.size() >= before.size()) {
        back.ready = passed();
        if (after != before) return Internal("a task's pid has changed");
        return back;
      }
    }
    Pause();
  }
}

// slurmctld writes its jobs to disk seconds after it took them; one that is
// killed before has never heard of them.
Status WaitSaved(SlurmPeer* slurm) {
  const int64_t start = MonotonicNanos();
  std::string queue;
  std::optional<int64_t> running_since;
  for (;;) {
    if (MonotonicNanos() - start > kPatience) {
      return DeadlineExceeded("slurmctld has not saved its job after 60 s");
    }
    if (!running_since) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          queue, OutputOf({"squeue", "--noheader", "--states=RUNNING",
                           "--name=sleep", "--format=%j"},
                          slurm->environment()));
      if (!queue.empty()) running_since = ToUnixNanos(SystemClock().Now().wall);
    } else {
      const auto saved = RealFileSystem()->Stat(slurm->job_state_path());
      if (saved.ok() && saved->mtime_unix_nanos > *running_since) {
        return OkStatus();
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

StatusOr<double> Slurm(SlurmPeer* slurm) {
  const pid_t controller = slurm->controller();
  if (controller <= 0 || kill(controller, SIGKILL) != 0) {
    return Internal("slurmctld does not run");
  }
  while (kill(controller, 0) == 0) Pause();
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(RunProgram({"slurmctld"}, slurm->environment()));
  AwaitListening(slurm->control_port(), start);
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
  LOCKSTEP_RETURN_IF_ERROR(WaitSaved(slurm.get()));
  BenchResult result;
  result.id = "R4";
  result.ranks = kJobs * kTasksPerJob;
  result.peer = slurm->version() + " slurmctld, 200 tasks of one job";
  result.verified = true;
  BenchResult ready = result;
  ready.id = "R4-ready";
  for (int round = 0; round < kRounds; ++round) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Back a, Ours(ours.get()));
    LOCKSTEP_ASSIGN_OR_RETURN(const double b, Slurm(slurm.get()));
    if (round == 0) continue;
    result.ours_seconds.push_back({a.shown});
    result.peer_seconds.push_back({b});
    ready.ours_seconds.push_back({a.ready});
    ready.peer_seconds.push_back({b});
  }
  LOCKSTEP_RETURN_IF_ERROR(
      RunProgram({"scancel", "--name=sleep"}, slurm->environment()));
  PrintResults({result, ready, steps});
  if (json.empty()) return OkStatus();
  return AddToJson(json, {{"slurm", slurm->version()}}, {result, ready, steps});
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  return lockstep::BenchMain(lockstep::Run(flags.json));
}
