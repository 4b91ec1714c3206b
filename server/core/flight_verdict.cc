#include "server/core/flight_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "common/model/rank_list.h"

namespace lockstep::server {
namespace {

// The operations of a group on one rank, by their numbers.
using Operations = std::map<int64_t, const FlightRecord*>;
using Group = std::map<int32_t, Operations>;

std::map<std::string, Group> GroupsOf(
    const std::vector<RankEvidence>& evidence) {
  std::map<std::string, Group> groups;
  for (const RankEvidence& rank : evidence) {
    for (const FlightRecord& record : rank.flight_records) {
      groups[record.group][rank.rank][record.sequence] = &record;
    }
  }
  return groups;
}

bool IsOpen(const FlightRecord& record) {
  return record.state != kFlightCompleted;
}

// Where the ranks of a group are.
struct Front {
  // The newest operation of the last ranks, and its names.
  int64_t sequence = 0;
  std::set<std::string> operations;
  // The names of the one after it.
  std::set<std::string> next;
  // The last ranks that have finished it, and those that are in it.
  std::vector<int32_t> done;
  std::vector<int32_t> inside;
  // Those that have begun a later one, which is not over.
  std::vector<int32_t> ahead;
  // One of them is in it, too.
  bool ahead_inside = false;
};

Front FrontOf(const Group& group) {
  Front front;
  front.sequence = std::numeric_limits<int64_t>::max();
  for (const auto& [rank, operations] : group) {
    front.sequence = std::min(front.sequence, operations.rbegin()->first);
  }
  for (const auto& [rank, operations] : group) {
    const FlightRecord& newest = *operations.rbegin()->second;
    const auto same = operations.find(front.sequence);
    if (newest.sequence == front.sequence) {
      (IsOpen(newest) ? front.inside : front.done).push_back(rank);
      front.operations.insert(newest.operation);
    } else if (IsOpen(newest)) {
      front.ahead.push_back(rank);
      front.ahead_inside |= same != operations.end() && IsOpen(*same->second);
      const auto next = operations.find(front.sequence + 1);
      if (next != operations.end()) front.next.insert(next->second->operation);
    }
  }
  return front;
}

bool Holds(const std::vector<int32_t>& ranks, int32_t rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

// "all_reduce", or "all_reduce and broadcast".
std::string NamesOf(const std::set<std::string>& operations) {
  std::string text;
  for (const std::string& operation : operations) {
    text += (text.empty() ? "" : " and ") + operation;
  }
  return text;
}

std::string CountOf(size_t ranks, const char* one, const char* many) {
  return ranks == 1 ? fmt::format("1 rank {}", one)
                    : fmt::format("{} ranks {}", ranks, many);
}

FlightVerdict LastRanks(const std::string& group, const Front& front,
                        bool inside, std::vector<int32_t> cause) {
  const bool one = cause.size() == 1;
  FlightVerdict verdict;
  verdict.what =
      inside
          ? fmt::format(
                "{} still in {} {} of group {}, which {}", one ? "is" : "are",
                NamesOf(front.operations), front.sequence, group,
                CountOf(front.ahead.size(), "has finished", "have finished"))
          : fmt::format("{} not begun {} {} of group {}, in which {}",
                        one ? "has" : "have", NamesOf(front.next),
                        front.sequence + 1, group,
                        CountOf(front.ahead.size(), "waits", "wait"));
  verdict.cause = std::move(cause);
  return verdict;
}

FlightVerdict AllInside(const std::string& group, const Front& front) {
  std::vector<int32_t> ranks = front.inside;
  ranks.insert(ranks.end(), front.ahead.begin(), front.ahead.end());
  std::sort(ranks.begin(), ranks.end());
  FlightVerdict verdict;
  verdict.what = fmt::format(
      "{} are all in operation {} of group {}: {}", RankList(ranks),
      front.sequence, group,
      front.operations.size() == 1
          ? NamesOf(front.operations) + ", which does not end"
          : fmt::format("but they call {}, so the program differs between its "
                        "ranks",
                        NamesOf(front.operations)));
  return verdict;
}

}  // namespace

std::optional<FlightVerdict> JudgeFlight(
    const std::vector<RankEvidence>& evidence,
    const std::vector<int32_t>& missing) {
  for (const RankEvidence& rank : evidence) {
    if (rank.flight_records.empty()) return std::nullopt;
  }
  if (evidence.size() < 2 || !missing.empty()) return std::nullopt;
  std::map<std::string, Front> fronts;
  for (const auto& [name, group] : GroupsOf(evidence)) {
    if (group.size() > 1) fronts[name] = FrontOf(group);
  }
  const auto waits_beside = [&](const std::string& group, int32_t rank) {
    return std::any_of(fronts.begin(), fronts.end(), [&](const auto& other) {
      return other.first != group && (Holds(other.second.ahead, rank) ||
                                      Holds(other.second.inside, rank));
    });
  };
  for (const auto& [group, front] : fronts) {
    const bool inside = front.done.empty();
    if (front.ahead.empty() || (inside && front.ahead_inside)) continue;
    std::vector<int32_t> cause = inside ? front.inside : front.done;
    std::erase_if(cause,
                  [&](int32_t rank) { return waits_beside(group, rank); });
    // Most ranks are where they are in a step that goes well.
    if (cause.empty() || cause.size() > front.ahead.size()) continue;
    return LastRanks(group, front, inside, std::move(cause));
  }
  for (const auto& [group, front] : fronts) {
    if (front.done.empty() && front.inside.size() + front.ahead.size() > 1 &&
        (front.ahead.empty() || front.ahead_inside)) {
      return AllInside(group, front);
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::server
