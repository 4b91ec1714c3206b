// What its neighbours say of a node that has fallen silent: whether the host is
// gone, or only its way to the coordinator.
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

namespace lockstep {

struct InquiryOptions {
  // What a neighbour gives one connection.
  Duration probe_timeout = std::chrono::milliseconds(500);
  // What the coordinator gives the answers.
  Duration answer_timeout = std::chrono::milliseconds(1000);
  // From an inquiry that found nothing to the next, and from one in which the
  // host was reached.
  Duration again_after = std::chrono::milliseconds(500);
  Duration again_after_reached = std::chrono::seconds(5);
};

// One that does not reach it may be cut off itself, so two are asked where
// there are two.
inline constexpr size_t kAskedNeighbours = 2;

struct Neighbour {
  NodeName node;
  std::string pool;
  std::string address;
};

// The nodes of `ready` that probe a node of `pool` at `address`: two on other
// hosts, those of its pool first, or the one that is there. `hosts`: how many
// the cluster has, the silent ones included. Empty: no other host is ready, or
// there are only two in all.
std::vector<NodeName> ChooseNeighbours(const std::string& pool,
                                       const std::string& address,
                                       std::vector<Neighbour> ready,
                                       size_t hosts);

// About one silent node, again and again until it is heard of or lost.
class Inquiry {
 public:
  enum class Finding {
    // Never asked, or never answered by all.
    kNone,
    // None of those who were asked reaches it.
    kUnreachable,
    kReached,
  };

  explicit Inquiry(InquiryOptions options = {}) : options_(options) {}

  // Whether to ask (again).
  bool IsDue(MonoTime now) const;
  // `asked` are those of ChooseNeighbours; with none it is tried again later.
  void Begin(uint64_t id, const std::vector<NodeName>& asked, MonoTime now);
  // Answers of who was not asked, of another id, and repeats count as nothing.
  void Take(uint64_t id, const NodeName& neighbour, const ProbeResult& result,
            MonoTime now);

  // The last one, also while the next is asked for.
  Finding finding() const { return finding_; }
  // Once: the node is not reached, and that is worth an event.
  bool MayNote() { return !std::exchange(noted_, true); }
  // When those of the last finding were asked.
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
  // Absent: not answered.
  std::map<NodeName, std::optional<ProbeResult>> answers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_INQUIRY_H_
