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
// within 0.01 to 0.06 of float64's on either side. In steps 100 times as large
// two runs that differ in the last bit part within ten of them.
constexpr StepTolerance kResnet50Tolerance = {.error = 0.2, .loss = 5e-3};
constexpr char kResnet50Rate[] = "1e-7";

constexpr char kPypiDdp[] = "PyPI's torch DDP, gloo";

// PyPI's, where it is there: told beside, nothing is held against it.
bool HavePypi() { return std::filesystem::exists(FrameworkPython("torch")); }

std::vector<std::vector<double>> Differences(
    const std::vector<Sample>& with, const std::vector<Sample>& without) {
  std::vector<std::vector<double>> differences;
  for (size_t i = 0; i < with.size(); ++i) {
    // Of noise it may be below nothing.
    differences.push_back(
        {std::max(with[i].seconds - without[i].seconds, 1e-5)});
  }
  return differences;
}

}  // namespace

Status RunS1(const StepSettings& settings, StepReport* report) {
  StepSettings own = settings;
  // More: what it is about is 2 %.
  if (own.rounds == 0) own.rounds = 61;
  return AgainstPeers(OurSteps("cnn", "shm"),
                      OurSteps("cnn", "shm", {"--barrier"}),
                      {{"S1", "the same with one 4-byte all-reduce a step",
                        nullptr, 0.98, 1.0}},
                      settings.steps > 0 ? settings.steps : 3, own, report);
}

Status RunM1(const StepSettings& settings, StepReport* report) {
  std::vector<StepPeer> peers = {
      {"M1-ddp-default", fmt::format("{}, as it comes", kDebianDdp),
       DdpSteps("shallow", {"--mode", "default"}, false), 1.7, 2.2},
      {"M1-ddp-best", fmt::format("{}, {}", kDebianDdp, kBestDdp),
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
  return AgainstPeers(
      OurSteps("shallow", "shm"), OurSteps("shallow", "shm", {"--barrier"}),
      peers, settings.steps > 0 ? settings.steps : 30, settings, report);
}

Status RunS2(const StepSettings& settings, StepReport* report) {
  const std::vector<std::string> rate = {"--rate", kResnet50Rate};
  std::vector<SideEntry> sides;
  const auto add = [&](const std::string& name, const Command& command,
                       SideKind kind) {
    sides.push_back({std::make_unique<Side>(name, command), kind});
  };
  add("lockstep", Exporting(OurSteps("resnet50", "shm", rate)),
      SideKind::kOurs);
  add(fmt::format("{}, {}", kDebianDdp, kBestDdp),
      DdpSteps("resnet50", {"--mode", "best", rate[0], rate[1]}),
      SideKind::kPeer);
  add("ours without",
      OurSteps("resnet50", "shm", {"--barrier", rate[0], rate[1]}),
      SideKind::kWithout);
  add("DDP without",
      DdpSteps("resnet50", {"--mode", "barrier", rate[0], rate[1]}),
      SideKind::kWithout);
  if (HavePypi()) {
    add(fmt::format("{}, {}", kPypiDdp, kBestDdp),
        DdpSteps("resnet50", {"--mode", "best", rate[0], rate[1]}, true,
                 FrameworkPython("torch")),
        SideKind::kPeer);
  }
  std::vector<std::string> names;
  for (const SideEntry& entry : sides) names.push_back(entry.side->name());
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Rounds run,
      RunSides(&sides, settings.steps > 0 ? settings.steps : 2,
               settings.rounds > 0 ? settings.rounds : kStepRounds,
               settings.on_busy, report, kResnet50Tolerance));
  const auto against = [&](const std::string& id, size_t side, double must,
                           double aim) {
    if (run.samples[side].empty()) return;
    BenchResult result = StepResultOf(
        id, names[side], Column(run.samples[0], &Sample::seconds),
        Column(run.samples[side], &Sample::seconds), run, side, must, aim);
    if (!run.samples[2].empty()) LimitByWithout(run.samples[2], &result);
    report->results.push_back(std::move(result));
  };
  against("S2", 1, 1.15, 1.4);
  if (sides.size() > 4) against("S2-pypi", 4, 0, 0);
  if (run.samples[1].empty() || run.samples[2].empty() ||
      run.samples[3].empty()) {
    return OkStatus();
  }
  BenchResult cost = StepResultOf(
      "S2-cost", "what communication adds to a step of " + names[1],
      Differences(run.samples[0], run.samples[2]),
      Differences(run.samples[1], run.samples[3]), run, 1, 4, 0);
  cost.limit_seconds = InPlaceLimit(kStepRanks, kResnet50Bytes);
  cost.limit_what =
      "both ranks' gradients read once and written once, at the rate of q += p "
      "in this run";
  report->results.push_back(std::move(cost));
  return OkStatus();
}

}  // namespace lockstep
