// Which nodes of a gang that broke reach each other. Pure.
//
// Each is asked whether it reaches the others, over the addresses of the data
// plane (common/model/probe.h). Who does not answer says nothing.
#ifndef LOCKSTEP_SERVER_CORE_PAIR_PROBE_H_
#define LOCKSTEP_SERVER_CORE_PAIR_PROBE_H_

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/model/probe.h"
#include "server/core/lost_pair.h"

namespace lockstep {

class PairProbe {
 public:
  // `asked`: each with those that it is asked about. Ends at `deadline` at the
  // latest.
  PairProbe(std::map<NodeName, std::set<NodeName>> asked, MonoTime deadline)
      : asked_(std::move(asked)), deadline_(deadline) {}

  // What was not asked counts as nothing.
  void Take(const NodeName& from, const ProbeResult& result);
  bool IsOver(MonoTime now) const;

  // In one direction at least. One of each two nodes, by name.
  std::vector<LostPair> Unreached() const;
  // In both directions; each pair in the order of its names.
  std::set<std::pair<NodeName, NodeName>> Reached() const;

 private:
  const std::map<NodeName, std::set<NodeName>> asked_;
  const MonoTime deadline_;
  std::map<std::pair<NodeName, NodeName>, ProbeResult> answers_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_CORE_PAIR_PROBE_H_
