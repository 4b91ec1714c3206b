#include "worker/task/rank_page.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "worker/task/rank_page_words.h"

namespace lockstep::worker::task {
namespace {

constexpr uint32_t kBlockVersion = 1;
constexpr size_t kNameWords = kReportedNameBytes / 8;
constexpr uint64_t kMostRanks = (1 << 16) - 1;
// Their sum over all buckets stays exact as a double.
constexpr uint64_t kMostTimes = uint64_t{1} << 48;
// In kWordWait.
constexpr int kWaitBits = 20;
constexpr uint64_t kNoWait = 1;
constexpr uint64_t kWaitForUnknown = 2;
constexpr uint64_t kWaitForRank = 3;

double Finite(uint64_t word) {
  const double value = std::bit_cast<double>(word);
  return std::isfinite(value) ? value : 0;
}

double Seconds(uint64_t word) {
  const double value = Finite(word);
  return value > 0 ? value : 0;
}

uint64_t OptionalWord(bool has, double value) {
  return std::bit_cast<uint64_t>(
      has ? value : std::numeric_limits<double>::quiet_NaN());
}

void DecodeOptional(uint64_t word, bool* has, double* value) {
  *value = Finite(word);
  *has = std::isfinite(std::bit_cast<double>(word));
}

int32_t RankOrNone(uint64_t word) {
  return word <= kMostRanks ? static_cast<int32_t>(word) : -1;
}

void EncodeTimes(const TimeHistogram& times, uint64_t* words) {
  std::copy(times.counts.begin(), times.counts.end(), words);
  words[times.counts.size()] = std::bit_cast<uint64_t>(times.sum);
}

TimeHistogram DecodeTimes(const uint64_t* words) {
  TimeHistogram times;
  for (size_t i = 0; i < times.counts.size(); ++i) {
    times.counts[i] = std::min(words[i], kMostTimes);
  }
  times.sum = Seconds(words[times.counts.size()]);
  return times;
}

// The number of a phase in the page. Compile came last: the other numbers stay.
constexpr RankPhase kPhaseNumbers[] = {
    RankPhase::kInput,         RankPhase::kCompute,   RankPhase::kAllReduce,
    RankPhase::kStragglerWait, RankPhase::kOptimizer, RankPhase::kCheckpoint,
    RankPhase::kEvaluation,    RankPhase::kOther,     RankPhase::kForming,
    RankPhase::kFinished,      RankPhase::kCompile};
static_assert(std::size(kPhaseNumbers) == kRankPhases);

uint64_t NumberOf(RankPhase phase) {
  const auto* const at =
      std::find(std::begin(kPhaseNumbers), std::end(kPhaseNumbers), phase);
  return static_cast<uint64_t>(at - std::begin(kPhaseNumbers));
}

RankPhase PhaseOf(uint32_t number) {
  return number < kRankPhases ? kPhaseNumbers[number] : RankPhase::kOther;
}

std::string DecodeName(const uint64_t* words) {
  char bytes[kReportedNameBytes];
  std::memcpy(bytes, words, sizeof(bytes));
  std::string name;
  for (size_t i = 0; i + 1 < sizeof(bytes) && bytes[i] != '\0'; ++i) {
    const bool printable = bytes[i] > ' ' && bytes[i] < 0x7f;
    name.push_back(printable ? bytes[i] : '_');
  }
  return name;
}

}  // namespace

const char* RankPhaseName(RankPhase phase) {
  static constexpr const char* kNames[kRankPhases] = {
      "input",     "compute",    "allreduce",  "straggler_wait",
      "optimizer", "checkpoint", "evaluation", "other",
      "compile",   "forming",    "finished"};
  const auto index = static_cast<size_t>(phase);
  return index < kRankPhases ? kNames[index] : "other";
}

void TimeHistogram::Observe(double seconds) {
  if (!(seconds >= 0)) return;
  const auto bucket =
      std::lower_bound(kTimeBounds.begin(), kTimeBounds.end(), seconds) -
      kTimeBounds.begin();
  ++counts[static_cast<size_t>(bucket)];
  sum += seconds;
}

void EncodeProgress(const RankProgress& progress, PageWords* words) {
  PageWords& w = *words;
  w[kWordGeneration] = progress.generation;
  w[kWordStep] = progress.step;
  w[kWordCollective] = progress.collective;
  w[kWordLastCommitted] = static_cast<uint64_t>(progress.last_committed);
  w[kWordMono] = static_cast<uint64_t>(progress.mono_nanos);
  w[kWordPhaseAndRank] =
      NumberOf(progress.phase) | static_cast<uint64_t>(progress.rank) << 32;
}

namespace {

void EncodeCommunication(const RankCounters& counters, PageWords* words) {
  PageWords& w = *words;
  const CommunicationReading& c = counters.communication;
  const auto rank = [](int32_t value) {
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  };
  w[kWordLateRank] = rank(c.late_rank);
  w[kWordLateWaited] = std::bit_cast<uint64_t>(c.late_waited_seconds);
  w[kWordStraggler] = rank(c.straggler.rank);
  w[kWordStragglerSteps] =
      c.straggler.steps | static_cast<uint64_t>(c.straggler.late_steps) << 32;
  w[kWordStragglerCost] = std::bit_cast<uint64_t>(c.straggler.cost);
  w[kWordBusBandwidth] = std::bit_cast<uint64_t>(c.bus_bytes_per_second);
  uint64_t* late = &w[kWordLateRanks];
  for (const LateRankReading& one : c.longest_waits) {
    *late++ = rank(one.rank);
    *late++ = one.steps;
    *late++ = std::bit_cast<uint64_t>(one.waited_seconds);
  }
  EncodeTimes(counters.step_times, &w[kWordStepTimes]);
  for (size_t i = 0; i < kCheckpointPhases; ++i) {
    EncodeTimes(counters.checkpoint_times[i],
                &w[kWordCheckpointTimes + i * (kTimeBounds.size() + 2)]);
  }
}

void DecodeCommunication(const PageWords& w, RankCounters* counters) {
  if (w[kWordBlock] >> 32 < kWordThirdEnd - kWordBlock) return;
  CommunicationReading& c = counters->communication;
  c.late_rank = RankOrNone(w[kWordLateRank]);
  c.late_waited_seconds = Seconds(w[kWordLateWaited]);
  c.straggler.rank = RankOrNone(w[kWordStraggler]);
  c.straggler.steps = static_cast<uint32_t>(
      std::min<uint64_t>(w[kWordStragglerSteps] & 0xffffffffu, 100));
  c.straggler.late_steps = static_cast<uint32_t>(
      std::min<uint64_t>(w[kWordStragglerSteps] >> 32, c.straggler.steps));
  c.straggler.cost = std::min(Seconds(w[kWordStragglerCost]), 1.0);
  if (c.straggler.steps == 0) c.straggler = {};
  c.bus_bytes_per_second = Seconds(w[kWordBusBandwidth]);
  const uint64_t* late = &w[kWordLateRanks];
  for (LateRankReading& one : c.longest_waits) {
    one.rank = RankOrNone(*late++);
    one.steps = *late++;
    one.waited_seconds = Seconds(*late++);
  }
  counters->step_times = DecodeTimes(&w[kWordStepTimes]);
  for (size_t i = 0; i < kCheckpointPhases; ++i) {
    counters->checkpoint_times[i] =
        DecodeTimes(&w[kWordCheckpointTimes + i * (kTimeBounds.size() + 2)]);
  }
}

// Words that were added later: a reader looks at the block's length.
void EncodeFurther(const RankCounters& counters, PageWords* words) {
  PageWords& w = *words;
  const InputCounters& input = counters.input;
  w[kWordBusySeconds] =
      std::bit_cast<uint64_t>(counters.allreduce_busy_seconds);
  w[kWordLagSeconds] = std::bit_cast<uint64_t>(counters.straggler_lag_seconds);
  w[kWordInputBytes] = input.bytes;
  w[kWordCorruptRecords] = input.corrupt_records;
  w[kWordQueueDepth] = input.queue_depth;
  w[kWordQueueCapacity] = input.queue_capacity;
  w[kWordReadSeconds] = std::bit_cast<uint64_t>(input.read_seconds);
  w[kWordDecodeSeconds] = std::bit_cast<uint64_t>(input.decode_seconds);
  w[kWordCheckpointBytes] = counters.checkpoint_bytes;
  w[kWordCheckpointFailures] = counters.checkpoint_failures;
  for (size_t i = 0; i < kCheckpointPhases; ++i) {
    w[kWordCheckpointSeconds + i] =
        std::bit_cast<uint64_t>(counters.checkpoint_seconds[i]);
  }
  EncodeCommunication(counters, words);
  w[kWordCompileSeconds] = std::bit_cast<uint64_t>(
      counters.phase_seconds[static_cast<size_t>(RankPhase::kCompile)]);
}

void DecodeFurther(const PageWords& w, RankCounters* counters) {
  if (w[kWordBlock] >> 32 < kWordSecondEnd - kWordBlock) return;
  InputCounters& input = counters->input;
  counters->allreduce_busy_seconds = Seconds(w[kWordBusySeconds]);
  counters->straggler_lag_seconds = Finite(w[kWordLagSeconds]);
  input.bytes = w[kWordInputBytes];
  input.corrupt_records = w[kWordCorruptRecords];
  input.queue_depth = w[kWordQueueDepth];
  input.queue_capacity = w[kWordQueueCapacity];
  input.read_seconds = Seconds(w[kWordReadSeconds]);
  input.decode_seconds = Seconds(w[kWordDecodeSeconds]);
  counters->checkpoint_bytes = w[kWordCheckpointBytes];
  counters->checkpoint_failures = w[kWordCheckpointFailures];
  for (size_t i = 0; i < kCheckpointPhases; ++i) {
    counters->checkpoint_seconds[i] = Seconds(w[kWordCheckpointSeconds + i]);
  }
  DecodeCommunication(w, counters);
  if (w[kWordBlock] >> 32 < kWordEnd - kWordBlock) return;
  counters->phase_seconds[static_cast<size_t>(RankPhase::kCompile)] =
      Seconds(w[kWordCompileSeconds]);
}

}  // namespace

void EncodeCounters(const RankCounters& counters, PageWords* words) {
  PageWords& w = *words;
  w[kWordBlock] = kBlockVersion | static_cast<uint64_t>(kWordEnd - kWordBlock)
                                      << 32;
  w[kWordStart] = static_cast<uint64_t>(counters.start_mono_nanos);
  for (size_t i = 0; i < kFirstTimedPhases; ++i) {
    w[kWordSeconds + i] = std::bit_cast<uint64_t>(counters.phase_seconds[i]);
  }
  w[kWordSamples] = counters.samples;
  w[kWordAllReduceBytes] = counters.allreduce_bytes;
  w[kWordCollectives] = counters.collectives;
  w[kWordStepsCommitted] = counters.steps_committed;
  w[kWordStepsSkipped] = counters.steps_skipped;
  w[kWordCheckpointsSaved] = counters.checkpoints_saved;
  w[kWordLastCheckpoint] = static_cast<uint64_t>(counters.last_checkpoint_step);
  w[kWordTotalSteps] = counters.total_steps;
  w[kWordGlobalBatch] = counters.global_batch;
  w[kWordEpoch] = counters.epoch;
  w[kWordLoss] = OptionalWord(counters.has_loss, counters.last_loss);
  w[kWordLearningRate] =
      OptionalWord(counters.has_learning_rate, counters.last_learning_rate);
  EncodeFurther(counters, words);
  size_t count = counters.values.size();
  if (count > kMaxReportedValues) count = kMaxReportedValues;
  w[kWordValueCount] = count;
  for (size_t i = 0; i < count; ++i) {
    uint64_t* entry = &w[kWordValues + i * (kNameWords + 1)];
    char name[kReportedNameBytes] = {};
    const std::string& full = counters.values[i].first;
    std::memcpy(name, full.data(), std::min(full.size(), sizeof(name) - 1));
    std::memcpy(entry, name, sizeof(name));
    entry[kNameWords] = std::bit_cast<uint64_t>(counters.values[i].second);
  }
}

uint64_t EncodeWait(const RankWait& wait) {
  if (!wait.known) return 0;
  const uint64_t number =
      !wait.waiting ? kNoWait
      : wait.peer < 0
          ? kWaitForUnknown
          : kWaitForRank + std::min<uint64_t>(wait.peer, kMostRanks);
  return number | wait.waits << kWaitBits;
}

namespace {

RankWait DecodeWait(uint64_t beat, uint64_t word) {
  RankWait wait;
  wait.beat = beat;
  const uint64_t number = word & ((uint64_t{1} << kWaitBits) - 1);
  if (beat == 0 || number == 0 || number > kWaitForRank + kMostRanks) {
    return wait;
  }
  wait.known = true;
  wait.waiting = number != kNoWait;
  if (number >= kWaitForRank) {
    wait.peer = static_cast<int32_t>(number - kWaitForRank);
  }
  wait.waits = word >> kWaitBits;
  return wait;
}

}  // namespace

bool DecodePage(const PageWords& w, RankPage* page, std::string* error) {
  if (w[kWordMagic] != kPageMagic) {
    *error = "the rank's page has the wrong magic number";
    return false;
  }
  RankProgress& p = page->progress;
  p.generation = w[kWordGeneration];
  p.step = w[kWordStep];
  p.collective = w[kWordCollective];
  p.last_committed = static_cast<int64_t>(w[kWordLastCommitted]);
  if (p.last_committed < 0) p.last_committed = -1;
  p.mono_nanos = static_cast<int64_t>(w[kWordMono]);
  if (p.mono_nanos < 0) p.mono_nanos = 0;
  p.phase = PhaseOf(static_cast<uint32_t>(w[kWordPhaseAndRank]));
  p.rank = static_cast<uint32_t>(w[kWordPhaseAndRank] >> 32);
  page->wait = DecodeWait(w[kWordBeat], w[kWordWait]);

  page->counters = RankCounters();
  page->has_counters = static_cast<uint32_t>(w[kWordBlock]) == kBlockVersion;
  if (!page->has_counters) return true;
  RankCounters& c = page->counters;
  c.start_mono_nanos = static_cast<int64_t>(w[kWordStart]);
  if (c.start_mono_nanos < 0) c.start_mono_nanos = 0;
  for (size_t i = 0; i < kFirstTimedPhases; ++i) {
    c.phase_seconds[i] = Seconds(w[kWordSeconds + i]);
  }
  c.samples = w[kWordSamples];
  c.allreduce_bytes = w[kWordAllReduceBytes];
  c.collectives = w[kWordCollectives];
  c.steps_committed = w[kWordStepsCommitted];
  c.steps_skipped = w[kWordStepsSkipped];
  c.checkpoints_saved = w[kWordCheckpointsSaved];
  c.last_checkpoint_step = static_cast<int64_t>(w[kWordLastCheckpoint]);
  if (c.last_checkpoint_step < 0) c.last_checkpoint_step = -1;
  c.total_steps = w[kWordTotalSteps];
  c.global_batch = w[kWordGlobalBatch];
  c.epoch = w[kWordEpoch];
  DecodeOptional(w[kWordLoss], &c.has_loss, &c.last_loss);
  DecodeOptional(w[kWordLearningRate], &c.has_learning_rate,
                 &c.last_learning_rate);
  DecodeFurther(w, &c);
  const uint64_t count =
      std::min<uint64_t>(w[kWordValueCount], kMaxReportedValues);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t* entry = &w[kWordValues + i * (kNameWords + 1)];
    std::string name = DecodeName(entry);
    const double value = std::bit_cast<double>(entry[kNameWords]);
    if (name.empty() || !std::isfinite(value)) continue;
    c.values.emplace_back(std::move(name), value);
  }
  return true;
}

}  // namespace lockstep::worker::task
