// The stored state of a node: identity, operators' orders, events. Pure value.
// membership.h tracks whether the node is connected.
#ifndef LOCKSTEP_SERVER_CORE_NODE_RECORD_H_
#define LOCKSTEP_SERVER_CORE_NODE_RECORD_H_

#include <optional>
#include <string>
#include <vector>

#include "common/model/node.h"

namespace lockstep::server {

// An operator's order that a node gets no new work. Without a grace its jobs
// run to their end. With one they are moved, and ranks that still run after it
// are killed.
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
  // Its capacity and gpus are the usable part of what the daemon offers.
  NodeInfo info;
  std::optional<Drain> drain;
  // Oldest first; the newest kMaxNodeEvents.
  std::vector<Event> events;
  // When it entered its last observed state.
  WallTime state_time{};
  // GPUs that it no longer offers, until they return or the node is forgotten.
  // At most kMaxMissingGpus.
  std::vector<Gpu> missing_gpus;
  // The most that may be used (node_approval.h). nullopt if the record is older
  // than approvals: then everything that it had may be used.
  std::optional<Resources> approved;
  // What its daemon offers, if that exceeds what may be used.
  std::optional<Resources> offered;
  // Offered GPUs that may not be used yet.
  std::vector<Gpu> withheld_gpus;

  bool operator==(const NodeRecord&) const = default;
};

// How long readings that stand do not withhold a GPU whose fault an operator
// has lifted.
inline constexpr Duration kLiftLasts = std::chrono::hours(24);
inline constexpr size_t kMaxNodeEvents = 50;
inline constexpr size_t kMaxMissingGpus = 64;

// "12:35:20 UTC", for sentences.
std::string ClockText(WallTime time);

// Appends an event and removes the oldest beyond kMaxNodeEvents.
void AddEvent(NodeRecord* node, Reason reason, std::string message,
              WallTime now);

// Compares the uuids, or the indices if one of the two has no uuid.
bool IsSameGpu(const Gpu& a, const Gpu& b);

// "GPU 3 (NVIDIA H100, GPU-12ab)".
std::string GpuLabel(const Gpu& gpu);

// Returns the indices of the GPUs that do not answer: they fell off the bus, or
// their driver hangs.
std::vector<int32_t> SilentGpus(const NodeReadings& readings);

// Updates missing_gpus after the node's offer changed from `before` to that of
// its record: GPUs that vanished become missing, GPUs that returned no longer
// are. Adds an event for each. GPUs are compared by IsSameGpu.
void CompareGpus(const std::vector<Gpu>& before, NodeRecord* node,
                 WallTime now);

// Copies the faults in `before` to the same GPUs in `gpus`, and until when
// operators' lifts of faults hold. `booted`: the host has booted since, which
// ends faults, and no lift.
void KeepFaults(const std::vector<Gpu>& before, bool booted,
                std::vector<Gpu>* gpus);

// Returns the record after the command, with its event. Draining again replaces
// reason and grace.
NodeRecord DrainNode(const NodeRecord& node, Drain drain);
// Also clears the faults of its GPUs. Unchanged if the node is neither drained
// nor `quarantined` and has no faults.
NodeRecord UndrainNode(const NodeRecord& node, bool quarantined,
                       const std::string& requester, WallTime now);

// Clears the faults of these GPUs, by index, for kLiftLasts also those that
// standing readings would give. Unchanged if they have none.
NodeRecord LiftFaults(const NodeRecord& node, const std::vector<int32_t>& gpus,
                      const std::string& requester, WallTime now);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_NODE_RECORD_H_
