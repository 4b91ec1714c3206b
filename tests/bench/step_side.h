// Contenders of the step benchmarks: two ranks each, programs that are told by
// lines when to run how many steps.
#ifndef LOCKSTEP_TESTS_BENCH_STEP_SIDE_H_
#define LOCKSTEP_TESTS_BENCH_STEP_SIDE_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep {

inline constexpr int kStepRanks = 2;

// A program that answers lines with lines; killed with the object.
class Child {
 public:
  // Its standard error goes to the end of `log`.
  Child(const std::vector<std::string>& command, const std::string& log);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void Say(const std::string& line);
  void EndInput();
  // DeadlineExceeded; Unavailable when it has ended.
  StatusOr<std::string> Hear(MonoTime deadline);

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string text_;
};

// The command of rank `rank`, with a directory of the side's own.
using Command =
    std::function<std::vector<std::string>(int rank, const std::string& dir)>;

// What the ranks of a side exchange in a step.
enum class Exchanged {
  kGradients,
  kWord,  // Only 4 bytes; its gradients are a rank's own, and change no weight.
};

struct Sample {
  double seconds = 0;  // Of a step.
  double busy = 0;     // Of communication in a step, the slower rank's.
  double exposed = 0;
};

// What a rank says at its end.
struct StepEnd {
  std::string hash;  // of its parameters
  double loss = 0;   // of a sample of its batch, before the last step
  double error = 0;  // of reduced gradients against float64; ours only
};

// What a side does in a round.
struct Turns {
  int samples = 1;
  // Of a sample, which is their mean: each is `steps` steps with kGradients,
  // and, where they are asked for, as many with kWord before or after them.
  int turns = 1;
  int steps = 1;
  // Before the steps of a kind one of it untimed, which finds memory and caches
  // as others left them.
  bool settles = true;
};

struct RoundOfSide {
  std::vector<Sample> gradients;
  std::vector<Sample> word;  // word[i] was taken by turns with gradients[i]
};

// Two ranks of one contender, with a directory of their own.
class Side {
 public:
  Side(std::string name, Command command)
      : name_(std::move(name)), command_(std::move(command)) {}
  const std::string& name() const { return name_; }

  // Once both have run their first steps. `dir` is the side's own, and empty.
  Status Start(const std::string& dir);
  // Of what it computes with; after Start.
  const std::map<std::string, std::string>& versions() const {
    return versions_;
  }
  std::vector<pid_t> pids() const;
  StatusOr<Sample> Run(int steps, Exchanged what = Exchanged::kGradients);
  // Which of the two begins changes from turn to turn, and with `round`.
  StatusOr<RoundOfSide> RunRound(const Turns& turns, bool with_word, int round);
  // Ends it.
  StatusOr<std::vector<StepEnd>> End();

 private:
  std::string Log(int rank) const;
  std::string Tail(int rank) const;

  const std::string name_;
  const Command command_;
  std::string dir_;
  std::map<std::string, std::string> versions_;
  std::vector<std::unique_ptr<Child>> ranks_;
};

// Whether a side computed what it should, in words.
struct StepCheck {
  bool good = false;
  std::string text;
};
// How far float32 may be from float64, by GradientError, and a peer's loss from
// ours, relative. A well-conditioned network comes to 1e-5 and 1e-9; gradients
// that were not reduced are off by 0.5 and more.
struct StepTolerance {
  double error = 5e-3;
  double loss = 1e-3;
};
// Ours: both ranks have the same parameters, and their reduced gradients are
// float64's. Pure, as the next.
StepCheck CheckOurs(const std::vector<StepEnd>& ranks,
                    const StepTolerance& tolerance = {});
// A peer, which began with our weights and batches and ran as many steps: both
// ranks have the same parameters, and each rank's loss is ours.
StepCheck CheckPeer(const std::vector<StepEnd>& ranks,
                    const std::vector<StepEnd>& ours,
                    const StepTolerance& tolerance = {});

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_STEP_SIDE_H_
