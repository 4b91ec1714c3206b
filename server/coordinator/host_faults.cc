#include "server/coordinator/host_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "server/core/recovery.h"
#include "server/core/reports.h"
#include "server/core/verdict.h"

namespace lockstep::server {
namespace {

// How often nodes that did not reach each other are asked again.
constexpr Duration kMendInterval = std::chrono::seconds(2);
// So many pairs are asked at a time.
constexpr size_t kMaxMended = 64;
// Of a wide gang a node is asked about so many others at most.
constexpr size_t kMostProbed = 4 * kMaxProbeTargets;

std::string Describe(const Strikes::CoolDown& cooling) {
  return fmt::format("cools down until {} ({})", ClockText(cooling.until),
                     cooling.why);
}

std::string Describe(const Strikes::Apart& apart) {
  return fmt::format("{} at {}: {} and {} are not placed together until {}",
                     apart.why, ClockText(apart.since.wall), apart.a, apart.b,
                     ClockText(apart.until));
}

// Whether the way between the nodes may be why the generation is given up.
bool MayBeTheNetworks(const Job& job, const JobView& view) {
  const Reason reason = job.failing->reason;
  if (reason == Reason::kStalled || reason == Reason::kFormTimeout) return true;
  const std::optional<Failure> first = FirstFailure(job);
  if (first && first->peer_lost) return true;
  return std::any_of(view.nodes.begin(), view.nodes.end(),
                     [&](const auto& node) {
                       const auto gang = node.second.gangs.find(job.generation);
                       return gang != node.second.gangs.end() &&
                              !gang->second.lost_peers.empty();
                     });
}

// It has done a part of its work.
bool RunsWell(const Job& job, const JobView& view) {
  if (job.outcome == JobState::kSucceeded) return true;
  return job.state == JobState::kRunning && !job.failing &&
         HighestCommitted(job, view) > job.committed_before;
}

}  // namespace

std::map<NodeName, std::set<NodeName>> HostFaults::PairsToProbe(
    const Job& job, const JobView& view) const {
  std::map<NodeName, std::set<NodeName>> asked;
  std::set<NodeName> nodes = NodesOf(job);
  std::erase_if(
      nodes, [&](const NodeName& node) { return !prober_->MayBeAsked(node); });
  if (nodes.size() <= kMaxProbeTargets + 1) {
    for (const NodeName& node : nodes) {
      asked[node] = nodes;
      asked[node].erase(node);
    }
    return asked;
  }
  // All pairs would be too many.
  for (const auto& [a, b] : NamedPairs(job.tasks, job.generation, view)) {
    if (!nodes.contains(a) || !nodes.contains(b)) continue;
    for (const auto& [node, other] : {std::pair(a, b), std::pair(b, a)}) {
      if (asked[node].size() < kMostProbed) asked[node].insert(other);
    }
  }
  return asked;
}

void HostFaults::ProbePairs(const Job& job, const JobView& view, Time now) {
  std::map<NodeName, std::set<NodeName>> asked = PairsToProbe(job, view);
  size_t most = 0;
  for (const auto& [node, about] : asked) most = std::max(most, about.size());
  if (most == 0) return;
  Evidence& evidence = evidence_[job.spec.name];
  pair_probes_.erase(evidence.pair_probe_id);
  evidence.pair_probe_id = prober_->Ask(asked);
  // A node takes one message after the other.
  const size_t more = (most - 1) / kMaxProbeTargets;
  evidence.pair_probe.emplace(std::move(asked),
                              now.mono + options_.inquiry.answer_timeout +
                                  more * options_.inquiry.probe_timeout);
  pair_probes_[evidence.pair_probe_id] = job.spec.name;
}

const PairProbe* HostFaults::FindPairProbe(const JobName& job) const {
  const auto it = evidence_.find(job);
  return it == evidence_.end() || !it->second.pair_probe
             ? nullptr
             : &*it->second.pair_probe;
}

std::optional<Stall> HostFaults::StallOf(const JobEntry& entry,
                                         const JobView& view, Time now) {
  const Job& job = *entry.job;
  if (job.state != JobState::kRunning || IsRecovering(job) ||
      HangPolicyOf(job.spec) != HangPolicy::kRestart) {
    return std::nullopt;
  }
  const StallWatch::Ranks ranks = entry.Ranks();
  std::optional<Stall> stall = entry.stall.Check(ranks, now.mono);
  if (stall || job.failing) return stall;
  // To be sure of a standstill takes long, and to ask the nodes does not.
  stall = entry.stall.StalledRank(ranks, now.mono);
  const JobName& name = job.spec.name;
  if (!stall || stall->rank >= 0 || stall->still <= stall->deadline) {
    if (FindPairProbe(name) != nullptr) ForgetGeneration(name);
    return std::nullopt;
  }
  if (FindPairProbe(name) == nullptr) ProbePairs(job, view, now);
  const PairProbe* const probe = FindPairProbe(name);
  const bool cut = probe != nullptr && probe->IsOver(now.mono) &&
                   !probe->Unreached().empty();
  return cut ? stall : std::nullopt;
}

void HostFaults::NoteGivenUp(const Job& next, const JobView& view, Time now) {
  Evidence& evidence = evidence_[next.spec.name];
  evidence.late = LateNodes(next, view, *next.failing);
  evidence.all_stood = next.failing->reason == Reason::kStalled && view.stall &&
                       view.stall->rank < 0;
  // What was found just before still stands.
  if (evidence.pair_probe && (!evidence.pair_probe->IsOver(now.mono) ||
                              !evidence.pair_probe->Unreached().empty())) {
    return;
  }
  if (MayBeTheNetworks(next, view)) ProbePairs(next, view, now);
}

void HostFaults::AddEvidence(const JobName& job, Time now,
                             JobView* view) const {
  const auto it = evidence_.find(job);
  if (it == evidence_.end()) return;
  view->late = it->second.late;
  view->all_stood = it->second.all_stood;
  const std::optional<PairProbe>& probe = it->second.pair_probe;
  if (!probe) return;
  view->testing_pairs = !probe->IsOver(now.mono);
  view->unreached = probe->Unreached();
  view->reached = probe->Reached();
}

void HostFaults::NoteOutcome(const Job& before, const Job& next,
                             const JobView& view, Time now) {
  if (next.failing && !before.failing) NoteGivenUp(next, view, now);
  if (strikes_.HasKilled(next.uid) && RunsWell(next, view)) {
    TakeStrikes(strikes_.NoteRan(next.uid, NodesOf(next), now), now);
  }
  if (next.outcome == JobState::kSucceeded &&
      before.outcome != JobState::kSucceeded) {
    NoteGpuRun(before, /*failed=*/false, now);
  } else if (before.failing && !next.failing) {
    NoteGpuRun(before, /*failed=*/true, now);
  }
  if (!before.failing || next.failing || next.attempts.empty() ||
      next.attempts.back().generation != before.generation) {
    return;
  }
  const Attempt& attempt = next.attempts.back();
  TakeStrikes(strikes_.Take(next.uid, attempt.generation,
                            EvidenceOf(attempt.tasks, attempt.generation, view),
                            attempt.tasks.front().node, now),
              now);
  if (const std::optional<NodeName> node = KilledOn(attempt)) {
    strikes_.NoteKill(next.uid, *node, now);
  }
}

void HostFaults::NoteGpuRun(const Job& job, bool failed, Time now) {
  std::optional<Failure> first;
  if (failed) {
    first = FirstFailure(job);
    // Only what a rank did by itself tells of its GPUs.
    if (!first || first->rank < 0 || first->peer_lost || first->port_taken ||
        first->passing) {
      return;
    }
  }
  std::vector<Membership::GpuRef> gpus;
  std::set<Membership::GpuRef> died;
  for (const TaskStatus& task : job.tasks) {
    const bool failing =
        first && std::any_of(task.ranks.begin(), task.ranks.end(),
                             [&](const RankStatus& rank) {
                               return rank.rank == first->rank;
                             });
    for (const int32_t gpu : task.gpus) {
      gpus.emplace_back(task.node, gpu);
      if (failing) died.emplace(task.node, gpu);
    }
  }
  if (gpus.empty()) return;
  for (const NodeName& node :
       state_->members.NoteRun(gpus, died, job.uid, now)) {
    state_->NoteNode(node);
    state_->agenda.capacity_changed = true;
  }
}

void HostFaults::TakeStrikes(const Strikes::News& news, Time now) {
  const auto note = [&](const NodeName& node, Reason reason,
                        const std::string& text) {
    state_->members.Note(node, reason, text, now.wall);
    state_->NoteNode(node);
    state_->agenda.capacity_changed = true;
  };
  for (const auto& [node, cooling] : news.cooled) {
    const std::string text = Describe(cooling);
    LOG_WARN("node {}: {}", node, text);
    note(node, Reason::kNodeCooledDown, text);
  }
  for (const Strikes::Apart& apart : news.apart) {
    const std::string text = Describe(apart);
    LOG_WARN("{}", text);
    note(apart.a, Reason::kNodesApart, text);
    note(apart.b, Reason::kNodesApart, text);
  }
}

void HostFaults::Expire(Time now) {
  for (const NodeName& node : strikes_.Expire(now)) {
    LOG_INFO("node {}: its time is over, it is placed on again", node);
    state_->agenda.capacity_changed = true;
  }
  if (mend_test_ && mend_test_->IsOver(now.mono)) EndMendTest(now);
  if (mend_test_ || now.mono - last_mend_ < kMendInterval) return;
  std::map<NodeName, std::set<NodeName>> asked;
  size_t pairs = 0;
  for (const Strikes::Apart& apart : strikes_.AllApart()) {
    if (!apart.tested || !prober_->MayBeAsked(apart.a) ||
        !prober_->MayBeAsked(apart.b) ||
        asked[apart.a].size() >= kMaxProbeTargets ||
        asked[apart.b].size() >= kMaxProbeTargets || pairs == kMaxMended) {
      continue;
    }
    ++pairs;
    asked[apart.a].insert(apart.b);
    asked[apart.b].insert(apart.a);
  }
  if (pairs == 0) return;
  std::erase_if(asked, [](const auto& one) { return one.second.empty(); });
  last_mend_ = now.mono;
  mend_test_id_ = prober_->Ask(asked);
  mend_test_.emplace(std::move(asked),
                     now.mono + options_.inquiry.answer_timeout);
}

void HostFaults::EndMendTest(Time now) {
  for (const auto& [a, b] : mend_test_->Reached()) {
    if (!strikes_.Mend(a, b, now)) continue;
    state_->agenda.capacity_changed = true;
    LOG_INFO("nodes {} and {} reach each other again", a, b);
    for (const auto& [node, other] : {std::pair(a, b), std::pair(b, a)}) {
      state_->members.Note(
          node, Reason::kNodesApart,
          fmt::format("reaches {} again, and is reached by it", other),
          now.wall);
      state_->NoteNode(node);
    }
  }
  mend_test_.reset();
}

std::optional<JobName> HostFaults::TakeAnswer(const NodeName& node,
                                              const ProbeAnswer& answer,
                                              Time now) {
  if (mend_test_ && answer.id == mend_test_id_) {
    for (const ProbeResult& result : answer.results) {
      mend_test_->Take(node, result);
    }
    return std::nullopt;
  }
  const auto it = pair_probes_.find(answer.id);
  if (it == pair_probes_.end()) return std::nullopt;
  PairProbe& probe = *evidence_.at(it->second).pair_probe;
  for (const ProbeResult& result : answer.results) probe.Take(node, result);
  if (!probe.IsOver(now.mono)) return std::nullopt;
  return it->second;
}

void HostFaults::ForgetGeneration(const JobName& job) {
  const auto it = evidence_.find(job);
  if (it == evidence_.end()) return;
  pair_probes_.erase(it->second.pair_probe_id);
  evidence_.erase(it);
}

void HostFaults::Show(NodeSnapshot* node) const {
  const NodeName& name = node->member.info.name;
  node->apart_from = strikes_.ApartFrom(name);
  const Strikes::CoolDown* const cooling = strikes_.CoolingOf(name);
  if (cooling != nullptr) node->cool_down_end = cooling->until;
  std::string& message = node->member.message;
  if (!message.empty()) return;
  if (cooling != nullptr) {
    message = Describe(*cooling);
    return;
  }
  if (node->apart_from.empty()) return;
  for (const Strikes::Apart& apart : strikes_.AllApart()) {
    if (apart.a != name && apart.b != name) continue;
    message = Describe(apart);
    return;
  }
}

void HostFaults::KeepApart(std::vector<HostCapacity>* hosts) const {
  std::map<NodeName, std::map<NodeName, std::string>> apart;
  for (const Strikes::Apart& each : strikes_.AllApart()) {
    apart[each.a][each.b] = Describe(each);
    apart[each.b][each.a] = apart[each.a][each.b];
  }
  for (HostCapacity& host : *hosts) {
    if (const auto it = apart.find(host.node); it != apart.end()) {
      host.apart = it->second;
    }
    const Strikes::CoolDown* const cooling = strikes_.CoolingOf(host.node);
    if (cooling == nullptr || !host.ready) continue;
    host.ready = false;
    host.cooling = Describe(*cooling);
  }
}

}  // namespace lockstep::server
