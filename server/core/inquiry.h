// Asks the neighbours of a silent node whether its host is down, or only its
// path to the coordinator.
//
// Pure: no I/O, no lock, no clock.
#ifndef LOCKSTEP_SERVER_CORE_INQUIRY_H_
#define LOCKSTEP_SERVER_CORE_INQUIRY_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/model/probe.h"

namespace lockstep::server {

struct InquiryOptions {
  // Timeout of one connection attempt of a neighbour.
  Duration probe_timeout = std::chrono::milliseconds(500);
  // How long the coordinator waits for the answers.
  Duration answer_timeout = std::chrono::milliseconds(1000);
  // Wait before the next inquiry, after one without a finding and after one in
  // which the host was reached.
  Duration again_after = std::chrono::milliseconds(500);
  Duration again_after_reached = std::chrono::seconds(5);
};

// A neighbour that does not reach the node may be cut off itself, so two are
// asked if there are two.
inline constexpr size_t kAskedNeighbours = 2;

struct Neighbour {
  NodeName node;
  std::string pool;
  std::string address;
};

// Returns the nodes of `ready` that probe a node of `pool` at `address`: two on
// other hosts, those of its pool first, or one if there is only one. `hosts` is
// the number of hosts in the cluster, silent ones included. Empty if no other
// host is ready, or if the cluster has only two hosts.
std::vector<NodeName> ChooseNeighbours(const std::string& pool,
                                       const std::string& address,
                                       std::vector<Neighbour> ready,
                                       size_t hosts);

// Inquires about one silent node repeatedly, until the node beats or is lost.
class Inquiry {
 public:
  enum class Finding {
    // Not asked yet, or no inquiry was answered completely.
    kNone,
    // None of the neighbours reaches it.
    kUnreachable,
    kReached,
  };

  explicit Inquiry(InquiryOptions options = {}) : options_(options) {}

  // Whether an inquiry should begin now.
  bool IsDue(MonoTime now) const;
  // `asked` comes from ChooseNeighbours. If it is empty, IsDue() becomes true
  // again later.
  void Begin(uint64_t id, const std::vector<NodeName>& asked, MonoTime now);
  // Ignores answers of nodes that were not asked, of another id, and repeats.
  void Take(uint64_t id, const NodeName& neighbour, const ProbeResult& result,
            MonoTime now);

  // The last finding, also while the next inquiry is under way.
  Finding finding() const { return finding_; }
  // True on the first call only: the caller adds an event that the node is not
  // reached.
  bool MayNote() { return !std::exchange(noted_, true); }
  // When the inquiry of the last finding began.
  MonoTime asked_at() const { return found_asked_at_; }
  // "b (Connection timed out) and c (No route to host)".
  std::string Describe() const;

 private:
  void Conclude(MonoTime now);
  void Find(Finding finding, MonoTime next);

  const InquiryOptions options_;
  Finding finding_ = Finding::kNone;
  uint64_t id_ = 0;
  MonoTime asked_at_{};
  MonoTime found_asked_at_{};
  std::optional<MonoTime> next_;
  bool noted_ = false;
  // nullopt: not answered yet.
  std::map<NodeName, std::optional<ProbeResult>> answers_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_INQUIRY_H_
