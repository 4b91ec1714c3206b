// What a generation that failed says of its nodes and of the ways between them.
// Pure; for restart.cc and strikes.h.
//
// Ranks name peers that they did not reach or lost. That speaks of the network
// only where nothing else explains it: a peer that had ended before had gone by
// itself, and a refusal, a reset or an end of the connection came from a host
// that answers. All ranks of two nodes that stood in one all-reduce lost each
// other, too. Beside that the nodes of a gang that broke are asked whether
// they reach each other (pair_probe.h): what they say now goes before what the
// ranks said.
#ifndef LOCKSTEP_SERVER_CORE_EVIDENCE_H_
#define LOCKSTEP_SERVER_CORE_EVIDENCE_H_

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/model/job.h"
#include "server/core/lost_pair.h"

namespace lockstep {

struct Job;
struct JobView;

struct GangEvidence {
  // At most one of each two nodes, by name.
  std::vector<LostPair> pairs;
  // That did not prepare or start their ranks in time.
  std::set<NodeName> late;

  bool empty() const { return pairs.empty() && late.empty(); }
  bool operator==(const GangEvidence&) const = default;
};

// Whether an error of a connection says that the other host answered: with a
// refusal, or by ending it.
bool HostAnswered(const std::string& error);

// Of `tasks`, which are those of `generation` with all exits that are known.
GangEvidence EvidenceOf(const std::vector<TaskStatus>& tasks,
                        Generation generation, const JobView& view);

// The pairs of nodes, each in the order of its names, of which the ranks of
// `tasks` say that one lost the other and that it did not answer.
std::set<std::pair<NodeName, NodeName>> NamedPairs(
    const std::vector<TaskStatus>& tasks, Generation generation,
    const JobView& view);

// The nodes that a generation, which is being given up for `cause` now, waited
// for in vain: PREPARE_TIMEOUT, and FORM_TIMEOUT before all ranks have started.
std::set<NodeName> LateNodes(const Job& job, const JobView& view,
                             const Cause& cause);

// Where the rank that made `attempt` fail was killed by a signal; nullopt: that
// was not what ended it.
std::optional<NodeName> KilledOn(const Attempt& attempt);
// The node on which the last two attempts of the job were killed.
std::optional<NodeName> KilledTwiceOn(const Job& job);

// The fewest nodes of which each pair has one, those of `pairs` that are part
// of more of them first, never `keep` where another does; by name. Empty: there
// are none, or no eight nodes explain them all.
std::vector<NodeName> SmallestCover(const std::vector<LostPair>& pairs,
                                    const NodeName& keep);

// "n1 does not reach n2 (Connection timed out)", of a few.
std::string Describe(const std::vector<LostPair>& pairs);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_EVIDENCE_H_
