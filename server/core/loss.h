// What a job that recovers in place has lost, or gets back, and why. Pure; for
// recovery.h.
#ifndef LOCKSTEP_SERVER_CORE_LOSS_H_
#define LOCKSTEP_SERVER_CORE_LOSS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/core/job_view.h"
#include "server/core/verdict.h"

namespace lockstep::server {

// So long may ranks have left their communicator before that alone counts as a
// loss: of the network.
inline constexpr Duration kParkedPatience = std::chrono::seconds(2);

// What was lost, and why.
struct Loss {
  Failure failure;
  // None: the network failed.
  std::set<int32_t> ranks;
  // The nodes that they move away from.
  std::vector<NodeName> from;
  // No failure: the ranks move away from a drained node.
  bool drained = false;
  // How long the replacement has waited.
  Duration waited{};
  // It belongs to the failure that led to the last recovery.
  bool known = false;
  // Ranks that go away, and the others train without them.
  std::set<int32_t> away;
  // Ranks that were away, and are members again.
  std::set<int32_t> returning;
  // No rank is started again now.
  bool later = false;

  // It uses up no try: nothing failed, or that was accounted for.
  bool IsFree() const {
    const bool failed = !failure.cause.message.empty();
    return known || drained || (ranks.empty() && (!away.empty() || !failed));
  }
};

// Whether the rank's process has ended, and not with 0.
inline bool HasFailed(const RankStatus& rank) {
  return rank.exit && !rank.exit->ok();
}

// Whether the rank runs and has the state. Ranks of programs never report that
// they have joined.
bool Survives(const Job& job, const RankStatus& rank);

// Returns nullopt if nothing is lost, and no rank is back. Failed ranks, a
// frozen one, ranks whose new node is ready, and what the others need not wait
// for any longer.
// `recovering`: as IsRecovering says (recovery.h).
std::optional<Loss> FindLoss(const Job& job, const JobView& view,
                             bool recovering, Time now);

// Whether all of it are ranks that failed where they are, and one did so soon
// after it was back (elastic.h).
bool FailedSoon(const Job& job, const Loss& loss, Time now);

// For people: "rank 1 is back", "node b is lost; 3 ranks train on without rank
// 1".
std::string Describe(const Job& job, const Loss& loss);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_LOSS_H_
