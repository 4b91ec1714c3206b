// What is stored of a node: who it is, what operators want of it, and what
// happened to it. Pure value; membership.h knows whether it is there.
#ifndef LOCKSTEP_SERVER_CORE_NODE_RECORD_H_
#define LOCKSTEP_SERVER_CORE_NODE_RECORD_H_

#include <optional>
#include <string>
#include <vector>

#include "common/model/node.h"

namespace lockstep {

// An operator's wish that a node takes no new work. Without a grace its jobs
// run to their end; with one they are moved, and what still runs there after
// it is killed.
struct Drain {
  // "user/ann".
  std::string requester;
  std::string reason;
  WallTime time{};
  std::optional<Duration> grace;

  std::optional<WallTime> deadline() const {
    return grace ? std::optional<WallTime>(time + *grace) : std::nullopt;
  }
  bool operator==(const Drain&) const = default;
};

// "drained by user/ann: new kernel".
std::string Describe(const Drain& drain);

struct NodeRecord {
  // Of what its daemon offers, capacity and gpus are what may be used.
  NodeInfo info;
  std::optional<Drain> drain;
  // Oldest first; the newest kMaxNodeEvents.
  std::vector<Event> events;
  // Since when it is in the state that was last seen.
  WallTime state_time{};
  // GPUs that it offered once and does not offer any more: until they come
  // back, or the node is forgotten. At most kMaxMissingGpus.
  std::vector<Gpu> missing_gpus;
  // The most that may be used of it (node_approval.h); nullopt: it was stored
  // before there were approvals, and all that it had may be.
  std::optional<Resources> approved;
  // What its daemon offers, where that is more than may be used.
  std::optional<Resources> offered;
  // Of the GPUs that it offers, those that may not be used yet.
  std::vector<Gpu> withheld_gpus;

  bool operator==(const NodeRecord&) const = default;
};

inline constexpr size_t kMaxNodeEvents = 50;
inline constexpr size_t kMaxMissingGpus = 64;

// Appends an event; the oldest go.
void AddEvent(NodeRecord* node, Reason reason, std::string message,
              WallTime now);

// By the uuid, and by the index where one of the two has none.
bool IsSameGpu(const Gpu& a, const Gpu& b);

// "GPU 3 (NVIDIA H100, GPU-12ab)".
std::string GpuLabel(const Gpu& gpu);

// Indices of the GPUs about which the node knows nothing: they fell off the
// bus, or their driver hangs.
std::vector<int32_t> SilentGpus(const NodeReadings& readings);

// The node, that offered `before`, offers now what its record says: GPUs that
// are not among those are missing, those that were and are there again are
// not; with an event for each. A GPU is known by its uuid, and by its index
// where it has none.
void CompareGpus(const std::vector<Gpu>& before, NodeRecord* node,
                 WallTime now);

// Sets the faults of `before` on those of `gpus` that are the same.
void KeepFaults(const std::vector<Gpu>& before, std::vector<Gpu>* gpus);

// Record and event of the command. Draining again replaces reason and grace.
NodeRecord DrainNode(const NodeRecord& node, Drain drain);
// Its GPUs lose their faults, too. A node that is neither drained nor
// `quarantined` and has no faults stays as it is.
NodeRecord UndrainNode(const NodeRecord& node, bool quarantined,
                       const std::string& requester, WallTime now);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_NODE_RECORD_H_
