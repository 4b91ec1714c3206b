#include "server/core/evidence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "common/model/output_identity.h"
#include "server/core/job.h"
#include "server/core/job_view.h"
#include "server/core/reports.h"

namespace lockstep::server {
namespace {

// More hosts than this are attributed to the network.
constexpr size_t kMaxCover = 8;
constexpr size_t kMaxNamedPairs = 4;

struct RankPlace {
  NodeName node;
  const RankStatus* status = nullptr;
};

std::map<int32_t, RankPlace> PlacesOf(const std::vector<TaskStatus>& tasks) {
  std::map<int32_t, RankPlace> places;
  for (const TaskStatus& task : tasks) {
    for (const RankStatus& rank : task.ranks) {
      places[rank.rank] = {task.node, &rank};
    }
  }
  return places;
}

// Returns true if the peer ended before the report. Only the loss of a live
// peer is evidence about the network.
bool EndedBefore(const RankStatus& peer, const RankStatus& reporter) {
  if (!peer.exit) return false;
  return !reporter.exit || peer.exit->end_time < reporter.exit->end_time;
}

std::pair<NodeName, NodeName> KeyOf(const NodeName& a, const NodeName& b) {
  return a < b ? std::pair(a, b) : std::pair(b, a);
}

using Pairs = std::map<std::pair<NodeName, NodeName>, LostPair>;

void TakeLostPeers(const std::map<int32_t, RankPlace>& places,
                   const NodeName& node, const GangStatus& gang, Pairs* pairs) {
  for (const LostPeer& lost : gang.lost_peers) {
    const auto rank = places.find(lost.rank);
    const auto peer = places.find(lost.peer);
    // A node reports its own ranks only.
    if (rank == places.end() || peer == places.end() ||
        rank->second.node != node || peer->second.node == node ||
        HostAnswered(lost.error) ||
        EndedBefore(*peer->second.status, *rank->second.status)) {
      continue;
    }
    pairs->try_emplace(KeyOf(node, peer->second.node),
                       LostPair{node, peer->second.node, lost.error});
  }
}

Pairs LostPairsOf(const std::map<int32_t, RankPlace>& places,
                  Generation generation, const JobView& view) {
  Pairs pairs;
  for (const auto& [node, known] : view.nodes) {
    if (const GangStatus* gang = GangOf(view, node, generation)) {
      TakeLostPeers(places, node, *gang, &pairs);
    }
  }
  return pairs;
}

// With more than two nodes the faulty pair is unknown.
void TakeStandstill(const std::map<int32_t, RankPlace>& places, Pairs* pairs) {
  std::set<NodeName> nodes;
  for (const auto& [rank, place] : places) nodes.insert(place.node);
  if (nodes.size() != 2) return;
  pairs->try_emplace({*nodes.begin(), *nodes.rbegin()},
                     LostPair{*nodes.begin(), *nodes.rbegin(),
                              "all ranks stalled in one all-reduce"});
}

// True if the node's delay has another origin: it fetches, or looks for the
// file from rank 0's node.
bool WaitsForOthers(const GangStatus& gang) {
  return std::any_of(gang.preparations.begin(), gang.preparations.end(),
                     [](const TaskPreparation& preparation) {
                       return preparation.current == kFetchPart ||
                              preparation.current == kOutputPart;
                     });
}

bool IsLate(const Job& job, const GangStatus* gang, const Cause& cause) {
  if (cause.reason == Reason::kPrepareTimeout) {
    return gang == nullptr ||
           (gang->phase == GangPhase::kPreparing && !WaitsForOthers(*gang));
  }
  if (cause.reason != Reason::kFormTimeout || job.tasks.empty()) return false;
  if (gang == nullptr) return true;
  return std::any_of(
      gang->ranks.begin(), gang->ranks.end(),
      [](const RankStatus& rank) { return rank.state < RankState::kStarted; });
}

// Returns the node in most of `pairs`. On a tie prefers one that is not `keep`,
// then the first by name. REQUIRES: `pairs` is not empty.
NodeName Busiest(const std::vector<LostPair>& pairs, const NodeName& keep) {
  std::map<NodeName, size_t> count;
  for (const LostPair& pair : pairs) {
    ++count[pair.from];
    ++count[pair.to];
  }
  const auto most = std::max_element(
      count.begin(), count.end(), [&](const auto& a, const auto& b) {
        return std::pair(a.second, a.first != keep) <
               std::pair(b.second, b.first != keep);
      });
  return most->first;
}

std::vector<LostPair> Without(std::vector<LostPair> pairs,
                              const NodeName& node) {
  std::erase_if(pairs, [&](const LostPair& pair) {
    return pair.from == node || pair.to == node;
  });
  return pairs;
}

// Returns a cover of at most `size` nodes, the first found when the busiest
// nodes are tried first.
std::optional<std::vector<NodeName>> CoverOf(const std::vector<LostPair>& pairs,
                                             const NodeName& keep,
                                             size_t size) {
  if (pairs.empty()) return std::vector<NodeName>();
  if (size == 0) return std::nullopt;
  const NodeName first = Busiest(pairs, keep);
  if (auto rest = CoverOf(Without(pairs, first), keep, size - 1)) {
    rest->push_back(first);
    return rest;
  }
  // Otherwise all nodes that it is paired with.
  std::set<NodeName> others;
  for (const LostPair& pair : pairs) {
    if (pair.from == first) others.insert(pair.to);
    if (pair.to == first) others.insert(pair.from);
  }
  if (others.size() > size) return std::nullopt;
  std::vector<LostPair> left = pairs;
  for (const NodeName& other : others) left = Without(std::move(left), other);
  auto rest = CoverOf(left, keep, size - others.size());
  if (rest) rest->insert(rest->end(), others.begin(), others.end());
  return rest;
}

}  // namespace

bool HostAnswered(const std::string& error) {
  static constexpr std::string_view kWords[] = {
      "Connection refused", "Connection reset", "onnection closed by",
      "closed by peer",     "Broken pipe",      "(it ended)",
      "its process died",
  };
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view words) {
                       return error.find(words) != std::string::npos;
                     });
}

GangEvidence EvidenceOf(const std::vector<TaskStatus>& tasks,
                        Generation generation, const JobView& view) {
  GangEvidence evidence;
  evidence.late = view.late;
  const std::map<int32_t, RankPlace> places = PlacesOf(tasks);
  Pairs pairs = LostPairsOf(places, generation, view);
  if (view.all_stood) TakeStandstill(places, &pairs);
  for (auto& [key, pair] : pairs) {
    pair.reached_since = view.reached.contains(key);
  }
  for (const LostPair& pair : view.unreached) {
    pairs[KeyOf(pair.from, pair.to)] = pair;
  }
  for (auto& [key, pair] : pairs) evidence.pairs.push_back(std::move(pair));
  return evidence;
}

std::set<std::pair<NodeName, NodeName>> NamedPairs(
    const std::vector<TaskStatus>& tasks, Generation generation,
    const JobView& view) {
  std::set<std::pair<NodeName, NodeName>> named;
  for (const auto& [key, pair] :
       LostPairsOf(PlacesOf(tasks), generation, view)) {
    named.insert(key);
  }
  return named;
}

std::set<NodeName> LateNodes(const Job& job, const JobView& view,
                             const Cause& cause) {
  std::set<NodeName> late;
  for (const NodeName& node : NodesOf(job)) {
    if (IsLate(job, GangOf(view, node, job.generation), cause)) {
      late.insert(node);
    }
  }
  return late;
}

std::optional<NodeName> KilledOn(const Attempt& attempt) {
  // Another job's processes may have used up the host's memory.
  if (attempt.end_cause.reason != Reason::kRankSignal &&
      attempt.end_cause.reason != Reason::kOutOfMemory) {
    return std::nullopt;
  }
  const RankStatus* first = nullptr;
  std::optional<NodeName> where;
  for (const TaskStatus& task : attempt.tasks) {
    for (const RankStatus& rank : task.ranks) {
      if (!rank.exit || rank.exit->ok() || rank.exit->victim) continue;
      if (first != nullptr && first->exit->end_time <= rank.exit->end_time) {
        continue;
      }
      first = &rank;
      where = task.node;
    }
  }
  return where;
}

std::optional<NodeName> KilledTwiceOn(const Job& job) {
  const size_t count = job.attempts.size();
  if (count < 2) return std::nullopt;
  std::optional<NodeName> last = KilledOn(job.attempts[count - 1]);
  return last && last == KilledOn(job.attempts[count - 2]) ? last
                                                           : std::nullopt;
}

std::vector<NodeName> SmallestCover(const std::vector<LostPair>& pairs,
                                    const NodeName& keep) {
  for (size_t size = 1; size <= kMaxCover && !pairs.empty(); ++size) {
    if (auto cover = CoverOf(pairs, keep, size)) {
      std::sort(cover->begin(), cover->end());
      return *std::move(cover);
    }
  }
  return {};
}

std::string Describe(const std::vector<LostPair>& pairs) {
  std::vector<std::string> texts;
  for (const LostPair& pair : pairs) {
    if (texts.size() == kMaxNamedPairs) {
      texts.push_back(fmt::format("{} more", pairs.size() - kMaxNamedPairs));
      break;
    }
    texts.push_back(fmt::format("{} did not reach {} ({})", pair.from, pair.to,
                                Shorten(pair.error, 200)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace lockstep::server
