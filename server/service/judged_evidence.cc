#include "server/service/judged_evidence.h"

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep::server {

std::map<NodeName, EvidenceQuery> QueriesFor(const FoundRanks& found) {
  std::map<NodeName, EvidenceQuery> queries;
  for (const auto& [node, ranks] : found.ranks) {
    EvidenceQuery query;
    query.job = found.job;
    query.generation = found.generation;
    query.ranks = ranks;
    query.stacks = true;
    if (found.kept_for != Reason::kNone) query.kept_uid = found.job_uid;
    queries[node] = std::move(query);
  }
  return queries;
}

JudgedEvidence Judge(const FoundRanks& found, std::vector<RankEvidence> ranks) {
  std::set<int32_t> left;
  for (const auto& [node, asked] : found.ranks) {
    left.insert(asked.begin(), asked.end());
  }
  std::erase_if(ranks, [&](const RankEvidence& rank) {
    const auto of_node = found.ranks.find(rank.node);
    return of_node == found.ranks.end() ||
           std::find(of_node->second.begin(), of_node->second.end(),
                     rank.rank) == of_node->second.end() ||
           left.erase(rank.rank) == 0;
  });
  std::sort(ranks.begin(), ranks.end(),
            [](const RankEvidence& a, const RankEvidence& b) {
              return a.rank < b.rank;
            });
  JudgedEvidence judged;
  judged.ranks = std::move(ranks);
  judged.groups = GroupRanks(judged.ranks);
  judged.verdict =
      JudgeHang(judged.ranks, judged.groups, {left.begin(), left.end()});
  return judged;
}

}  // namespace lockstep::server
