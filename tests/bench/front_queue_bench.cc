// F2: 1,000 jobs in AI Platform's words, each with a package that is stored
// already, from the first submission until the last one's final state is
// durable, beside the same through SubmitJob.
//
// As Q1: four connections, 1/32 of a core a job. The site's interpreter is
// /bin/true (front_door.h). By turns, in an order that turns too; the first
// round is dropped.
//   F2       Client::SubmitTraining, beside SubmitJob of a plain /bin/true
//   F2-same  the same, beside SubmitJob of the very spec that it becomes
#include "tests/bench/front_door.h"
#include "tests/bench/many_jobs.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

constexpr int kJobs = 1000;
constexpr int kRounds = 4;
constexpr double kCpusPerJob = 1.0 / 32;

enum Side { kTraining, kPlain, kSpec, kSides };
constexpr const char* kNames[kSides] = {"training", "plain", "spec"};

class Bench {
 public:
  Status Run(const std::string& json);

 private:
  Status Prepare();
  Status Submit(Side side, Client* client, const std::string& name) const;

  BenchDir dir_;
  std::unique_ptr<BenchCluster> ours_;
  v1::Package package_;
  v1::JobSpec spec_;
};

Status Bench::Prepare() {
  LocalClusterOptions options;
  options.workers = 2;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(ours_, BenchCluster::Start(options));
  LOCKSTEP_RETURN_IF_ERROR(
      UseBenchSite(ours_.get(), kCpusPerJob, {{"true", "/bin/true"}}));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string folder,
                            WriteTrainer(dir_.path()));
  PackOptions pack;
  pack.prefix = "trainer";
  LOCKSTEP_ASSIGN_OR_RETURN(const PackedPackage packed,
                            PackFolder(folder, pack));
  LOCKSTEP_RETURN_IF_ERROR(Upload(ours_->client(), packed));
  package_ = PackageMessage(packed);
  LOCKSTEP_RETURN_IF_ERROR(Submit(kTraining, ours_->client(), "first"));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const v1::Job job,
      ours_->client()->WaitJob("first", std::chrono::seconds(30), nullptr));
  spec_ = job.spec();
  return OkStatus();
}

Status Bench::Submit(Side side, Client* client, const std::string& name) const {
  if (side == kTraining) {
    return client
        ->SubmitTraining(BenchTraining(name, package_, "true", 0, {}),
                         {package_})
        .status();
  }
  v1::JobSpec spec = spec_;
  if (side == kPlain) {
    spec = BenchCluster::Program(name, 1, kCpusPerJob, {"/bin/true"});
  }
  spec.set_name(name);
  return client->SubmitJob(spec).status();
}

Status Bench::Run(const std::string& json) {
  LOCKSTEP_RETURN_IF_ERROR(Prepare());
  std::vector<std::vector<double>> times[kSides];
  for (int round = 0; round < kRounds; ++round) {
    for (int turn = 0; turn < kSides; ++turn) {
      const auto side = static_cast<Side>((turn + round) % kSides);
      LOCKSTEP_ASSIGN_OR_RETURN(
          const double took,
          RunManyJobs(ours_.get(), fmt::format("{}{}-", kNames[side], round),
                      kJobs, [&](Client* client, const std::string& name) {
                        return Submit(side, client, name);
                      }));
      fmt::print("round {}: {} {:.2f} s ({:.0f} jobs/s)\n", round, kNames[side],
                 took, kJobs / took);
      if (round > 0) times[side].push_back({took});
    }
  }
  const auto result = [&](const char* id, const char* peer, Side theirs) {
    return BenchResult{id, 0, 1, peer, times[kTraining], times[theirs], true};
  };
  const std::vector<BenchResult> results = {
      result("F2", "SubmitJob of a plain /bin/true", kPlain),
      result("F2-same", "SubmitJob of the same spec", kSpec)};
  PrintResults(results);
  if (json.empty()) return OkStatus();
  return AddToJson(json, {}, results);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  lockstep::Bench bench;
  return lockstep::BenchMain(bench.Run(flags.json));
}
