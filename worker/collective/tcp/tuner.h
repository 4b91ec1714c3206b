// Which measurements a plan is made of, and which plan they make. Pure: the
// measuring itself is tuning.h.
//
// Rank 0 asks Next what all ranks do now, and says by Note how long it took.
// First the algorithms of an all-reduce take turns at sizes that grow by four,
// as far as they end in time by what the size before took; then rings that are
// further ahead, and over several connections, take turns at one large size.
// What was not measured stays as it was, and so does what is not beaten
// clearly.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_TUNER_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_TUNER_H_

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "worker/collective/tcp/plan.h"

namespace lockstep::tcp {

// What all ranks do next.
struct TuneStep {
  enum What {
    // `repeats` all-reduces of `bytes` bytes with `plan`.
    kMeasure = 0,
    // Get plan.streams connections with each peer.
    kConnect = 1,
    // Nothing more: `plan` is the result.
    kDone = 2,
  };
  What what = kDone;
  int repeats = 1;
  size_t bytes = 0;
  Plan plan;
};

class Tuner {
 public:
  static constexpr size_t kLargest = 4 << 20;  // bytes of an all-reduce

  // `base`: the plan until now. More than one rank.
  Tuner(const Plan& base, int ranks, Duration budget);

  // `spent`: since the beginning, measuring and all.
  TuneStep Next(Duration spent);
  // The last step was a measurement that took so long.
  void NoteTime(Duration took);
  // The last step was a kConnect. False: there are as many as before.
  void NoteConnected(bool connected);

 private:
  enum Algorithm { kDoubling, kHalving, kRing };
  // What is measured: an Algorithm and the place of its size, or kOfRings and
  // the place of a ring among rings_.
  using Kind = std::pair<int, int>;

  std::optional<TuneStep> NextOfSizes();
  std::optional<TuneStep> NextOfRings();
  TuneStep Measure(const Kind& kind, const Plan& plan, size_t bytes,
                   int repeats);
  void StartSize();
  void StartRings();
  void AddRing(int streams, int ahead);
  void TakeTurns(int first);
  bool Affordable(Duration cost) const;
  int Rounds() const { return slow_ ? 2 : 3; }
  bool Has(const Kind& kind) const { return times_.count(kind) > 0; }
  // Of one step at the `place`-th size.
  Duration Predict(Algorithm algorithm, int place) const;
  Duration MedianOf(const Kind& kind) const;
  Plan PlanFor(Algorithm algorithm) const;
  // By the plan until now.
  Algorithm AlgorithmOf(size_t bytes) const;
  Algorithm Winner(int place) const;
  bool IsFarBehind(int place) const;
  void ChooseThresholds();
  void ChooseRing();

  const int ranks_;
  const Duration budget_;
  Plan plan_;

  // kProbe: one small operation, by which the rest is judged.
  enum class Stage { kProbe, kSizes, kRings, kStreams, kEnd };
  Stage stage_ = Stage::kProbe;
  bool slow_ = false;  // each operation takes a good part of the budget
  // What takes turns now.
  std::vector<Kind> turns_;
  size_t next_turn_ = 0;
  int place_ = 0;  // the next size
  size_t ring_bytes_ = 0;
  std::vector<Plan> rings_;

  // The last step, and what one of its operations took.
  bool measuring_ = false;
  Kind asked_{};
  int repeats_ = 1;
  Duration took_{};
  Duration spent_{};
  // Of a step beside its operations: telling the ranks.
  Duration control_{};
  // Of one operation each.
  std::map<Kind, std::vector<Duration>> times_;
};

}  // namespace lockstep::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_TUNER_H_
