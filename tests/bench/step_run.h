// What the step benchmarks have in common: who runs, and rounds of all by
// turns.
#ifndef LOCKSTEP_TESTS_BENCH_STEP_RUN_H_
#define LOCKSTEP_TESTS_BENCH_STEP_RUN_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "tests/bench/busy_rounds.h"
#include "tests/bench/report.h"
#include "tests/bench/step_side.h"

namespace lockstep {

struct StepSettings {
  // 0: the benchmark's own.
  int rounds = 0;  // the first one is dropped
  int steps = 0;
  OnBusy on_busy = OnBusy::kRepeat;
  std::string only;  // of peers those whose id has this in it
};

inline constexpr int kStepRounds = 16;

// What a run comes to.
struct StepReport {
  std::vector<BenchResult> results;
  // "NAME OF SIDE: torch" ...
  std::map<std::string, std::string> versions;
};

// The DDP that rows are held against: Debian's python3-torch, or what
// LOCKSTEP_BENCH_PYTHON_TORCH names.
std::string GatingDdp();
inline constexpr char kBestDdp[] =
    "bucket view, static graph, pinned, our settings of malloc and OpenBLAS";

// Commands of a rank. ----------------------------------------------------

// Puts `more` behind the words of a command.
void Append(std::vector<std::string>* to, const std::vector<std::string>& more);
Command OurSteps(const std::string& model, const std::string& backend,
                 const std::vector<std::string>& more = {});
// The same, and leaves its weights and batches for others.
Command Exporting(const Command& ours);
// `tuned`: pinned, and with our settings of malloc and OpenBLAS. `python`
// empty: Debian's, or LOCKSTEP_BENCH_PYTHON_TORCH.
Command DdpSteps(const std::string& model, const std::vector<std::string>& more,
                 bool tuned = true, const std::string& python = "");
// LOCKSTEP_FRAMEWORKS/`which`/bin/python.
std::string FrameworkPython(const std::string& which);
// TensorFlow. `tuned`: one thread for each kind of work, pinned, and our
// settings of malloc; else as TensorFlow comes.
Command MwmsSteps(bool tuned);

// Rounds. -----------------------------------------------------------------

// The samples of each round.
using RoundSamples = std::vector<std::vector<Sample>>;

// Of each side its samples, and whether what it computed was right; of sides
// that did not start, none.
struct Rounds {
  std::vector<RoundSamples> samples;
  // Of sides `with_word`: the same step with kWord, as many.
  std::vector<RoundSamples> word;
  std::vector<StepCheck> checks;
  int repeated = 0;
  int kept_busy = 0;
};

// Ours is the first one, the others began where it did.
struct SideEntry {
  std::unique_ptr<Side> side;
  // Its processes also take steps with kWord, by turns with the others: what
  // two processes differ in, and what the machine does meanwhile, is in both.
  bool with_word = false;
};

struct RoundPlan {
  int rounds = kStepRounds;
  Turns turns;
  OnBusy on_busy = OnBusy::kRepeat;
};

// Sides have directories beside each other: ours leaves its weights and batches
// as ../start (step_reference.h) where it is asked to. It must start; others
// that do not are left out, which is printed. Unavailable where the machine
// stays busy.
StatusOr<Rounds> RunSides(std::vector<SideEntry>* sides, const RoundPlan& plan,
                          StepReport* report,
                          const StepTolerance& tolerance = {});

std::vector<std::vector<double>> Column(const RoundSamples& samples,
                                        double Sample::*field);

// `peer` is the index of the side that `theirs` is of; 0 for our own.
BenchResult StepResultOf(const std::string& id, const std::string& name,
                         const std::vector<std::vector<double>>& ours,
                         const std::vector<std::vector<double>>& theirs,
                         const Rounds& rounds, size_t peer, double must,
                         double aim);

// Says that no step could be shorter than ours with kWord.
void LimitByWord(const RoundSamples& word, BenchResult* result);

struct StepPeer {
  std::string id;
  std::string name;
  Command command;  // empty: our own step with kWord
  double must = 0;
  double aim = 0;
};

// Our step against each peer's; `settings` win over `plan`.
Status AgainstPeers(const Command& ours, const std::vector<StepPeer>& peers,
                    const RoundPlan& plan, const StepSettings& settings,
                    StepReport* report);

// `plan` with what `settings` say.
RoundPlan PlanOf(const StepSettings& settings, RoundPlan plan);

// The benchmarks. -----------------------------------------------------------

Status RunS1(const StepSettings& settings, StepReport* report);
Status RunS2(const StepSettings& settings, StepReport* report);
Status RunS3(const StepSettings& settings, StepReport* report);
Status RunM1(const StepSettings& settings, StepReport* report);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_STEP_RUN_H_
