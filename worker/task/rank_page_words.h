// Positions of the values in a rank's page, in 64-bit words. Only rank_page*.cc
// and their test need this.
#ifndef LOCKSTEP_WORKER_TASK_RANK_PAGE_WORDS_H_
#define LOCKSTEP_WORKER_TASK_RANK_PAGE_WORDS_H_

#include <cstddef>
#include <cstdint>

#include "worker/task/rank_page.h"

namespace lockstep::worker::task {

// "LSPAGE01" as a little-endian word.
inline constexpr uint64_t kPageMagic = 0x313045474150534cull;

enum PageWord : size_t {
  // The first cache line.
  kWordMagic = 0,
  kWordSequence = 1,
  kWordGeneration = 2,
  kWordStep = 3,
  kWordCollective = 4,
  kWordLastCommitted = 5,
  kWordMono = 6,
  kWordPhaseAndRank = 7,
  // The block of counters, version 1. Low half: version; high half: words.
  kWordBlock = 8,
  kWordStart = 9,
  kWordSeconds = 10,  // kFirstTimedPhases words.
  kWordSamples = 18,
  kWordAllReduceBytes = 19,
  kWordCollectives = 20,
  kWordStepsCommitted = 21,
  kWordStepsSkipped = 22,
  kWordCheckpointsSaved = 23,
  kWordLastCheckpoint = 24,
  kWordTotalSteps = 25,
  kWordGlobalBatch = 26,
  kWordEpoch = 27,
  kWordLoss = 28,
  kWordLearningRate = 29,
  kWordValueCount = 30,
  kWordValues = 32,  // kMaxReportedValues times: 4 words name, 1 word value.
  // End of the first edition of version 1.
  kWordFirstEnd =
      kWordValues + kMaxReportedValues * (kReportedNameBytes / 8 + 1),
  kWordBusySeconds = kWordFirstEnd,
  kWordLagSeconds = 113,
  kWordInputBytes = 114,
  kWordCorruptRecords = 115,
  kWordQueueDepth = 116,
  kWordQueueCapacity = 117,
  kWordReadSeconds = 118,
  kWordDecodeSeconds = 119,
  kWordCheckpointBytes = 120,
  kWordCheckpointFailures = 121,
  kWordCheckpointSeconds = 122,  // kCheckpointPhases words.
  // End of the second edition.
  kWordSecondEnd = kWordCheckpointSeconds + kCheckpointPhases,
  kWordLateRank = kWordSecondEnd,  // -1: not known.
  kWordLateWaited,
  kWordStraggler,       // -1: not known.
  kWordStragglerSteps,  // Low half: looked at; high half: late.
  kWordStragglerCost,
  kWordBusBandwidth,
  kWordLateRanks,  // kLateRanks times: rank (-1: none), steps, seconds.
  kWordStepTimes = kWordLateRanks + 3 * kLateRanks,
  kWordCheckpointTimes = kWordStepTimes + kTimeBounds.size() + 2,
  // End of the third edition.
  kWordThirdEnd =
      kWordCheckpointTimes + kCheckpointPhases * (kTimeBounds.size() + 2),
  kWordCompileSeconds = kWordThirdEnd,
  kWordEnd,
  // Another thread writes these, without the lock.
  kWordBeat = kPageWords - 2,
  // Bits 0 to 19: 0 not known, 1 does not wait, 2 waits, 3 + r waits for rank
  // r. Above: the number of waits.
  kWordWait = kPageWords - 1,
};
// Of the first edition: all but compile.
inline constexpr size_t kFirstTimedPhases = 8;
static_assert(kWordFirstEnd + 1 == kWordLagSeconds);
static_assert(kWordSeconds + kFirstTimedPhases == kWordSamples);
static_assert(kFirstTimedPhases + 1 == kTimedPhases);
static_assert(kWordEnd <= kWordBeat);

}  // namespace lockstep::worker::task

#endif  // LOCKSTEP_WORKER_TASK_RANK_PAGE_WORDS_H_
