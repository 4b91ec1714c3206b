// F1: from submission in AI Platform's words to the first instruction of both
// ranks of a gang, beside the same through SubmitJob.
//
// A coordinator and two worker daemons, mTLS on, the store on disk. The
// package is stored already and on both nodes; the site's interpreter is a
// static program whose first act is to read the clock (front_door.h). All by
// turns, in an order that turns too; the first round is dropped.
//   F1          Client::SubmitTraining, beside SubmitJob of a plain command
//   F1-same     the same, beside SubmitJob of the very spec that it becomes
//   F1-check    with an interpreter that is asked for the module before, as
//               CPython is: what that question costs
//   F1-command  `lockstep jobs submit training`, beside `lockstep submit`
#include <sys/stat.h>

#include <thread>

#include "common/base/file.h"
#include "tests/bench/front_door.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

constexpr int kRounds = 8;
constexpr int kSamples = 10;
constexpr int kRanks = 2;

enum Side { kTraining, kPlain, kSpec, kCheck, kCommand, kPlainCommand, kSides };

class Bench {
 public:
  Status Run(const std::string& json);

 private:
  Status Prepare();
  // Submits job `name` whose ranks write to `slot` and the next.
  Status Submit(Side side, const std::string& name, int slot);
  StatusOr<double> Sample(Side side);
  std::vector<std::string> Command(Side side, const std::string& name,
                                   int slot) const;

  BenchDir dir_;
  Board board_{dir_.path() + "/board",
               (kRounds * kSamples * kSides + 1) * kRanks};
  std::unique_ptr<BenchCluster> ours_;
  std::string folder_;
  v1::Package package_;
  v1::JobSpec spec_;  // What a TrainingJob becomes.
  int next_slot_ = 0;
  int next_job_ = 0;

  std::vector<std::string> Words(int slot) const {
    return {board_.path(), std::to_string(slot)};
  }
};

Status Bench::Prepare() {
  LocalClusterOptions options;
  options.workers = 2;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(ours_, BenchCluster::Start(options));
  const std::string probe = BenchProgram("launch_probe");
  // Named as an interpreter is, so that it is asked whether it finds the
  // module, which CPython answers.
  const std::string checking = dir_.path() + "/python3";
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
      checking, "#!/bin/sh\n[ \"$1\" = -m ] && exec " + probe +
                    " \"$@\"\nexec /usr/bin/python3 \"$@\"\n"));
  if (chmod(checking.c_str(), 0755) != 0) return Internal("chmod {}", checking);
  LOCKSTEP_RETURN_IF_ERROR(
      UseBenchSite(ours_.get(), 1, {{"probe", probe}, {"checking", checking}}));
  LOCKSTEP_ASSIGN_OR_RETURN(folder_, WriteTrainer(dir_.path()));
  PackOptions pack;
  pack.prefix = "trainer";
  LOCKSTEP_ASSIGN_OR_RETURN(const PackedPackage packed,
                            PackFolder(folder_, pack));
  LOCKSTEP_RETURN_IF_ERROR(Upload(ours_->client(), packed));
  package_ = PackageMessage(packed);
  // The first brings the package to both nodes.
  LOCKSTEP_RETURN_IF_ERROR(Sample(kTraining).status());
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, ours_->client()->GetJob("f1"));
  spec_ = job.spec();
  return OkStatus();
}

std::vector<std::string> Bench::Command(Side side, const std::string& name,
                                        int slot) const {
  std::vector<std::string> argv = {BinDir() + "/lockstep"};
  const auto add = [&](const std::vector<std::string>& words) {
    argv.insert(argv.end(), words.begin(), words.end());
  };
  if (side == kCommand) {
    add({"jobs", "submit", "training", name, "--scale-tier", "custom",
         "--master-machine-type", "bench", "--worker-machine-type", "bench",
         "--worker-count", "1", "--package-path", folder_, "--module-name",
         "trainer.task", "--runtime", "probe", "--"});
  } else {
    add({"submit", "--detach", "--name", name, "--tasks", "2", "--cpus", "1",
         "--", BenchProgram("launch_probe")});
  }
  add(Words(slot));
  return argv;
}

Status Bench::Submit(Side side, const std::string& name, int slot) {
  Client* const client = ours_->client();
  switch (side) {
    case kTraining:
    case kCheck:
      return client
          ->SubmitTraining(BenchTraining(name, package_,
                                         side == kCheck ? "checking" : "probe",
                                         kRanks - 1, Words(slot)),
                           {package_})
          .status();
    case kPlain: {
      std::vector<std::string> argv = Words(slot);
      argv.insert(argv.begin(), BenchProgram("launch_probe"));
      return client
          ->SubmitJob(BenchCluster::Program(name, kRanks, 1, std::move(argv)))
          .status();
    }
    case kSpec: {
      v1::JobSpec spec = spec_;
      spec.set_name(name);
      const auto put = [&](auto* argv) {
        if (argv->empty()) return;
        argv->RemoveLast();
        argv->Add(std::to_string(slot));
      };
      put(spec.mutable_argv());
      for (v1::RoleSpec& role : *spec.mutable_roles()) put(role.mutable_argv());
      return client->SubmitJob(spec).status();
    }
    default:
      return RunProgram(Command(side, name, slot), ours_->environment());
  }
}

StatusOr<double> Bench::Sample(Side side) {
  const int slot = std::exchange(next_slot_, next_slot_ + kRanks);
  const std::string name = "f" + std::to_string(++next_job_);
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(Submit(side, name, slot));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t last, board_.WaitAll(slot, kRanks));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const v1::Job job,
      ours_->client()->WaitJob(name, std::chrono::seconds(30), nullptr));
  if (job.state() != v1::JOB_STATE_SUCCEEDED) {
    return Internal("{}: {}", name, job.cause().message());
  }
  return static_cast<double>(last - start) / 1e9;
}

Status Bench::Run(const std::string& json) {
  LOCKSTEP_RETURN_IF_ERROR(Prepare());
  std::vector<std::vector<double>> times[kSides];
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> samples[kSides];
    for (int i = 0; i < kSamples; ++i) {
      for (int turn = 0; turn < kSides; ++turn) {
        const auto side = static_cast<Side>((turn + i) % kSides);
        LOCKSTEP_ASSIGN_OR_RETURN(samples[side].emplace_back(), Sample(side));
      }
    }
    if (round == 0) continue;
    for (int side = 0; side < kSides; ++side) {
      times[side].push_back(samples[side]);
    }
  }
  const auto result = [&](const char* id, Side ours, const char* peer,
                          Side theirs) {
    return BenchResult{id, 0, kRanks, peer, times[ours], times[theirs], true};
  };
  const std::vector<BenchResult> results = {
      result("F1", kTraining, "SubmitJob of a plain command", kPlain),
      result("F1-same", kTraining, "SubmitJob of the same spec", kSpec),
      result("F1-check", kCheck, "the same without that question", kTraining),
      result("F1-command", kCommand, "lockstep submit --detach",
             kPlainCommand)};
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
