// Bugs that a test plants, one at a time, to show that the simulation finds
// them. They are in the world around the product: in the disk, the network, the
// daemon that executes what AgentCore decides, the ranks and the gateway.
#ifndef LOCKSTEP_TESTS_SIMULATION_BUG_H_
#define LOCKSTEP_TESTS_SIMULATION_BUG_H_

#include <array>
#include <string_view>

#include "tests/simulation/invariant.h"

namespace lockstep::simulation {

enum class Bug {
  kNone,
  kForgetsEpochCheck,
  kStartsTwice,
  kStartsAdoptedAgain,
  kAcknowledgesEarly,
  kLosesSyncedCommit,
  kForgetsAnswers,
  kReusesGeneration,
  kForgetsFinalState,
  kDropsWaiter,
  kReleasesEarly,
  kAdoptsStranger,
  kForgetsWithLiveRank,
  kIgnoresFence,
  kVotesEarly,
  kResumesOlder,
  kAppliesTwice,
  kSkipsStep,
  kSkipsSamples,
  kLevelsBack,
  kForgetsAway,
  kKeepsOldState,
  kForgetsWaiting,
  kLetsStrangerIn,
};

struct BugInfo {
  Bug bug;
  std::string_view name;
  // What is wrong.
  std::string_view what;
  // What finds it.
  Invariant found_by;
};

inline constexpr std::array<BugInfo, 23> kBugs = {{
    {Bug::kForgetsEpochCheck, "forgets-epoch-check",
     "the daemon obeys orders of a stream that has ended, whatever their epoch",
     Invariant::kS10},
    {Bug::kStartsTwice, "starts-twice",
     "the daemon starts a rank again when LAUNCH arrives again",
     Invariant::kS7},
    {Bug::kStartsAdoptedAgain, "starts-adopted-again",
     "a restarted daemon starts the ranks that it finds", Invariant::kS7},
    {Bug::kAcknowledgesEarly, "acknowledges-early",
     "a command is acknowledged although its commit failed", Invariant::kS5},
    {Bug::kLosesSyncedCommit, "loses-synced-commit",
     "the last commit is gone after a crash", Invariant::kS5},
    {Bug::kForgetsAnswers, "forgets-answers",
     "a restarted coordinator has forgotten which commands it has answered",
     Invariant::kS5},
    {Bug::kReusesGeneration, "reuses-generation",
     "a restarted coordinator gives the number of the last generation again",
     Invariant::kS8},
    {Bug::kForgetsFinalState, "forgets-final-state",
     "a job that had ended is running after a restart", Invariant::kS5},
    {Bug::kDropsWaiter, "drops-waiter",
     "the daemon does not ask again, on a new stream, for what its ranks wait",
     Invariant::kS9},
    {Bug::kReleasesEarly, "releases-early",
     "a gang is reported as STOPPED while its ranks still live",
     Invariant::kS7},
    {Bug::kAdoptsStranger, "adopts-stranger",
     "after a reboot the daemon takes ranks of the last boot for alive",
     Invariant::kS7},
    {Bug::kForgetsWithLiveRank, "forgets-with-live-rank",
     "the daemon takes SIGTERM for the end of a rank", Invariant::kS7},
    {Bug::kIgnoresFence, "ignores-fence",
     "ranks of a program go on after the time of their fence", Invariant::kS7},
    {Bug::kVotesEarly, "votes-early",
     "a rank votes before its part of a checkpoint is durable", Invariant::kS6},
    {Bug::kResumesOlder, "resumes-older",
     "a generation resumes from the checkpoint before the newest",
     Invariant::kS1},
    {Bug::kAppliesTwice, "applies-twice",
     "a rank applies the gradient of a step twice", Invariant::kS2},
    {Bug::kSkipsStep, "skips-step",
     "all ranks count a step on after they have resumed", Invariant::kS3},
    {Bug::kSkipsSamples, "skips-samples",
     "a generation that resumes begins with the first sample again",
     Invariant::kS4},
    {Bug::kLevelsBack, "levels-back",
     "a recovery gives all ranks the state of the one that is furthest behind",
     Invariant::kS3},
    {Bug::kForgetsAway, "forgets-away",
     "the daemon tells its ranks of a recovery, and not which ranks are away",
     Invariant::kS8},
    {Bug::kKeepsOldState, "keeps-old-state",
     "a rank that is away keeps its state, and gives it to the others when it "
     "is back",
     Invariant::kS3},
    {Bug::kForgetsWaiting, "forgets-waiting",
     "the daemon does not report that a rank waits to be a member again",
     Invariant::kS9},
    {Bug::kLetsStrangerIn, "lets-stranger-in",
     "the gateway does not ask who may cancel a job", Invariant::kS10},
}};

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_BUG_H_
