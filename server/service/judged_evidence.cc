#include "server/service/judged_evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep::server {

namespace {

// The clocks of nodes differ, and a rank that ended by the stop of its attempt
// ended soon after it was looked at.
constexpr Duration kClearlyBefore = std::chrono::seconds(1);

// The ranks that had ended while those of `looked_at` ran. A job goes on with
// them only as long as the others run.
std::vector<RankEvidence> EndedBefore(
    const FoundRanks& found, const std::vector<RankEvidence>& looked_at) {
  std::vector<RankEvidence> ended;
  for (const auto& [rank, end] : found.ended) {
    bool before = !looked_at.empty();
    for (const RankEvidence& other : looked_at) {
      before = before && other.rank != rank &&
               (found.kept_for == Reason::kNone ||
                end.time + kClearlyBefore <= other.time);
    }
    if (!before) continue;
    RankEvidence evidence;
    evidence.rank = rank;
    evidence.node = end.node;
    evidence.time = end.time;
    evidence.ended = end.how;
    ended.push_back(std::move(evidence));
  }
  return ended;
}

}  // namespace

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
  for (RankEvidence& ended : EndedBefore(found, ranks)) {
    left.erase(ended.rank);
    ranks.push_back(std::move(ended));
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const RankEvidence& a, const RankEvidence& b) {
              return a.rank < b.rank;
            });
  JudgedEvidence judged;
  judged.ranks = std::move(ranks);
  judged.groups = GroupRanks(judged.ranks);
  judged.verdict =
      JudgeHang(judged.ranks, judged.groups, {left.begin(), left.end()});
  if (!found.failure.empty()) {
    judged.verdict.sentence = found.failure;
    judged.verdict.cause = found.failed;
  }
  if (!found.note.empty()) {
    judged.verdict.sentence =
        fmt::format("{}; {}", found.note, judged.verdict.sentence);
  }
  return judged;
}

}  // namespace lockstep::server
