// Q1, F2 and F4: many small jobs, and a large package.
#include <fmt/ranges.h>
#include <unistd.h>

#include <atomic>
#include <latch>
#include <set>
#include <thread>

#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "tests/bench/cluster_rows.h"

namespace lockstep {
namespace {

constexpr int kJobs = 1000;
constexpr int kConnections = 4;
constexpr double kCpusPerJob = 1.0 / 32;

using Submit = std::function<Status(cli::Client*, const std::string& name)>;

// Watches until all jobs PREFIX... are final; `end` is the time of the last
// one. Counts `watches` down once every change is seen as it comes, or never
// will be. A watch's versions are the store's commits.
Status AwaitAllEnded(BenchCluster* bench, const std::string& prefix,
                     std::latch* watches, int64_t* end, cli::StopToken* stop) {
  std::set<std::string> ended;
  std::string bad;
  bool synced = false;
  const auto note_synced = [&] {
    if (!std::exchange(synced, true)) watches->count_down();
  };
  const Status status = bench->client()->WatchJobs(
      {},
      [&](const v1::WatchJobsResponse& message) {
        if (message.event_case() == v1::WatchJobsResponse::kSynced) {
          note_synced();
        }
        const v1::Job& job = message.job();
        if (!message.has_job() || job.name().rfind(prefix, 0) != 0 ||
            !cli::IsFinalState(job.state()) ||
            !ended.insert(job.name()).second) {
          return true;
        }
        if (job.state() != v1::JOB_STATE_SUCCEEDED) {
          bad = job.name() + ": " + job.cause().message();
        }
        *end = MonotonicNanos();
        return ended.size() < kJobs;
      },
      stop);
  note_synced();
  LOCKSTEP_RETURN_IF_ERROR(status);
  return bad.empty() ? OkStatus() : Internal("{}", bad);
}

// Four connections submit kJobs jobs. Seconds until the last one's final state.
StatusOr<double> RunManyJobs(BenchCluster* bench, const Submit& submit) {
  static std::atomic<int> runs = 0;
  const std::string prefix = fmt::format("many{}-", runs++);
  std::vector<std::unique_ptr<cli::Client>> clients;
  for (int i = 0; i < kConnections; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        clients.emplace_back(),
        cli::Client::Connect(bench->cluster()->client_options()));
    // Connected before the clock starts.
    LOCKSTEP_RETURN_IF_ERROR(clients.back()->ListNodes().status());
  }
  Mutex mu;
  Status failed;  // The first.
  std::atomic<bool> stopped{false};
  cli::StopToken stop;
  const auto note = [&](const Status& status) {
    if (status.ok()) return;
    const MutexLock lock(&mu);
    if (failed.ok()) failed = status;
    stopped = true;
    stop.Stop();
  };
  int64_t end = 0;
  std::latch watches(1);
  std::vector<std::thread> threads;
  threads.emplace_back(
      [&] { note(AwaitAllEnded(bench, prefix, &watches, &end, &stop)); });
  // Reading the jobs of earlier rounds is no part of it, and a watch that has
  // them behind it keeps up with the changes.
  watches.wait();
  const int64_t start = MonotonicNanos();
  for (int c = 0; c < kConnections; ++c) {
    threads.emplace_back([&, c] {
      for (int i = c; i < kJobs && !stopped; i += kConnections) {
        note(submit(clients[c].get(), prefix + std::to_string(i)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  LOCKSTEP_RETURN_IF_ERROR(failed);
  return static_cast<double>(end - start) / 1e9;
}

// With the rate of each.
Sampler ManyJobs(RowRun* run, const char* name, Submit submit) {
  return [=]() -> StatusOr<double> {
    LOCKSTEP_ASSIGN_OR_RETURN(const double took,
                              RunManyJobs(run->ours.get(), submit));
    fmt::print("{} {:.2f} s ({:.0f} jobs/s)\n", name, took, kJobs / took);
    return took;
  };
}

Status SubmitTrue(cli::Client* client, const std::string& name) {
  return client
      ->SubmitJob(BenchCluster::Program(name, 1, kCpusPerJob, {"/bin/true"}))
      .status();
}

}  // namespace

Status RunQ1(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(run->StartBoth(2));
  Sampler array;
  if (run->slurm) {
    array = Timed([run] {
      return run->slurm->Run({"sbatch", "--quiet", "--wait",
                              "--array=1-" + std::to_string(kJobs),
                              "--output=/dev/null", "--wrap=exec /bin/true"});
    });
  }
  return run->Compare(3, 1, {ManyJobs(run, "ours", SubmitTrue), array},
                      {{"Q1", run->Slurm("sbatch --array=1-1000"), 0, 1, 1}});
}

Status RunF2(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(
      run->Start(2, SiteTable(kCpusPerJob, {{"true", "/bin/true"}})));
  BenchCluster* const ours = run->ours.get();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string folder,
                            WriteTrainer(run->dir.path()));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Package package,
                            ours->UploadTrainer(folder));
  const Submit training = [&](cli::Client* client, const std::string& name) {
    return SubmitTraining(client, name, package, "true", 0, {});
  };
  LOCKSTEP_RETURN_IF_ERROR(training(ours->client(), "first"));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job first, ours->AwaitSuccess("first"));
  const Submit same = [&](cli::Client* client, const std::string& name) {
    v1::JobSpec spec = first.spec();
    spec.set_name(name);
    return client->SubmitJob(spec).status();
  };
  return run->Compare(
      4, 1,
      {ManyJobs(run, "training", training), ManyJobs(run, "plain", SubmitTrue),
       ManyJobs(run, "spec", same)},
      {{"F2", "SubmitJob of a plain /bin/true", 0, 1, 1},
       {"F2-same", "SubmitJob of the same spec", 0, 2, 1}});
}

namespace {

constexpr uint64_t kPackageBytes = 200'000'000;
constexpr int kPackageRanks = 2;

Status WriteRandom(const std::string& path) {
  LOCKSTEP_RETURN_IF_ERROR(
      RealFileSystem()->WriteAtomic(path, RandomBytes(kPackageBytes)));
  // What the last round and this one wrote is no part of either side.
  sync();
  return OkStatus();
}

// Where the time on the nodes went.
void PrintParts(const v1::Job& job) {
  if (job.attempts().empty()) return;
  for (const v1::TaskStatus& task : job.attempts(0).tasks()) {
    Words parts;
    for (const v1::PhaseDuration& part : task.preparation().parts()) {
      parts.push_back(
          fmt::format("{} {:.0f} ms", part.phase(),
                      1e3 * static_cast<double>(part.duration().seconds()) +
                          1e-6 * static_cast<double>(part.duration().nanos())));
    }
    fmt::print("  {}: {}\n", task.node(), fmt::join(parts, ", "));
  }
}

// Of new bytes; `pack` becomes what of the time packing took.
StatusOr<double> FolderToRanks(RowRun* run, const std::string& folder,
                               double* pack) {
  int64_t start = MonotonicNanos();
  LOCKSTEP_ASSIGN_OR_RETURN(const cli::PackedPackage packed,
                            PackTrainer(folder));
  *pack = SecondsSince(start);
  start = MonotonicNanos();
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Package package,
                            run->ours->Upload(packed));
  const double upload = SecondsSince(start);
  const int slot = run->board.Take(kPackageRanks);
  const std::string name = "big" + std::to_string(slot);
  LOCKSTEP_RETURN_IF_ERROR(SubmitTraining(run->ours->client(), name, package,
                                          "probe", kPackageRanks - 1,
                                          run->board.Arguments(slot)));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const double sent, run->board.SecondsUntil(start, slot, kPackageRanks));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, run->ours->AwaitSuccess(name));
  fmt::print(
      "packed in {:.2f} s, uploaded in {:.2f} s, running {:.2f} s after that; "
      "{:.0f} MB/s to both nodes together\n",
      *pack, upload, sent - upload,
      kPackageRanks * kPackageBytes / 1e6 / (*pack + sent));
  PrintParts(job);
  return *pack + sent;
}

StatusOr<double> CopyAndSum(const std::string& from, const std::string& to) {
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(RunProgram({"cp", from, to}, CurrentEnvironment()));
  LOCKSTEP_RETURN_IF_ERROR(RunProgram({"sha256sum", to}, CurrentEnvironment()));
  const double took = SecondsSince(start);
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->RemoveAll(to));
  return took;
}

}  // namespace

Status RunF4(RowRun* run) {
  LOCKSTEP_RETURN_IF_ERROR(
      run->Start(2, SiteTable(1, {{"probe", BenchProgram("task_probe")}})));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string folder,
                            WriteTrainer(run->dir.path()));
  const std::string data = folder + "/data.bin";
  std::vector<double> sent;
  const Sampler from_folder = [&]() -> StatusOr<double> {
    LOCKSTEP_RETURN_IF_ERROR(WriteRandom(data));
    double pack = 0;
    LOCKSTEP_ASSIGN_OR_RETURN(const double all,
                              FolderToRanks(run, folder, &pack));
    sent.push_back(all - pack);
    return all;
  };
  const Sampler copy = [&]() -> StatusOr<double> {
    if (!RealFileSystem()->Exists(data)) {
      LOCKSTEP_RETURN_IF_ERROR(WriteRandom(data));
    }
    return CopyAndSum(data, run->dir.path() + "/copy");
  };
  const std::string peer = "cp and sha256sum of the same bytes";
  return run->Compare(6, 1, {from_folder, copy},
                      {{"F4", peer, 0, 1, kPackageRanks, kPackageBytes},
                       {"F4-sent", peer, 2, 1, kPackageRanks, kPackageBytes}},
                      &sent);
}

}  // namespace lockstep
