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
  int rounds = 0;  // the first one is dropped; 0: the benchmark's own, as next
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

inline constexpr char kDebianDdp[] = "Debian's python3-torch DDP, gloo";
inline constexpr char kBestDdp[] =
    "bucket view, static graph, pinned, our settings of malloc and OpenBLAS";

// Commands of a rank. ----------------------------------------------------

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

// Of each side its samples, by round, and whether what it computed was right;
// of sides that did not start, none.
struct Rounds {
  std::vector<std::vector<Sample>> samples;
  std::vector<StepCheck> checks;
  int repeated = 0;
  int kept_busy = 0;
};

// What of a side is looked at in the end.
enum class SideKind {
  kOurs,
  kPeer,     // began where ours did
  kWithout,  // exchanges nothing: nothing to look at
};
struct SideEntry {
  std::unique_ptr<Side> side;
  SideKind kind = SideKind::kPeer;
};

// Sides have directories beside each other: ours, the first one, leaves its
// weights and batches as ../start (step_reference.h) where it is asked to. It
// must start; others that do not are left out, which is printed.
// Unavailable where the machine stays busy.
StatusOr<Rounds> RunSides(std::vector<SideEntry>* sides, int steps, int rounds,
                          OnBusy on_busy, StepReport* report,
                          const StepTolerance& tolerance = {});

// Each sample as a round of its own.
std::vector<std::vector<double>> Column(const std::vector<Sample>& samples,
                                        double Sample::*field);

// `peer` is the index of the side that `theirs` is of; 0 for our own.
BenchResult StepResultOf(const std::string& id, const std::string& name,
                         const std::vector<std::vector<double>>& ours,
                         const std::vector<std::vector<double>>& theirs,
                         const Rounds& rounds, size_t peer, double must,
                         double aim);

// Says that no step could be shorter than `without`.
void LimitByWithout(const std::vector<Sample>& without, BenchResult* result);

struct StepPeer {
  std::string id;
  std::string name;
  Command command;  // empty: the loop without communication
  double must = 0;
  double aim = 0;
};

// Our step against each peer's. `without`: the same loop without communication,
// which is the limit of all.
Status AgainstPeers(const Command& ours, const Command& without,
                    const std::vector<StepPeer>& peers, int steps,
                    const StepSettings& settings, StepReport* report);

// The benchmarks. -----------------------------------------------------------

Status RunS1(const StepSettings& settings, StepReport* report);
Status RunS2(const StepSettings& settings, StepReport* report);
Status RunS3(const StepSettings& settings, StepReport* report);
Status RunM1(const StepSettings& settings, StepReport* report);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_STEP_RUN_H_
