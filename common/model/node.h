// A host with its worker daemon, as the system knows it. Pure values.
#ifndef LOCKSTEP_COMMON_MODEL_NODE_H_
#define LOCKSTEP_COMMON_MODEL_NODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/job.h"
#include "common/model/resources.h"

namespace lockstep {

// One start of a worker daemon. Ordered by `counter`; two with the same
// counter and other nonces are two live copies of one node.
struct Incarnation {
  uint64_t counter = 0;
  uint64_t nonce = 0;

  bool operator==(const Incarnation&) const = default;
};

enum class NodeState { kReady = 1, kUnknown = 2, kLost = 3 };
std::string_view Name(NodeState state);

// What a worker daemon says of its host when it registers.
struct NodeInfo {
  NodeName name;
  Incarnation incarnation;
  std::string boot_id;
  std::string hostname;
  std::string version;
  // IP of the data plane.
  std::string address;
  std::string http_address;
  Resources capacity;
  std::vector<Gpu> gpus;
  bool limits_enforced = false;

  bool operator==(const NodeInfo&) const = default;
};

enum class Goal { kPrepare = 1, kLaunch = 2, kGo = 3, kStop = 4, kForget = 5 };
std::string_view Name(Goal goal);

enum class GangPhase {
  kPreparing = 1,
  kPrepared = 2,
  kRefused = 3,
  kLaunched = 4,
  kStopping = 5,
  kStopped = 6,
};
std::string_view Name(GangPhase phase);

struct RankEvent {
  uint32_t number = 0;
  int32_t rank = 0;
  WallTime time{};
  Reason reason = Reason::kNone;
  std::string message;

  bool operator==(const RankEvent&) const = default;
};

// Where one node is with one generation of a job.
struct GangStatus {
  JobName job;
  std::string job_uid;
  Generation generation = 0;
  GangPhase phase = GangPhase::kPreparing;
  Cause refusal;
  std::vector<int32_t> ports;
  int32_t master_port = 0;
  std::vector<RankStatus> ranks;
  std::optional<Checkpoint> checkpoint;
  std::map<std::string, std::string> artifacts;
  std::vector<RankEvent> events;
  std::optional<int64_t> resumed_step;
  uint32_t directive_done = 0;

  bool operator==(const GangStatus&) const = default;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_NODE_H_
