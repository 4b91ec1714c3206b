#include "server/core/pair_probe.h"

namespace lockstep::server {

void PairProbe::Take(const NodeName& from, const ProbeResult& result) {
  const auto asked = asked_.find(from);
  if (asked == asked_.end() || !asked->second.contains(result.node)) return;
  answers_.try_emplace({from, result.node}, result);
}

bool PairProbe::IsOver(MonoTime now) const {
  size_t expected = 0;
  for (const auto& [node, about] : asked_) expected += about.size();
  return answers_.size() == expected || now >= deadline_;
}

std::vector<LostPair> PairProbe::Unreached() const {
  std::vector<LostPair> pairs;
  for (const auto& [way, answer] : answers_) {
    if (answer.reached) continue;
    const auto& [from, to] = way;
    // The other node reported this pair already.
    const auto back = answers_.find({to, from});
    if (to < from && back != answers_.end() && !back->second.reached) continue;
    LostPair pair{from, to, answer.error};
    pair.tested = true;
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

std::set<std::pair<NodeName, NodeName>> PairProbe::Reached() const {
  std::set<std::pair<NodeName, NodeName>> reached;
  for (const auto& [way, answer] : answers_) {
    const auto& [from, to] = way;
    const auto back = answers_.find({to, from});
    if (from < to && answer.reached && back != answers_.end() &&
        back->second.reached) {
      reached.insert(way);
    }
  }
  return reached;
}

}  // namespace lockstep::server
