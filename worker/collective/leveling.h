// Gives every rank of a communicator that a recovery has formed the state of
// the most advanced one (docs/design/recovery.md).
//
// PlanLevel is PURE. Level communicates: all ranks call it, between the same
// operations. Thread-compatible.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_LEVELING_H_
#define LOCKSTEP_WORKER_COLLECTIVE_LEVELING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

// The memory of a replica's state, in place: parameters, the optimizer's state.
// Number, order and sizes are the same on all ranks.
using StateMemory = std::vector<std::span<std::byte>>;

// The part of it that lies on the communicator's device. `stream` is not null
// then: what computes the state is on it.
struct DeviceState {
  StateMemory memory;
  Stream stream = nullptr;
};

inline constexpr size_t kLevelChunk = 4 << 20;

// CRC32C of each chunk of kLevelChunk bytes; a chunk lies in one part.
struct StateDigest {
  std::vector<uint32_t> chunks;
  // Of the chunks and the sizes of the parts.
  uint64_t hash = 0;

  bool operator==(const StateDigest&) const = default;
};
StateDigest DigestOf(const StateMemory& memory);
// The same of `memory` and, behind it, what lies on the device.
// InvalidArgument: the backend has no device, or there is no stream; else the
// device's errors.
StatusOr<StateDigest> DigestOf(Communicator* communicator,
                               const StateMemory& memory,
                               const DeviceState& device);

// A rank's part in the decision.
struct LevelRecord {
  // False for a replacement: it has no state yet.
  bool has_state = false;
  // Steps in its state.
  int64_t committed = 0;
  uint64_t digest = 0;
  // A checkpoint has begun on it and is not settled.
  bool in_flight = false;
  // It knows the learned order of the buckets.
  bool learned = false;

  bool operator==(const LevelRecord&) const = default;
};

struct LevelPlan {
  // The steps that all ranks will have.
  int64_t step = 0;
  // Ranks that send. Those that have learned the order of the buckets come
  // first; otherwise ascending. The first one also sends the small part.
  std::vector<int> sources;
  // Ranks that receive, ascending.
  std::vector<int> receivers;
  // Some rank has a checkpoint in flight: all give it up, and begin another.
  bool redo_checkpoint = false;

  bool operator==(const LevelPlan&) const = default;
};

// The same on all ranks. FailedPrecondition: no rank has a state (reason
// NO_STATE), or ranks with equal steps have different states (reason DIVERGED;
// the sentence names them), or two states are more than one step apart (reason
// DIVERGED).
StatusOr<LevelPlan> PlanLevel(std::span<const LevelRecord> records);

struct LevelInput {
  LevelRecord record;
  StateMemory memory;
  DeviceState device;
  // Of `memory` and `device`, where record.has_state.
  StateDigest digest;
  // This rank's small part: positions, random numbers, orders. At most 64 MiB.
  std::string small;
};

struct LevelResult {
  LevelPlan plan;
  // The first source's small part, on every rank.
  std::string small;
  // Bytes that one receiver got; 0 where there was no receiver.
  int64_t bytes = 0;
  Duration time{};
};

// On success every rank's memory has plan.step steps. After an error the memory
// of a receiver is undefined: it must not be used as a state. `written`, where
// not null, becomes true before a byte of it is changed. Errors: those of
// PlanLevel; InvalidArgument, on all ranks, where memory differs in sizes;
// DataLoss (reason LEVEL_CRC), on all ranks, where a receiver's bytes do not
// match; those of DigestOf; else the communicator's.
StatusOr<LevelResult> Level(Communicator* communicator, LevelInput input,
                            Duration operation_timeout,
                            bool* written = nullptr);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_LEVELING_H_
