// R4, O2, O3 and O4: the daemons themselves.
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <signal.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "common/base/crc32c.h"
#include "common/base/file.h"
#include "tests/bench/cluster_rows.h"
#include "tests/support/http_client.h"
#include "worker/data/gzip.h"
#include "worker/task/rank_page.h"

namespace lockstep {
namespace {

namespace task = worker::task;

using cli::Client;
using cli::LocalCluster;

constexpr int kRestarts = 8;
constexpr int kSleepers = 10;
constexpr int kTasksPerJob = 20;
constexpr char kStepsJob[] = "steps";
constexpr auto kStepWindow = std::chrono::seconds(3);

// Pids by job and rank; fewer than all while something is not running.
std::map<std::pair<std::string, int>, int64_t> Pids(Client* client) {
  std::map<std::pair<std::string, int>, int64_t> pids;
  for (int i = 0; i < kSleepers; ++i) {
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
  return nodes.ok() && nodes->size() == 2 &&
         std::ranges::count(*nodes, v1::NODE_STATE_READY, &v1::Node::state) ==
             2;
}

bool ShowsJobs(Client* client) {
  const auto jobs = client->ListJobs();
  return jobs.ok() && std::ranges::count(*jobs, v1::JOB_STATE_RUNNING,
                                         &v1::Job::state) >= kSleepers;
}

// Until it shows the jobs; `ready` becomes until all is back.
StatusOr<double> RestartCoordinator(BenchCluster* bench, double* ready) {
  LocalCluster* const cluster = bench->cluster();
  const auto before = Pids(bench->client());
  LOCKSTEP_RETURN_IF_ERROR(cluster->Kill("coordinator", SIGKILL));
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(cluster->StartDaemon("coordinator"));
  const std::string address = cluster->grpc_address();
  LOCKSTEP_RETURN_IF_ERROR(
      AwaitListening(atoi(address.c_str() + address.rfind(':') + 1)));
  double shown = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      AwaitTrue("the cluster is not back", [&]() -> StatusOr<bool> {
        // A client of its own each time: one that was refused backs off.
        const auto client = Client::Connect(cluster->client_options());
        if (!client.ok()) return false;
        if (shown == 0 && ShowsJobs(client->get())) shown = SecondsSince(start);
        if (shown == 0 || !AllReady(client->get())) return false;
        const auto after = Pids(client->get());
        if (after.size() < before.size()) return false;
        *ready = SecondsSince(start);
        if (after != before) return Internal("a task's pid has changed");
        return true;
      }));
  return shown;
}

bool ShowsSleepers(SlurmPeer* slurm) {
  const auto queue = OutputOf({"squeue", "--noheader", "--states=RUNNING",
                               "--name=sleep", "--format=%j"},
                              slurm->environment());
  return queue.ok() && !queue->empty();
}

// slurmctld writes its jobs to disk seconds after it took them; a job that is
// younger when it is killed is lost.
Status AwaitSaved(SlurmPeer* slurm) {
  std::optional<int64_t> running_since;
  return AwaitTrue(
      "slurmctld has not saved its job",
      [&]() -> StatusOr<bool> {
        if (!running_since) {
          if (ShowsSleepers(slurm)) {
            running_since = ToUnixNanos(SystemClock().Now().wall);
          }
          return false;
        }
        const auto saved = RealFileSystem()->Stat(slurm->job_state_path());
        return saved.ok() && saved->mtime_unix_nanos > *running_since;
      },
      std::chrono::milliseconds(50));
}

StatusOr<double> RestartSlurmctld(SlurmPeer* slurm) {
  const pid_t controller = slurm->Pid("slurmctld");
  if (controller <= 0 || kill(controller, SIGKILL) != 0) {
    return Internal("slurmctld does not run");
  }
  LOCKSTEP_RETURN_IF_ERROR(AwaitTrue("slurmctld has not ended",
                                     [&] { return kill(controller, 0) != 0; }));
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(slurm->Run({"slurmctld"}));
  LOCKSTEP_RETURN_IF_ERROR(AwaitListening(slurm->control_port()));
  LOCKSTEP_RETURN_IF_ERROR(AwaitTrue("slurmctld does not show its job",
                                     [&] { return ShowsSleepers(slurm); }));
  return SecondsSince(start);
}

int64_t CommittedSteps(LocalCluster* cluster) {
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
  const int64_t first = CommittedSteps(cluster);
  const int64_t start = MonotonicNanos();
  std::this_thread::sleep_for(kStepWindow);
  const int64_t last = CommittedSteps(cluster);
  const double took = SecondsSince(start);
  if (first < 0 || last <= first) return Internal("the job does not step");
  return took / static_cast<double>(last - first);
}

// The coordinator is there again at the end.
Status MeasureSteps(RowRun* run) {
  LocalCluster* const cluster = run->ours->cluster();
  v1::JobSpec spec =
      BenchCluster::Program(kStepsJob, 2, 1,
                            {BinDir() + "/../tests/step_program", "--steps",
                             "1000000", "--step_ms", "2"});
  spec.set_kind(v1::JOB_KIND_NATIVE);
  LOCKSTEP_RETURN_IF_ERROR(run->ours->Submit(spec));
  LOCKSTEP_RETURN_IF_ERROR(AwaitTrue(
      "no 100 steps", [&] { return CommittedSteps(cluster) >= 100; }));
  const Sampler without = [&]() -> StatusOr<double> {
    LOCKSTEP_RETURN_IF_ERROR(cluster->Kill("coordinator", SIGKILL));
    LOCKSTEP_ASSIGN_OR_RETURN(const double seconds, SecondsPerStep(cluster));
    LOCKSTEP_RETURN_IF_ERROR(cluster->StartDaemon("coordinator"));
    LOCKSTEP_RETURN_IF_ERROR(cluster->WaitReady());
    return seconds;
  };
  LOCKSTEP_RETURN_IF_ERROR(run->Take(
      kRestarts, 1, {without, [&] { return SecondsPerStep(cluster); }}));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job,
                            run->ours->client()->GetJob(kStepsJob));
  bool verified = job.state() == v1::JOB_STATE_RUNNING && job.generation() == 1;
  run->Report({"R4-steps", "the same job while the coordinator is there", 0, 1,
               2, 0, &verified});
  return run->ours->CancelAndWait(kStepsJob);
}

}  // namespace

Status RunR4(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(run->StartBoth(2));
  LOCKSTEP_RETURN_IF_ERROR(MeasureSteps(run));
  Client* const client = run->ours->client();
  for (int i = 0; i < kSleepers; ++i) {
    const auto spec =
        BenchCluster::Program("sleep" + std::to_string(i), kTasksPerJob, 0.005,
                              {"/bin/sleep", "3600"});
    LOCKSTEP_RETURN_IF_ERROR(run->ours->Submit(spec));
  }
  LOCKSTEP_RETURN_IF_ERROR(AwaitTrue("200 tasks do not run", [&] {
    return Pids(client).size() >= kSleepers * kTasksPerJob;
  }));
  SlurmPeer* const slurm = run->slurm.get();
  Sampler peer;
  if (slurm != nullptr) {
    LOCKSTEP_RETURN_IF_ERROR(
        slurm->Run({"sbatch", "--quiet", "-n64", "--job-name=sleep",
                    "--output=/dev/null", "--wrap=srun -O -n200 sleep 3600"}));
    LOCKSTEP_RETURN_IF_ERROR(AwaitSaved(slurm));
    peer = [&] { return RestartSlurmctld(slurm); };
  }
  std::vector<double> ready;
  const Sampler restart = [&] {
    return RestartCoordinator(run->ours.get(), &ready.emplace_back());
  };
  const std::string name = run->Slurm("slurmctld, 200 tasks of one job");
  const int ranks = kSleepers * kTasksPerJob;
  LOCKSTEP_RETURN_IF_ERROR(run->Compare(
      kRestarts, 1, {restart, peer},
      {{"R4", name, 0, 1, ranks}, {"R4-ready", name, 2, 1, ranks}}, &ready));
  if (slurm == nullptr) return OkStatus();
  return slurm->Run({"scancel", "--name=sleep"});
}

namespace {

constexpr int kLiveJobs = 500;
constexpr int kScrapes = 40;

int64_t CountSeries(const std::string& text) {
  std::istringstream lines(text);
  int64_t series = 0;
  for (std::string line; std::getline(lines, line);) {
    series += !line.empty() && line[0] != '#';
  }
  return series;
}

// `headers`: with the cluster's token.
StatusOr<std::string> Scrape(const std::string& address,
                             const std::string& headers) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const HttpReply reply,
      HttpGet(address, "/metrics", headers + "Accept-Encoding: gzip\r\n"));
  if (reply.status != 200) {
    return Unavailable("/metrics answers {}", reply.status);
  }
  return worker::data::Gunzip(reply.body, "/metrics", 1 << 30);
}

}  // namespace

Status RunO2(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(run->Start(2));
  LocalCluster* const cluster = run->ours->cluster();
  // Most stay queued: a series set of a live job each.
  for (int i = 0; i < kLiveJobs; ++i) {
    const auto spec = BenchCluster::Program("job" + std::to_string(i), 2, 1,
                                            {"/bin/sleep", "3600"});
    LOCKSTEP_RETURN_IF_ERROR(run->ours->Submit(spec));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string address,
                            cluster->http_address("coordinator"));
  const std::string token = BearerHeader(cluster->http_token_file());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string first, Scrape(address, token));
  const int64_t series = CountSeries(first);
  prometheus::Registry registry;
  for (int64_t i = 0; i < series; ++i) {
    prometheus::BuildGauge()
        .Name("peer_gauge_" + std::to_string(i % 100))
        .Help("One of a hundred families.")
        .Register(registry)
        .Add({{"job_id", "job" + std::to_string(i)}, {"state", "running"}})
        .Set(static_cast<double>(i) / 3);
  }
  const auto serialize = [&] {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, registry.Collect());
    return std::move(out).str();
  };
  bool verified = series > 10 * kLiveJobs && CountSeries(serialize()) == series;
  const auto ours = Timed([&] { return Scrape(address, token).status(); });
  const auto theirs = Timed(
      [&] { return serialize().empty() ? Internal("no text") : OkStatus(); });
  return run->Compare(
      6, kScrapes, {ours, theirs},
      {{"O2",
        fmt::format("prometheus-cpp Collect and TextSerializer, {} gauges",
                    series),
        0, 1, 0, first.size(), &verified}});
}

namespace {

constexpr int64_t kLines = (int64_t{1} << 30) / 100;

struct SeenLines {
  int64_t lines = 0;
  uint32_t crc = 0;

  void Add(std::string_view text) {
    lines += std::count(text.begin(), text.end(), '\n');
    crc = ExtendCrc32c(crc, text.data(), text.size());
  }
  bool operator==(const SeenLines&) const = default;
};

Words LineWriter() {
  return {BenchProgram("task_probe"), "lines", std::to_string(kLines)};
}

// Until a follower has all of a job's lines.
Status FollowLines(BenchCluster* bench, SeenLines* seen) {
  static int jobs = 0;
  cli::LogOptions options;
  options.name = "lines" + std::to_string(jobs++);
  options.follow = true;
  options.timeout = std::chrono::seconds(300);
  LOCKSTEP_RETURN_IF_ERROR(
      bench->Submit(BenchCluster::Program(options.name, 1, 1, LineWriter())));
  return bench->client()->StreamLogs(
      options,
      [&](const v1::LogLine& line) {
        // Others are announcements.
        if (line.text().size() == 99) seen->Add(line.text() + "\n");
        return true;
      },
      nullptr);
}

}  // namespace

Status RunO3(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(run->StartBoth(1));
  SeenLines expected;
  for (int64_t i = 0; i < kLines; ++i) {
    expected.Add(fmt::format("{:015} {:x<83}\n", i, ""));
  }
  bool verified = true;
  const auto timed = [&](const char* who, const auto& follow) {
    return Timed([&, who, follow]() -> Status {
      SeenLines seen;
      LOCKSTEP_RETURN_IF_ERROR(follow(&seen));
      fmt::print("{}: {} of {} lines\n", who, seen.lines, kLines);
      verified &= seen == expected;
      return OkStatus();
    });
  };
  Sampler srun;
  if (run->slurm) {
    srun = timed("srun", [&](SeenLines* seen) {
      return RunProgram(Words{"srun", "--quiet", "-n1"} + LineWriter(),
                        run->slurm->environment(),
                        [&](std::string_view piece) { seen->Add(piece); });
    });
  }
  const auto ours = timed("ours", [&](SeenLines* seen) {
    return FollowLines(run->ours.get(), seen);
  });
  return run->Compare(
      3, 1, {ours, srun},
      {{"O3", run->Slurm("srun -n1"), 0, 1, 1, 1 << 30, &verified}});
}

namespace {

constexpr auto kRest = std::chrono::seconds(5);
constexpr auto kWindow = std::chrono::seconds(30);
// The clock tick of /proc: less cannot be told apart.
constexpr double kTick = 0.01;

struct Daemon {
  std::string name;
  pid_t pid;
  ProcessUse before = {};
};

}  // namespace

Status RunO4(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(run->StartBoth(1));
  std::vector<Daemon> daemons = {
      {"worker", run->ours->cluster()->Pid("worker-0")},
      {"coordinator", run->ours->cluster()->Pid("coordinator")}};
  if (run->slurm) {
    daemons.push_back({"slurmd", run->slurm->Pid("slurmd")});
    daemons.push_back({"slurmctld", run->slurm->Pid("slurmctld")});
  }
  // CPU time of each, then memory; without Slurm its daemons have no samples.
  run->sides.assign(8, {});
  std::this_thread::sleep_for(kRest);
  for (int round = 0; round < (run->rounds > 0 ? run->rounds : 3); ++round) {
    for (Daemon& daemon : daemons) {
      LOCKSTEP_ASSIGN_OR_RETURN(daemon.before, UseOf(daemon.pid));
    }
    std::this_thread::sleep_for(kWindow);
    for (size_t i = 0; i < daemons.size(); ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(const ProcessUse after, UseOf(daemons[i].pid));
      run->sides[i].push_back(
          {std::max(kTick, after.cpu_seconds - daemons[i].before.cpu_seconds)});
      run->sides[i + 4].push_back({after.resident_bytes});
    }
  }
  for (size_t i : {0, 1}) {
    const std::string peer = run->Slurm(i == 0 ? "slurmd" : "slurmctld");
    run->Report({"O4-cpu-" + daemons[i].name, peer, i, i + 2});
    run->Report({"O4-rss-" + daemons[i].name, peer + ", bytes", i + 4, i + 6, 0,
                 0, nullptr, "bytes"});
  }
  return OkStatus();
}

}  // namespace lockstep
