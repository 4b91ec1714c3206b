// Finds which nodes of a failed gang reach each other. Pure.
//
// Each node is asked whether it reaches the others at the addresses of the data
// plane (common/model/probe.h). A missing answer is not evidence.
#ifndef LOCKSTEP_SERVER_CORE_PAIR_PROBE_H_
#define LOCKSTEP_SERVER_CORE_PAIR_PROBE_H_

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/model/probe.h"
#include "server/core/lost_pair.h"

namespace lockstep::server {

class PairProbe {
 public:
  // `asked` maps each asked node to its targets. The probe ends at `deadline`
  // at the latest.
  PairProbe(std::map<NodeName, std::set<NodeName>> asked, MonoTime deadline)
      : asked_(std::move(asked)), deadline_(deadline) {}

  // Ignores results that were not asked for.
  void Take(const NodeName& from, const ProbeResult& result);
  bool IsOver(MonoTime now) const;

  // Pairs that do not reach each other in at least one direction, by name. At
  // most one entry for each two nodes.
  std::vector<LostPair> Unreached() const;
  // Pairs that reach each other in both directions, each in name order.
  std::set<std::pair<NodeName, NodeName>> Reached() const;

 private:
  const std::map<NodeName, std::set<NodeName>> asked_;
  const MonoTime deadline_;
  std::map<std::pair<NodeName, NodeName>, ProbeResult> answers_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_CORE_PAIR_PROBE_H_
