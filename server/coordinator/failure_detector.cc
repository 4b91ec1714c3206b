#include "server/coordinator/failure_detector.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "server/core/elastic.h"
#include "server/core/ending.h"
#include "server/core/job_roles.h"
#include "server/core/verdict.h"

namespace lockstep::server {

void FailureDetector::AskNeighbours(Time now) {
  silent_.Update(now);
  std::erase_if(inquiries_, [&](const auto& inquiry) {
    const Member* member = state_->members.Find(inquiry.first);
    return member == nullptr || member->state != NodeState::kUnknown;
  });
  for (const auto& [name, member] : state_->members.members()) {
    // One whose stream ended may be back in a moment.
    if (member.state != NodeState::kUnknown ||
        now.mono - member.last_beat <= options_.membership.lease) {
      continue;
    }
    const NodeEntry* const entry = state_->nodes.Find(name);
    if (entry == nullptr || entry->probe_port == 0 || entry->jobs.empty()) {
      continue;
    }
    const auto [it, is_new] = inquiries_.try_emplace(name, options_.inquiry);
    if (it->second.IsDue(now.mono)) Ask(member, &it->second, now);
  }
}

void FailureDetector::Ask(const Member& silent, Inquiry* inquiry, Time now) {
  std::vector<Neighbour> ready;
  std::set<std::string> hosts;
  for (const auto& [name, member] : state_->members.members()) {
    hosts.insert(member.info.address);
    const NodeEntry* const entry = state_->nodes.Find(name);
    if (member.state == NodeState::kReady && entry != nullptr &&
        entry->session) {
      ready.push_back({name, member.info.pool, member.info.address});
    }
  }
  const std::vector<NodeName> chosen = ChooseNeighbours(
      silent.info.pool, silent.info.address, std::move(ready), hosts.size());
  std::map<NodeName, std::set<NodeName>> asked;
  for (const NodeName& node : chosen) asked[node] = {silent.info.name};
  inquiry->Begin(prober_->Ask(asked), chosen, now.mono);
}

void FailureDetector::TakeAnswer(const NodeName& node,
                                 const ProbeAnswer& answer, Time now) {
  silent_.TakeAnswer(node, answer, now);
  for (const ProbeResult& result : answer.results) {
    const auto it = inquiries_.find(result.node);
    if (it == inquiries_.end()) continue;
    Inquiry& inquiry = it->second;
    const Inquiry::Finding before = inquiry.finding();
    inquiry.Take(answer.id, node, result, now.mono);
    if (inquiry.finding() == before) continue;
    const bool reached = inquiry.finding() == Inquiry::Finding::kReached;
    LOG_WARN("node {}: {}", result.node,
             reached ? "reached by its neighbours: cut from the coordinator"
                     : "silent, and not reached by " + inquiry.Describe());
    if (reached || !inquiry.MayNote()) continue;
    state_->members.Note(result.node, Reason::kNodeUnreachable,
                         "silent, and not reached by " + inquiry.Describe(),
                         now.wall);
    state_->NoteNode(result.node);
  }
}

bool FailureDetector::IsUnreachable(const NodeName& node) const {
  const auto it = inquiries_.find(node);
  if (it == inquiries_.end() ||
      it->second.finding() != Inquiry::Finding::kUnreachable) {
    return false;
  }
  const Member* member = state_->members.Find(node);
  return member != nullptr && member->last_evidence < it->second.asked_at();
}

void FailureDetector::ApplyLiveness() {
  for (const auto& [name, when] : std::exchange(stepped_, {})) {
    const JobEntry* const entry = state_->jobs.Find(name);
    if (entry == nullptr) continue;
    for (const NodeName& node : NodesOf(*entry->job)) {
      if (AllAreAwayOn(*entry->job, node)) continue;
      state_->members.RecordLiveness(node, when);
    }
  }
}

void FailureDetector::ExtendLeasesAfterPause(Time now) {
  const Duration away = awake_ ? now.mono - *awake_ : Duration{};
  awake_ = now.mono;
  if (away > options_.membership.contest_judging) {
    // The other daemon's beats wait to be read.
    for (auto& [node, waiting] : state_->nodes.newcomers()) {
      waiting.newcomer.since += away;
    }
  }
  if (away <= options_.membership.lease) return;
  LOG_WARN("stood still for {}: nodes and jobs are given that time again",
           FormatDuration(away));
  state_->members.ExtendLeases(away, now.mono);
  for (const JobName& name : state_->jobs.live()) {
    JobEntry& entry = state_->jobs.At(name);
    if (entry.job->state == JobState::kFinishing) continue;
    entry.state_since = std::min(now.mono, entry.state_since + away);
    if (entry.all_started_since) {
      entry.all_started_since =
          std::min(now.mono, *entry.all_started_since + away);
    }
    for (auto& [rank, since] : entry.awaited.restarts) {
      since = std::min(now.mono, since + away);
    }
    for (auto* since :
         {&entry.awaited.recovery.parked, &entry.awaited.recovery.started}) {
      if (*since) *since = std::min(now.mono, **since + away);
    }
  }
}

Duration FailureDetector::PatienceOf(const JobEntry& entry) const {
  if (entry.job->state != JobState::kRunning || entry.job->failing) {
    return options_.membership.lost_after;
  }
  return std::max(options_.membership.lost_after,
                  entry.stall.Deadline() + options_.adoption_window);
}

Duration FailureDetector::PatienceWith(const JobEntry& entry,
                                       const NodeName& node) const {
  return IsUnreachable(node) ? options_.membership.lease : PatienceOf(entry);
}

std::optional<Duration> FailureDetector::PatienceWith(
    const NodeName& node) const {
  Duration longest = options_.membership.lost_after;
  const NodeEntry* const here = state_->nodes.Find(node);
  for (const JobName& name :
       here == nullptr ? std::set<JobName>() : here->jobs) {
    const JobEntry& entry = state_->jobs.At(name);
    // Of a program's ranks that have all exited with 0 nothing needs to be
    // known.
    if (entry.job->spec.kind == JobKind::kProgram &&
        !IsDoneOn(*entry.job, entry.places, node)) {
      if (!silent_.IsLost(name, node)) return std::nullopt;
      continue;
    }
    longest = std::max(longest, PatienceOf(entry));
  }
  if (IsUnreachable(node)) return options_.membership.lease;
  return longest;
}

// Whether all ranks of these tasks were started, alone or on another node than
// before, since `booted`.
static bool StartedSince(const Job& job, const std::vector<size_t>& tasks,
                         WallTime booted) {
  return std::all_of(tasks.begin(), tasks.end(), [&](size_t task) {
    const auto& ranks = job.tasks[task].ranks;
    return std::all_of(ranks.begin(), ranks.end(), [&](const RankStatus& rank) {
      const auto lone = job.lone_ranks.find(rank.rank);
      return lone != job.lone_ranks.end() && lone->second.start &&
             *lone->second.start >= booted;
    });
  });
}

bool FailureDetector::RunsUnseen(const JobEntry& entry, const NodeName& node,
                                 Time now) const {
  const NodeEntry* const here = state_->nodes.Find(node);
  const std::optional<MonoTime> stepped = entry.meter.last_step_time();
  const Job& job = *entry.job;
  if (here == nullptr || !here->booted || !stepped ||
      *here->booted < entry.state_since || job.spec.kind != JobKind::kNative ||
      job.state != JobState::kRunning || job.failing) {
    return false;
  }
  // Steps need no evaluator.
  const std::vector<size_t>& tasks = entry.places.TasksOn(node);
  if (std::none_of(tasks.begin(), tasks.end(), [&](size_t task) {
        return IsOfGroup(job.tasks[task].type);
      })) {
    return false;
  }
  if (AllAreAwayOn(job, node) ||
      StartedSince(job, tasks, now.wall - (now.mono - *here->booted))) {
    return false;
  }
  // A rank has left the communicator: its step will never end.
  const auto ranks = RanksOf(job);
  if (std::any_of(ranks.begin(), ranks.end(), [&](const RankStatus* rank) {
        return rank->parked > job.recovery && !rank->away;
      })) {
    return false;
  }
  // A slow step may have begun just before. The first step is waited for as
  // long as one may take.
  return now.mono - std::max(*here->booted, *stepped) <=
         std::min(entry.stall.Deadline(), options_.membership.lost_after);
}

}  // namespace lockstep::server
