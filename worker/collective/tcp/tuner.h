// Which measurements are made for a plan, and which plan follows from them.
// Pure: tuning.h does the measuring.
//
// Rank 0 asks Next for the next step of all ranks, and reports by NoteTime how
// long it took. First the algorithms of an all-reduce take turns at sizes that
// grow by four, as far as the size before lets expect that they end in time;
// then rings that are further ahead, and over several connections, take turns
// at one large size. The plan stays as it was where a size was not measured, or
// where no other way was clearly better.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_TUNER_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_TUNER_H_

#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "worker/collective/tcp/plan.h"

namespace lockstep::worker::collective::tcp {

// The next step of all ranks.
struct TuneStep {
  enum What {
    // `repeats` all-reduces of `bytes` bytes with `plan`.
    kMeasure = 0,
    // Get plan.streams connections with each peer.
    kConnect = 1,
    // The tuning is over: `plan` is the result.
    kDone = 2,
  };
  What what = kDone;
  int repeats = 1;
  size_t bytes = 0;
  Plan plan;
};

// The times that were measured, of one operation of each kind. Pure.
class Measurements {
 public:
  // A kind of measurement: an algorithm and the place of its size, or a ring by
  // its place (tuner.cc).
  using Kind = std::pair<int, int>;

  // A step begins after `spent`: the control time of the step before is known.
  void BeginStep(Duration spent);
  // The step that begins runs `repeats` operations of `kind`.
  void Ask(const Kind& kind, int repeats);
  // The operations took `took` together. Returns the time of one.
  Duration Note(Duration took);

  bool Has(const Kind& kind) const { return times_.count(kind) > 0; }
  // REQUIRES: Has(kind).
  Duration MedianOf(const Kind& kind) const;
  const Kind& asked() const { return asked_; }
  // Time since the beginning, measuring included.
  Duration spent() const { return spent_; }
  // Time of a step besides its operations: sharing it with the ranks.
  Duration control() const { return control_; }

 private:
  bool measuring_ = false;
  Kind asked_{};
  int repeats_ = 1;
  Duration took_{};
  Duration spent_{};
  Duration control_{};
  std::map<Kind, std::vector<Duration>> times_;
};

// The kinds to measure next, by turns. Pure.
class MeasurementQueue {
 public:
  // Queues each of `kinds` `rounds` times.
  void Fill(const std::vector<Measurements::Kind>& kinds, int rounds);
  void End() { next_ = kinds_.size(); }
  bool empty() const { return kinds_.empty(); }
  bool done() const { return next_ == kinds_.size(); }
  // REQUIRES: not done().
  Measurements::Kind Next() { return kinds_[next_++]; }

 private:
  std::vector<Measurements::Kind> kinds_;
  size_t next_ = 0;
};

class Tuner {
 public:
  static constexpr size_t kLargest = 4 << 20;  // bytes of an all-reduce

  // `base`: the plan until now. More than one rank.
  Tuner(const Plan& base, int ranks, Duration budget);

  // `spent`: time since the beginning, measuring included.
  TuneStep Next(Duration spent);
  // The last step was a measurement that took `took`.
  void NoteTime(Duration took);
  // The last step was a kConnect. False: there are as many as before.
  void NoteConnected(bool connected);

 private:
  enum Algorithm { kDoubling, kHalving, kRing };
  using Kind = Measurements::Kind;

  std::optional<TuneStep> NextOfSizes();
  std::optional<TuneStep> NextOfRings();
  TuneStep Measure(const Kind& kind, const Plan& plan, size_t bytes,
                   int repeats);
  void StartSize();
  void StartRings();
  void AddRing(int streams, int ahead);
  void QueueRings(int first);
  bool Affordable(Duration cost) const;
  int Rounds() const { return slow_ ? 2 : 3; }
  // The expected time of one step at the `place`-th size.
  Duration Predict(Algorithm algorithm, int place) const;
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
  MeasurementQueue queue_;
  int place_ = 0;  // the next size
  size_t ring_bytes_ = 0;
  std::vector<Plan> rings_;
  Measurements measured_;
};

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_TUNER_H_
