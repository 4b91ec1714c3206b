// What the checker knows of training: S1 to S4, S6.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tests/simulation/checker.h"

namespace lockstep::simulation {
namespace {

// A rank that is away and ready is a member again within this time, once all
// is well: others that start may be waited for.
constexpr Duration kLongestReturn = std::chrono::seconds(20);

}  // namespace

int64_t TotalSteps(const std::string& uid) {
  // A few go on for long after all is well.
  const int64_t more = Mix({HashOf(uid), 5}) % 6 == 0 ? 100 : 0;
  return more + 6 + static_cast<int64_t>(Mix({HashOf(uid), 1}) % 24);
}

void Checker::CheckSuccess(const server::Job& job) {
  if (job.spec.kind != JobKind::kNative) return;
  // The ranks that end; others may be away.
  int64_t done = TotalSteps(job.uid);
  bool any = false;
  for (const RankStatus* rank : server::RanksOf(job)) {
    if (!rank->exit || !rank->exit->ok()) continue;
    any = true;
    done =
        std::min(done, lineages_[job.uid].last[{job.generation, rank->rank}]);
  }
  if (any && done == TotalSteps(job.uid)) return;
  Break(
      Invariant::kS3,
      fmt::format("job {} g{} has succeeded after step {} of {}", job.spec.name,
                  job.generation, any ? done : 0, TotalSteps(job.uid)));
}

std::set<int32_t> Checker::MembersOf(const std::string& uid,
                                     Generation generation,
                                     uint32_t recovery) const {
  const auto lineage = lineages_.find(uid);
  if (lineage == lineages_.end()) return {};
  const auto group = lineage->second.groups.find({generation, recovery});
  if (group == lineage->second.groups.end()) return {};
  return group->second.members;
}

uint64_t Checker::TruthAfter(Lineage* lineage, const std::string& uid,
                             int64_t step) {
  std::vector<uint64_t>& truth = lineage->truth;
  if (truth.empty()) truth.push_back(FirstState(uid));
  while (static_cast<int64_t>(truth.size()) <= step) {
    const auto next = static_cast<int64_t>(truth.size());
    truth.push_back(NextState(truth.back(), uid, next,
                              static_cast<uint64_t>(next - 1) * kBatch));
  }
  return truth[static_cast<size_t>(step)];
}

void Checker::OnResumed(const std::string& uid, Generation generation,
                        const SavedState* from, int32_t world_size) {
  Lineage& lineage = lineages_[uid];
  const int64_t step = from == nullptr ? 0 : from->step;
  lineage.began[generation] = step;
  for (int32_t rank = 0; rank < world_size; ++rank) {
    int64_t& last = lineage.last[{generation, rank}];
    // After a recovery in which no rank had a state.
    if (last > step) {
      Break(Invariant::kS3,
            fmt::format("g{} resumes after step {}, and rank {} had step {}",
                        generation, step, rank, last));
    }
    last = step;
  }
  if (from != nullptr) {
    const auto& parts = lineage.wanted[{from->generation, step}];
    const auto whole = std::includes(from->parts.begin(), from->parts.end(),
                                     parts.begin(), parts.end());
    if (parts.empty() || !whole) {
      Break(Invariant::kS6,
            fmt::format("the checkpoint of step {} (g{}), which was listed, "
                        "has {} of {} parts",
                        step, from->generation, from->parts.size(),
                        parts.size()));
      return;
    }
  }
  const auto key = [](const SavedState& saved) {
    return std::make_pair(saved.generation, saved.step);
  };
  if (lineage.newest &&
      (from == nullptr || key(*from) < key(*lineage.newest))) {
    Break(Invariant::kS1,
          fmt::format("g{} resumes after step {}, and step {} of g{} is saved",
                      generation, step, lineage.newest->step,
                      lineage.newest->generation));
    return;
  }
  if (from != nullptr && from->state != TruthAfter(&lineage, uid, step)) {
    Break(Invariant::kS6, fmt::format("the checkpoint of step {} (g{}) has "
                                      "another state",
                                      step, from->generation));
  }
}

void Checker::OnCommitted(const CommittedStep& step) {
  Lineage& lineage = lineages_[step.uid];
  ++coverage_.steps;
  const std::set<int32_t> members =
      MembersOf(step.uid, step.generation, step.recovery);
  if (!members.contains(step.rank)) {
    Break(Invariant::kS4,
          fmt::format("g{} rank {} commits step {} in recovery {}, in which it "
                      "is away",
                      step.generation, step.rank, step.step, step.recovery));
  }
  CheckWaits(step);
  int64_t& last = lineage.last[{step.generation, step.rank}];
  if (step.step != last + 1) {
    Break(Invariant::kS3,
          fmt::format("g{} rank {} commits step {} after step {}",
                      step.generation, step.rank, step.step, last));
  }
  last = step.step;
  if (step.sample != static_cast<uint64_t>(step.step - 1) * kBatch) {
    Break(Invariant::kS4,
          fmt::format("g{} rank {} uses sample {} in step {}, whose first one "
                      "is {}",
                      step.generation, step.rank, step.sample, step.step,
                      static_cast<uint64_t>(step.step - 1) * kBatch));
  }
  auto& [state, ranks] = lineage.held[{step.generation, step.step}];
  if (ranks.empty()) state = step.state;
  if (state != step.state) {
    Break(Invariant::kS2,
          fmt::format("g{} rank {} has another state after step {}",
                      step.generation, step.rank, step.step));
  }
  ranks.insert(step.rank);
  if (!std::includes(ranks.begin(), ranks.end(), members.begin(),
                     members.end())) {
    return;
  }
  if (state != TruthAfter(&lineage, step.uid, step.step)) {
    Break(Invariant::kS3,
          fmt::format("g{}: the state after step {} is not that of its steps",
                      step.generation, step.step));
  }
}

void Checker::OnWaits(int64_t pid, const std::string& uid,
                      Generation generation, uint32_t recovery, int32_t rank) {
  lineages_[uid].waits[{generation, recovery, rank}] = {pid, time_->now()};
}

void Checker::CheckWaits(const CommittedStep& step) {
  const Lineage& lineage = lineages_[step.uid];
  const auto group = lineage.groups.find({step.generation, step.recovery});
  // It is on its way back with the next recovery.
  if (!calm_ || group == lineage.groups.end() ||
      lineage.groups.contains({step.generation, step.recovery + 1})) {
    return;
  }
  // A member may be frozen, and form late.
  const auto since = lineage.formed_at.find({step.generation, step.recovery});
  if (since == lineage.formed_at.end()) return;
  const MonoTime trains = std::max(since->second, *calm_);
  for (const int32_t rank : group->second.away) {
    const auto it = lineage.waits.find({step.generation, step.recovery, rank});
    if (it == lineage.waits.end() || !live_.contains(it->second.first) ||
        time_->now() - std::max(it->second.second, trains) < kLongestReturn) {
      continue;
    }
    Break(
        Invariant::kS9,
        fmt::format("g{} rank {} waits since {} to be a member again, and the "
                    "others train",
                    step.generation, rank,
                    FormatDuration(time_->now() - it->second.second)));
  }
}

void Checker::OnFormed(const std::string& uid, Generation generation,
                       uint32_t recovery, const std::set<int64_t>& pids) {
  uint32_t& newest = lineages_[uid].formed[generation];
  if (recovery <= newest) {
    Break(Invariant::kS8, fmt::format("g{}: recovery {} forms after {}",
                                      generation, recovery, newest));
  }
  const std::set<int32_t> before = MembersOf(uid, generation, newest);
  const std::set<int32_t> members = MembersOf(uid, generation, recovery);
  newest = std::max(newest, recovery);
  lineages_[uid].formed_at[{generation, recovery}] = time_->now();
  std::set<int32_t> ranks;
  for (const int64_t pid : pids) {
    const auto live = live_.find(pid);
    if (live != live_.end() && live->second.uid == uid &&
        live->second.generation == generation &&
        ranks.insert(live->second.rank).second) {
      continue;
    }
    Break(Invariant::kS7,
          fmt::format("g{}: process {} is no rank of its own of recovery {}",
                      generation, pid, recovery));
  }
  if (ranks != members) {
    Break(Invariant::kS8,
          fmt::format("g{}: recovery {} forms with ranks {}, and its members "
                      "are {}",
                      generation, recovery, fmt::join(ranks, ","),
                      fmt::join(members, ",")));
  }
  const Group& group = lineages_[uid].groups[{generation, recovery}];
  if (!group.away.empty()) ++coverage_.smaller;
  if (!std::includes(before.begin(), before.end(), ranks.begin(),
                     ranks.end())) {
    ++coverage_.returns;
  }
}

void Checker::OnLevelled(const CommittedStep& step, bool had) {
  Lineage& lineage = lineages_[step.uid];
  int64_t& last = lineage.last[{step.generation, step.rank}];
  if (had && (step.step < last || step.step > last + 1)) {
    Break(Invariant::kS3,
          fmt::format("g{} rank {} gets step {} after step {}", step.generation,
                      step.rank, step.step, last));
  }
  // The process before it may have had one more, and taken it along.
  for (; last > step.step; --last) {
    lineage.held[{step.generation, last}].second.erase(step.rank);
  }
  if (last < step.step) {
    // Of a process that was not there for all of them, the others hold them.
    for (; last < step.step; ++last) {
      lineage.held[{step.generation, last + 1}].second.insert(step.rank);
    }
  }
  const auto held = lineage.held.find({step.generation, step.step});
  if (held != lineage.held.end() && !held->second.second.empty() &&
      held->second.first != step.state) {
    Break(Invariant::kS2,
          fmt::format("g{} rank {} gets another state of step {}",
                      step.generation, step.rank, step.step));
  }
}

void Checker::OnPublished(const std::string& uid, const SavedState& saved,
                          uint32_t recovery) {
  Lineage& lineage = lineages_[uid];
  ++coverage_.checkpoints;
  const std::set<int32_t> members = MembersOf(uid, saved.generation, recovery);
  const auto held = lineage.held.find({saved.generation, saved.step});
  const auto began = lineage.began.find(saved.generation);
  const bool from_start =
      began != lineage.began.end() && began->second == saved.step;
  const auto all_hold = [&](const std::set<int32_t>& ranks) {
    return std::includes(ranks.begin(), ranks.end(), members.begin(),
                         members.end());
  };
  if (!from_start &&
      (held == lineage.held.end() || !all_hold(held->second.second))) {
    Break(Invariant::kS1,
          fmt::format("the checkpoint of step {} (g{}) is shown, and not all "
                      "ranks hold the step",
                      saved.step, saved.generation));
  }
  lineage.wanted[{saved.generation, saved.step}] = members;
  lineage.newest = saved;
}

}  // namespace lockstep::simulation
