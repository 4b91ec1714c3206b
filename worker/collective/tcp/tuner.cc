#include "worker/collective/tcp/tuner.h"

#include <algorithm>
#include <array>
#include <bit>

namespace lockstep::worker::collective::tcp {
namespace {

constexpr std::array<size_t, 6> kSizes = {4 << 10,   16 << 10, 64 << 10,
                                          256 << 10, 1 << 20,  4 << 20};
constexpr int kPlaces = static_cast<int>(kSizes.size());
constexpr int kGrowth = 4;
static_assert(kSizes.back() == Tuner::kLargest);

// The first part of a Kind that is a ring of rings_.
constexpr int kOfRings = 3;
// A ring of fewer bytes says little about its pieces and connections.
constexpr size_t kLeastRingBytes = 512 << 10;
constexpr int kFarAhead = 8;
constexpr int kStreamsTried = 4;

// Another is taken when it needs less than this of what there is.
constexpr double kClearly = 0.9;

int RepeatsOf(size_t bytes, bool slow) {
  return bytes <= (16 << 10) && !slow ? 4 : 1;
}

}  // namespace

void Measurements::BeginStep(Duration spent) {
  if (measuring_) {
    control_ =
        std::max<Duration>(Duration::zero(), spent - spent_ - took_ * repeats_);
  }
  measuring_ = false;
  spent_ = spent;
}

void Measurements::Ask(const Kind& kind, int repeats) {
  asked_ = kind;
  repeats_ = repeats;
  measuring_ = true;
}

Duration Measurements::Note(Duration took) {
  took_ = took / repeats_;
  times_[asked_].push_back(took_);
  return took_;
}

Duration Measurements::MedianOf(const Kind& kind) const {
  std::vector<Duration> times = times_.at(kind);
  const auto middle = times.begin() + times.size() / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void MeasurementQueue::Fill(const std::vector<Measurements::Kind>& kinds,
                            int rounds) {
  kinds_.clear();
  next_ = 0;
  for (int round = 0; round < rounds; ++round) {
    kinds_.insert(kinds_.end(), kinds.begin(), kinds.end());
  }
}

Tuner::Tuner(const Plan& base, int ranks, Duration budget)
    : ranks_(ranks), budget_(budget), plan_(base) {}

bool Tuner::Affordable(Duration cost) const {
  // Some is kept for the rings.
  const Duration most = stage_ == Stage::kSizes ? budget_ * 6 / 10 : budget_;
  return measured_.spent() + cost <= most;
}

TuneStep Tuner::Next(Duration spent) {
  measured_.BeginStep(spent);
  if (budget_ <= Duration::zero()) stage_ = Stage::kEnd;
  std::optional<TuneStep> step;
  while (!step && stage_ != Stage::kEnd) {
    if (stage_ == Stage::kProbe) {
      stage_ = Stage::kSizes;
      return Measure({kDoubling, kPlaces}, PlanFor(kDoubling), kSizes[0], 1);
    }
    step = stage_ == Stage::kSizes ? NextOfSizes() : NextOfRings();
  }
  return step ? *step : TuneStep{TuneStep::kDone, 1, 0, plan_};
}

TuneStep Tuner::Measure(const Kind& kind, const Plan& plan, size_t bytes,
                        int repeats) {
  measured_.Ask(kind, repeats);
  return {TuneStep::kMeasure, repeats, bytes, plan};
}

void Tuner::NoteTime(Duration took) {
  const Duration one = measured_.Note(took);
  const bool probed = measured_.asked() == Kind{kDoubling, kPlaces};
  if (probed) slow_ = one > budget_ / 100;
}

Plan Tuner::PlanFor(Algorithm algorithm) const {
  constexpr size_t kAll = 2 * kLargest;
  Plan plan = plan_;
  plan.doubling_below = algorithm == kDoubling ? kAll : 0;
  plan.halving_below = algorithm == kRing ? 0 : kAll;
  return plan;
}

Tuner::Algorithm Tuner::AlgorithmOf(size_t bytes) const {
  if (bytes < plan_.doubling_below) return kDoubling;
  return bytes < plan_.halving_below ? kHalving : kRing;
}

// Of all rounds and with what tells the ranks to do it.
Duration Tuner::Predict(Algorithm algorithm, int place) const {
  Duration one{};
  if (measured_.Has({algorithm, place})) {
    one = measured_.MedianOf({algorithm, place});
  } else if (place > 0 && measured_.Has({algorithm, place - 1})) {
    one = measured_.MedianOf({algorithm, place - 1}) * kGrowth;
  } else if (algorithm != kDoubling && measured_.Has({kDoubling, kPlaces})) {
    // By the number of messages one after the other.
    const int rounds = std::bit_width(static_cast<unsigned>(ranks_ - 1));
    const int messages = algorithm == kRing ? 2 * (ranks_ - 1) : 2 * rounds;
    one = measured_.MedianOf({kDoubling, kPlaces}) * messages / rounds;
  }
  return one * RepeatsOf(kSizes[place], slow_) + measured_.control();
}

void Tuner::StartSize() {
  queue_ = MeasurementQueue();
  std::vector<Kind> kinds;
  for (const Algorithm algorithm : {kDoubling, kHalving, kRing}) {
    // For two ranks halving is a ring.
    if (algorithm == kHalving && ranks_ == 2) continue;
    if (algorithm == kDoubling && place_ > 0 &&
        (!measured_.Has({kDoubling, place_ - 1}) || IsFarBehind(place_ - 1))) {
      continue;
    }
    if (Affordable(Predict(algorithm, place_) * Rounds())) {
      kinds.push_back({algorithm, place_});
    }
  }
  // One alone is compared with nothing.
  if (kinds.size() < 2) return;
  queue_.Fill(kinds, Rounds());
}

// Doubling, at a size where something else takes less than half its time.
bool Tuner::IsFarBehind(int place) const {
  const Duration best = measured_.MedianOf({Winner(place), place});
  return measured_.MedianOf({kDoubling, place}) > best * 2;
}

std::optional<TuneStep> Tuner::NextOfSizes() {
  if (queue_.done()) {
    if (place_ < kPlaces) StartSize();
    if (place_ == kPlaces || queue_.empty()) {
      ChooseThresholds();
      StartRings();
      return std::nullopt;
    }
    ++place_;
  }
  const Kind kind = queue_.Next();
  const auto algorithm = static_cast<Algorithm>(kind.first);
  // Every one has its first turn, unless it would be late; once out of time,
  // what was measured is enough.
  if (!Affordable(Predict(algorithm, kind.second))) {
    queue_.End();
    place_ = kPlaces;
    return std::nullopt;
  }
  const size_t bytes = kSizes[kind.second];
  return Measure(kind, PlanFor(algorithm), bytes, RepeatsOf(bytes, slow_));
}

Tuner::Algorithm Tuner::Winner(int place) const {
  std::optional<Algorithm> best;
  const Algorithm now = AlgorithmOf(kSizes[place]);
  if (measured_.Has({now, place})) best = now;
  for (const Algorithm other : {kDoubling, kHalving, kRing}) {
    if (other == now || !measured_.Has({other, place})) continue;
    const double margin = best == now ? kClearly : 1;
    if (!best || measured_.MedianOf({other, place}) <
                     measured_.MedianOf({*best, place}) * margin) {
      best = other;
    }
  }
  return *best;
}

// Thresholds lie midway between sizes with different winners.
void Tuner::ChooseThresholds() {
  int last = -1;
  int last_doubling = -1;
  int last_halving = -1;
  for (int place = 0; place < kPlaces; ++place) {
    const int kinds = static_cast<int>(measured_.Has({kDoubling, place})) +
                      static_cast<int>(measured_.Has({kHalving, place})) +
                      static_cast<int>(measured_.Has({kRing, place}));
    if (kinds < 2) break;
    last = place;
    const Algorithm winner = Winner(place);
    if (winner == kDoubling) last_doubling = place;
    if (winner == kHalving) last_halving = place;
  }
  if (last < 0) return;
  const Plan old = plan_;
  const auto above = [](int place) {
    return place < 0 ? kSizes[0] : 2 * kSizes[place];
  };
  plan_.doubling_below = above(last_doubling);
  if (last_doubling == last) {
    plan_.doubling_below = std::max(plan_.doubling_below, old.doubling_below);
  }
  plan_.halving_below = plan_.doubling_below;
  if (ranks_ == 2) return;
  if (last_halving > last_doubling) {
    plan_.halving_below = above(last_halving);
  }
  // Beyond what was measured, as before.
  if (std::max(last_halving, last_doubling) == last) {
    plan_.halving_below = std::max(plan_.halving_below, old.halving_below);
  }
}

void Tuner::StartRings() {
  stage_ = Stage::kEnd;
  int place = kPlaces - 1;
  while (place >= 0 && !measured_.Has({kRing, place})) --place;
  if (place < 0) return;
  // All rings at this size, and those over several connections.
  const int steps = 5 * Rounds();
  Duration one = measured_.MedianOf({kRing, place});
  size_t bytes = kSizes[place];
  for (; bytes < kLargest; bytes *= 2) one *= 2;
  stage_ = Stage::kRings;
  while (bytes >= kLeastRingBytes &&
         !Affordable((one + measured_.control()) * steps)) {
    bytes /= 2;
    one /= 2;
  }
  // Of a part in one piece neither the order nor the connections matter.
  if (bytes < kLeastRingBytes || bytes / ranks_ <= plan_.chunk) {
    stage_ = Stage::kEnd;
    return;
  }
  ring_bytes_ = bytes;
  AddRing(1, plan_.ahead);
  if (plan_.ahead < kFarAhead) AddRing(1, kFarAhead);
  QueueRings(0);
}

void Tuner::AddRing(int streams, int ahead) {
  Plan plan = PlanFor(kRing);
  plan.streams = streams;
  plan.ahead = ahead;
  rings_.push_back(plan);
}

void Tuner::QueueRings(int first) {
  std::vector<Kind> kinds;
  for (int i = first; i < static_cast<int>(rings_.size()); ++i) {
    kinds.push_back({kOfRings, i});
  }
  queue_.Fill(kinds, Rounds());
}

std::optional<TuneStep> Tuner::NextOfRings() {
  if (!queue_.done()) {
    const Kind kind = queue_.Next();
    const Duration one = measured_.Has(kind) ? measured_.MedianOf(kind)
                         : measured_.Has({kOfRings, 0})
                             ? measured_.MedianOf({kOfRings, 0})
                             : Duration::zero();
    if (Affordable(one + measured_.control())) {
      return Measure(kind, rings_[kind.second], ring_bytes_, 1);
    }
    queue_.End();
  }
  const bool all =
      measured_.Has({kOfRings, static_cast<int>(rings_.size()) - 1});
  if (stage_ == Stage::kRings && all) {
    // A connection and its proof take some messages.
    const Duration connecting = measured_.control() * 10 +
                                std::chrono::milliseconds(ranks_ > 2 ? 4 : 2);
    const Duration measuring =
        (measured_.MedianOf({kOfRings, 0}) + measured_.control()) * 2 *
        Rounds();
    if (Affordable(connecting + measuring)) {
      stage_ = Stage::kStreams;
      Plan plan = plan_;
      plan.streams = kStreamsTried;
      return TuneStep{TuneStep::kConnect, 1, 0, plan};
    }
  }
  ChooseRing();
  stage_ = Stage::kEnd;
  return std::nullopt;
}

void Tuner::NoteConnected(bool connected) {
  if (!connected) return;
  const int first = static_cast<int>(rings_.size());
  AddRing(2, kFarAhead);
  AddRing(kStreamsTried, 2 * kFarAhead);
  QueueRings(first);
}

// By few connections and little ahead, unless more are clearly better.
void Tuner::ChooseRing() {
  if (!measured_.Has({kOfRings, 0})) return;
  int best = 0;
  for (int i = 1; i < static_cast<int>(rings_.size()); ++i) {
    const Kind kind = {kOfRings, i};
    if (measured_.Has(kind) &&
        measured_.MedianOf(kind) <
            measured_.MedianOf({kOfRings, best}) * kClearly) {
      best = i;
    }
  }
  plan_.ahead = rings_[best].ahead;
  plan_.streams = rings_[best].streams;
}

}  // namespace lockstep::worker::collective::tcp
