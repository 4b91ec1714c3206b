// S1, S2 and M1: models in one host, against peers or themselves.
#include <algorithm>
#include <filesystem>

#include "tests/bench/memory_ceiling.h"
#include "tests/bench/step_run.h"

namespace lockstep {
namespace {

// ResNet-50's gradients.
constexpr size_t kResnet50Bytes = size_t{25557032} * sizeof(float);

// Normalised over four samples its gradients are ill-conditioned: float32's are
// within 0.01 to 0.06 of float64's on either side, and two runs that differ in
// the last bit part the sooner the larger their steps: at 1e-7 by 0.6 % of the
// loss in 150 of them.
constexpr StepTolerance kResnet50Tolerance = {.error = 0.2, .loss = 5e-3};
constexpr char kResnet50Rate[] = "2e-8";

constexpr char kPypiDdp[] = "PyPI's torch DDP, gloo";

// PyPI's, where it is there: told beside, nothing is held against it.
bool HavePypi() { return std::filesystem::exists(FrameworkPython("torch")); }

// Of each step with all gradients and the one beside it with 4 bytes.
std::vector<std::vector<double>> Differences(const RoundSamples& gradients,
                                             const RoundSamples& word) {
  std::vector<std::vector<double>> differences;
  for (size_t round = 0; round < gradients.size(); ++round) {
    std::vector<double>& of_round = differences.emplace_back();
    for (size_t i = 0; i < gradients[round].size(); ++i) {
      // Of noise it may be below nothing.
      of_round.push_back(
          std::max(gradients[round][i].seconds - word[round][i].seconds, 1e-5));
    }
  }
  return differences;
}

}  // namespace

// Four samples of a rank, not sixteen: what it is about is 2 %, of a machine
// whose speed changes within a second, and short steps are nearer to each
// other. Communication, as much, is four times as large a part of them.
Status RunS1(const StepSettings& settings, StepReport* report) {
  return AgainstPeers(
      OurSteps("cnn", "shm", {"--batch", "4"}),
      {{"S1", "itself, 4 samples a rank, with one 4-byte all-reduce a step",
        nullptr, 0.98, 1.0}},
      // Step by step: both kinds are of one process, and leave the same behind.
      {.rounds = 21, .turns = {.samples = 8, .turns = 2, .settles = false}},
      settings, report);
}

Status RunM1(const StepSettings& settings, StepReport* report) {
  std::vector<StepPeer> peers = {
      {"M1-ddp-default", fmt::format("{}, as it comes", GatingDdp()),
       DdpSteps("shallow", {"--mode", "default"}, false), 1.7, 2.2},
      {"M1-ddp-best", fmt::format("{}, {}", GatingDdp(), kBestDdp),
       DdpSteps("shallow", {"--mode", "best"}), 1.35, 1.7},
      {"M1-mwms", "TensorFlow MultiWorkerMirroredStrategy, as it comes",
       MwmsSteps(false), 2.7, 3.5},
      {"M1-mwms-best",
       "TensorFlow MultiWorkerMirroredStrategy, one thread of each kind, "
       "pinned, malloc keeps memory",
       MwmsSteps(true), 0, 0}};
  if (HavePypi()) {
    peers.push_back({"M1-pypi-best", fmt::format("{}, {}", kPypiDdp, kBestDdp),
                     DdpSteps("shallow", {"--mode", "best"}, true,
                              FrameworkPython("torch")),
                     0, 0});
  }
  return AgainstPeers(OurSteps("shallow", "shm"), peers,
                      {.turns = {.steps = 30}}, settings, report);
}

Status RunS2(const StepSettings& settings, StepReport* report) {
  const std::vector<std::string> rate = {"--rate", kResnet50Rate};
  const std::vector<std::string> best = {"--mode", "best", rate[0], rate[1]};
  std::vector<SideEntry> sides;
  const auto add = [&](const std::string& name, const Command& command,
                       bool with_word) {
    sides.push_back({std::make_unique<Side>(name, command), with_word});
  };
  add("lockstep", Exporting(OurSteps("resnet50", "shm", rate)), true);
  add(fmt::format("{}, {}", GatingDdp(), kBestDdp), DdpSteps("resnet50", best),
      true);
  if (HavePypi()) {
    add(fmt::format("{}, {}", kPypiDdp, kBestDdp),
        DdpSteps("resnet50", best, true, FrameworkPython("torch")), false);
  }
  std::vector<std::string> names;
  for (const SideEntry& entry : sides) names.push_back(entry.side->name());
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Rounds run,
      RunSides(&sides, PlanOf(settings, {.turns = {.samples = 4}}), report,
               kResnet50Tolerance));
  const auto against = [&](const std::string& id, size_t side, double must,
                           double aim) {
    if (run.samples[side].empty()) return;
    BenchResult result = StepResultOf(
        id, names[side], Column(run.samples[0], &Sample::seconds),
        Column(run.samples[side], &Sample::seconds), run, side, must, aim);
    LimitByWord(run.word[0], &result);
    report->results.push_back(std::move(result));
  };
  against("S2", 1, 1.15, 1.4);
  if (sides.size() > 2) against("S2-pypi", 2, 0, 0);
  if (run.samples[1].empty()) return OkStatus();
  BenchResult cost = StepResultOf(
      "S2-cost", "what communication adds to a step of " + names[1],
      Differences(run.samples[0], run.word[0]),
      Differences(run.samples[1], run.word[1]), run, 1, 4, 0);
  cost.by_turns = true;
  cost.limit_seconds = InPlaceLimit(kStepRanks, kResnet50Bytes);
  cost.limit_what =
      "both ranks' gradients read once and written once, at the rate of q += p "
      "in this run";
  report->results.push_back(std::move(cost));
  return OkStatus();
}

}  // namespace lockstep
