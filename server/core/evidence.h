// Evidence from a failed generation about its nodes and the network between
// them. Pure; for restart.cc and strikes.h.
//
// Ranks name peers that they did not reach or lost. This is evidence about the
// network only if nothing else explains it: a peer that ended earlier closed
// its connections itself, and a refusal, a reset or an end of the connection
// comes from a host that answers. If all ranks stalled in one all-reduce, their
// nodes count as having lost each other, too. In addition, the nodes of a gang
// that failed are asked whether they reach each other (pair_probe.h). Their
// answers take precedence over what the ranks reported.
#ifndef LOCKSTEP_SERVER_CORE_EVIDENCE_H_
#define LOCKSTEP_SERVER_CORE_EVIDENCE_H_

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/model/job.h"
#include "server/core/lost_pair.h"

namespace lockstep::server {

struct Job;
struct JobView;

struct GangEvidence {
  // Ordered by name; at most one entry for each two nodes.
  std::vector<LostPair> pairs;
  // Nodes that did not prepare or start their ranks in time.
  std::set<NodeName> late;

  bool empty() const { return pairs.empty() && late.empty(); }
  bool operator==(const GangEvidence&) const = default;
};

// Whether a connection error shows that the other host answered: by a refusal,
// or by ending the connection.
bool HostAnswered(const std::string& error);

// Returns the evidence of `tasks`: those of `generation`, with all known exits.
GangEvidence EvidenceOf(const std::vector<TaskStatus>& tasks,
                        Generation generation, const JobView& view);

// Returns the pairs of nodes, each in the order of its names, for which a rank
// of `tasks` reports that its node lost the other and got no answer.
std::set<std::pair<NodeName, NodeName>> NamedPairs(
    const std::vector<TaskStatus>& tasks, Generation generation,
    const JobView& view);

// Returns the nodes that did not respond in time to a generation that is given
// up for `cause`: PREPARE_TIMEOUT, or FORM_TIMEOUT before all ranks started.
std::set<NodeName> LateNodes(const Job& job, const JobView& view,
                             const Cause& cause);

// Returns the node on which a signal killed the rank that made `attempt` fail;
// nullopt if the attempt ended for another cause.
std::optional<NodeName> KilledOn(const Attempt& attempt);
// Returns the node on which the last two attempts of the job were killed.
std::optional<NodeName> KilledTwiceOn(const Job& job);

// Returns a smallest set of nodes that contains one node of each pair, by name.
// Nodes that are part of more pairs are preferred, and any other node over
// `keep`. Empty if `pairs` is empty, or if no eight nodes cover all pairs.
std::vector<NodeName> SmallestCover(const std::vector<LostPair>& pairs,
                                    const NodeName& keep);

// "n1 does not reach n2 (Connection timed out)", for the first few pairs.
std::string Describe(const std::vector<LostPair>& pairs);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_EVIDENCE_H_
