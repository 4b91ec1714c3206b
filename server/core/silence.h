// When a program moves off a silent host, and why no two copies of it run.
//
// Nothing shows whether a program on a silent host lives. So its ranks end by
// themselves there (the fence), before the coordinator gives them to another
// host. With T, the time after which the host counts as lost (5 min, or the
// job's node_lost_timeout), and M = MarginOf(T) (1 min for 5 min):
//
//   S      the daemon sends the last heartbeat that the coordinator answers
//   R      the coordinator gets it, or a later one: R >= S
//   S + F  no process of its ranks is left, F = T - M. The shim has the time:
//          of CLOCK_BOOTTIME, from the rank's start on, renewed by the daemon
//          with the time at which it sent what was answered. So it holds with a
//          daemon that is dead or stopped, after a sleep of the machine, and
//          for a cut in one direction only.
//   R + T  the coordinator counts the host as lost. Its own clock may only have
//          stood still meanwhile, which makes this later; a coordinator that
//          starts again counts from its start, which is later, too.
//
// S + F + M <= R + T: M is what remains for processes that are slow to die, and
// for clocks that differ in speed.
//
// That alone would end all programs in an outage of the coordinator. So without
// a node_lost_timeout an answer of a neighbour's daemon renews the fence, too,
// and the coordinator needs to know that the host had none. A host gets the
// list of its neighbours from the coordinator, of READY nodes only. At R + T
// the coordinator asks all READY nodes since when they have answered nothing to
// the host (`quiet`). If this is F and a second for each of them, its ranks
// have ended, whichever list the host has: an answer from before is too old,
// and a later one revives nothing. A node of its list that is not READY any
// more cannot be asked: then it fell silent, or an operator gave it up, after
// the host had its list, and the job waits for an operator. A node that had
// been silent for kTogether before is in no list: a list without it is sent
// within seconds, and a daemon that gets nothing reconnects after a minute.
//
// What remains is a hypervisor that stops a machine's clocks with the machine:
// the ranks go on until the daemon has reached the coordinator, as those of any
// job. And a process that SIGKILL does not end (state D) ends when the kernel
// lets it.
//
// A program whose ranks recover in place need not wait for all of that: see
// NeedTheOthers in recovery.h.
//
// Pure: no I/O, no lock, no clock.
#ifndef LOCKSTEP_SERVER_CORE_SILENCE_H_
#define LOCKSTEP_SERVER_CORE_SILENCE_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/node.h"
#include "common/model/probe.h"
#include "server/core/job.h"

namespace lockstep::server {

struct SilenceOptions {
  // T without a node_lost_timeout.
  Duration lost_after = std::chrono::minutes(5);
  // How long the coordinator waits for the neighbours, and until it asks again.
  Duration answer_timeout = std::chrono::seconds(2);
  Duration ask_again = std::chrono::seconds(5);
  // Hosts that fell silent within this time count as silent together. Longer
  // than a daemon takes to notice that it gets nothing.
  Duration together = std::chrono::minutes(5);
  // At most this often a node's list of neighbours is sent.
  Duration list_interval = std::chrono::seconds(2);
  // And not before this after the coordinator's start: until the others are
  // back, the lists of its predecessor are better.
  Duration first_list = std::chrono::seconds(5);
};

// M of T.
Duration MarginOf(Duration lost_after);
// What the job's ranks are launched with; nullopt: they go on whatever happens.
std::optional<Fence> FenceOf(const JobSpec& spec,
                             const SilenceOptions& options);

// The answers of all nodes that a silent node may have as neighbours.
class Attestation {
 public:
  struct Finding {
    // When they were asked.
    MonoTime asked_at{};
    std::set<NodeName> asked;
    // Since when each of them has answered nothing to the silent node, at
    // least; and which of them has answered last.
    Duration quiet{};
    NodeName last;
  };

  bool IsDue(MonoTime now) const { return !next_ || now >= *next_; }
  void Begin(uint64_t id, std::set<NodeName> asked, MonoTime now,
             const SilenceOptions& options);
  // Ignores answers of nodes that were not asked, of another id, and late ones.
  void Take(uint64_t id, const NodeName& neighbour, const ProbeResult& result,
            MonoTime now);
  // The last complete one.
  const std::optional<Finding>& finding() const { return finding_; }

 private:
  uint64_t id_ = 0;
  MonoTime asked_at_{};
  MonoTime until_{};
  std::optional<MonoTime> next_;
  std::map<NodeName, std::optional<Duration>> answers_;
  std::optional<Finding> finding_;
};

// What is known of a silent node.
struct Silence {
  NodeName node;
  WallTime since{};
  // The same, without the time in which the coordinator stood still.
  Duration silent{};
  // Hosts that fell silent at about the same time, or were given up since.
  std::vector<NodeName> together;
  // READY nodes on other hosts.
  size_t neighbours = 0;
  std::optional<Attestation::Finding> finding;
  // Those who had to be asked have been, after T.
  bool all_asked = false;
};

struct Outlook {
  enum class Kind {
    // The node counts as lost at a time that is known.
    kMoves,
    // It counts as lost when an operator says so.
    kWaits,
    // Now.
    kLost,
  };
  Kind kind = Kind::kWaits;
  // kMoves: when its ranks have ended, and when it counts as lost.
  WallTime ends{};
  WallTime moves{};
  // kWaits: "no other host is connected".
  std::string why;

  bool operator==(const Outlook&) const = default;
};

// `fence` is that of all the job's holds on the node; nullopt: of one it is
// unknown. REQUIRES: the job is a program.
Outlook OutlookOf(const JobSpec& spec, const std::optional<Fence>& fence,
                  const Silence& silence, const SilenceOptions& options);

// A sentence for the job's history and for whoever looks at the job: what
// happens when, or what an operator can do.
std::string Describe(const Outlook& outlook, const Silence& silence);

// A node that may be in lists.
struct Listed {
  ProbeTarget target;
  std::string pool;

  bool operator==(const Listed&) const = default;
};

// The list of each node of `all`, which are in order of pool and name: the
// next ones on other hosts, in a ring.
std::map<NodeName, NeighbourList> NeighboursOf(const std::vector<Listed>& all);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_SILENCE_H_
