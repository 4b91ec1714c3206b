// S3: how much of the communication a step hides.
#include <unistd.h>

#include <cstdlib>

#include "tests/bench/step_run.h"

namespace lockstep {
namespace {

// Network namespaces whose line is shaped; gone with the object.
class Hosts {
 public:
  static StatusOr<std::unique_ptr<Hosts>> Make(const std::string& rate) {
    std::unique_ptr<Hosts> hosts(new Hosts);
    if (hosts->Call("up", rate) != 0) {
      return FailedPrecondition(
          "no network namespaces: it takes root, ip and tc");
    }
    return hosts;
  }
  ~Hosts() { Call("down", ""); }
  Command In(const Command& command) const {
    const std::string prefix = prefix_;
    return [=](int rank, const std::string& dir) {
      std::vector<std::string> words = {"ip", "netns", "exec",
                                        fmt::format("{}-{}", prefix, rank)};
      Append(&words, command(rank, dir));
      Append(&words, {"--address", fmt::format("10.99.0.{}", rank + 1)});
      return words;
    };
  }

 private:
  Hosts() : prefix_(fmt::format("lsb{}", getpid())) {}
  int Call(const std::string& what, const std::string& rate) const {
    return std::system(fmt::format("'{}/namespaces' {} {} {} {} 2>/dev/null",
                                   LOCKSTEP_BENCH_PEERS, what, prefix_,
                                   kStepRanks, rate)
                           .c_str());
  }
  const std::string prefix_;
};

}  // namespace

// Both columns are of ours: how much of one the other is.
Status RunS3(const StepSettings& settings, StepReport* report) {
  const RoundPlan plan = PlanOf(settings, {.turns = {.steps = 3}});
  const auto run_alone = [&](const Command& command) {
    std::vector<SideEntry> sides;
    sides.push_back({std::make_unique<Side>("lockstep", command)});
    return RunSides(&sides, plan, report);
  };
  if (auto hosts = Hosts::Make("2gbit"); hosts.ok()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Rounds run,
                              run_alone((*hosts)->In(OurSteps("cnn", "tcp"))));
    report->results.push_back(StepResultOf(
        "S3-tcp", "its own exposed time; the ratio is busy over exposed",
        Column(run.samples[0], &Sample::exposed),
        Column(run.samples[0], &Sample::busy), run, 0, 4, 10));
  } else {
    fmt::print("left out: S3 over TCP: {}\n", Message(hosts.status()));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Rounds run,
                            run_alone(OurSteps("cnn", "shm")));
  report->results.push_back(StepResultOf(
      "S3-shm", "its own exposed time; the ratio is the step over it",
      Column(run.samples[0], &Sample::exposed),
      Column(run.samples[0], &Sample::seconds), run, 0, 50, 100));
  return OkStatus();
}

}  // namespace lockstep
