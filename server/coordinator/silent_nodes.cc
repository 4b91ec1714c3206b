#include "server/coordinator/silent_nodes.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/logging.h"
#include "server/core/ending.h"
#include "server/core/recovery.h"

namespace lockstep::server {
namespace {

// The port of a silent node that this coordinator has not heard of: it is asked
// what the neighbours have heard, and not whether they reach it.
constexpr int32_t kAnyPort = 1;
// A time that is said is said once, though the clocks differ a little.
constexpr Duration kSameSince = std::chrono::seconds(2);
constexpr size_t kMostGivenUp = 10'000;
// Longer than neighbours take to say that a host is dead.
constexpr Duration kEarlyLoss = std::chrono::seconds(10);

// The fence of all that the job holds on the node.
std::optional<Fence> FenceOn(const Job& job, const std::vector<size_t>& holds) {
  std::optional<Fence> longest;
  for (const size_t index : holds) {
    const std::optional<Fence>& fence = job.holds[index].fence;
    if (!fence) return std::nullopt;
    if (!longest) longest = fence;
    longest->after = std::max(longest->after, fence->after);
    longest->neighbours_count |= fence->neighbours_count;
  }
  return longest;
}

}  // namespace

void SilentNodes::SendNeighbours(MonoTime now) {
  if (!next_lists_) next_lists_ = now + options_.first_list;
  if (now < *next_lists_) return;
  next_lists_ = now + options_.list_interval;
  std::vector<Listed> all;
  bool news = false;
  for (const auto& [name, member] : state_->members.members()) {
    if (!prober_->MayBeAsked(name)) continue;
    const NodeEntry& node = *state_->nodes.Find(name);
    news = news || !node.session->neighbours;
    all.push_back(
        {{name, member.info.address, node.probe_port}, member.info.pool});
  }
  if (!news && all == listed_) return;
  listed_ = all;
  std::stable_sort(all.begin(), all.end(),
                   [](const Listed& a, const Listed& b) {
                     return a.pool < b.pool;  // By name already.
                   });
  for (auto& [name, list] : NeighboursOf(all)) {
    NodeSession& session = *state_->nodes.At(name).session;
    if (session.neighbours == list) continue;
    session.link->SendNeighbours(list);
    session.neighbours = std::move(list);
  }
}

void SilentNodes::Update(Time now) {
  SendNeighbours(now.mono);
  std::erase_if(silent_, [&](const auto& entry) {
    const Member* member = state_->members.Find(entry.first);
    return member == nullptr || member->state == NodeState::kReady;
  });
  for (const auto& [name, member] : state_->members.members()) {
    if (member.state == NodeState::kReady ||
        now.mono - member.last_beat <= lease_) {
      continue;
    }
    const NodeEntry* const node = state_->nodes.Find(name);
    if (node == nullptr || node->jobs.empty()) continue;
    Look(member, &silent_[name], now);
  }
}

void SilentNodes::Look(const Member& silent, Entry* entry, Time now) {
  const NodeName& name = silent.info.name;
  Silence& silence = entry->silence;
  silence.node = name;
  silence.silent = silent.SinceEvidence(now.mono);
  const WallTime since = now.wall - silence.silent;
  if (since - silence.since > kSameSince ||
      silence.since - since > kSameSince) {
    silence.since = since;
  }
  silence.together = SilentWith(silent);
  const std::set<NodeName> to_ask = ToAsk(silent);
  silence.neighbours = to_ask.size();
  const auto& finding = entry->attestation.finding();
  silence.finding = finding;
  silence.all_asked =
      finding &&
      now.mono - finding->asked_at + options_.lost_after <= silence.silent &&
      std::includes(finding->asked.begin(), finding->asked.end(),
                    to_ask.begin(), to_ask.end());
  std::map<JobName, Outlook> before = std::exchange(entry->jobs, {});
  bool ask = false;
  for (const JobName& job : state_->nodes.Find(name)->jobs) {
    const JobEntry& known = state_->jobs.At(job);
    if (known.job->spec.kind != JobKind::kProgram ||
        IsDoneOn(*known.job, known.places, name)) {
      continue;
    }
    Outlook& outlook = entry->jobs[job];
    outlook = before[job];
    if (outlook.kind == Outlook::Kind::kLost) continue;
    outlook = OutlookOf(known.job->spec,
                        FenceOn(*known.job, known.places.HoldsOn(name)),
                        silence, options_);
    ask = ask || (outlook.kind != Outlook::Kind::kLost &&
                  known.job->spec.node_loss != NodeLoss::kNever &&
                  !known.job->spec.node_lost_timeout);
    if (outlook.kind == Outlook::Kind::kLost) {
      LOG_WARN("job {}: {}", job, Describe(outlook, silence));
    }
  }
  if (ask && silence.silent > options_.lost_after && !to_ask.empty() &&
      entry->attestation.IsDue(now.mono)) {
    Ask(silent, entry, now.mono);
  }
}

std::set<NodeName> SilentNodes::ToAsk(const Member& silent) const {
  std::set<NodeName> nodes;
  for (const auto& [name, member] : state_->members.members()) {
    if (member.info.address != silent.info.address &&
        prober_->MayBeAsked(name)) {
      nodes.insert(name);
    }
  }
  return nodes;
}

std::vector<NodeName> SilentNodes::SilentWith(const Member& silent) const {
  std::vector<NodeName> with;
  const MonoTime from = silent.last_beat - options_.together;
  for (const auto& [name, member] : state_->members.members()) {
    // Daemons of one address are on one host, and in no list of each other.
    if (member.state != NodeState::kReady && member.last_beat > from &&
        member.info.address != silent.info.address) {
      with.push_back(name);
    }
  }
  for (const auto& [name, last_sign] : given_up_) {
    if (last_sign > from && state_->members.Find(name) == nullptr) {
      with.push_back(name);
    }
  }
  return with;
}

void SilentNodes::Ask(const Member& silent, Entry* entry, MonoTime now) {
  std::set<NodeName> asked = ToAsk(silent);
  std::map<NodeName, std::set<NodeName>> about;
  for (const NodeName& node : asked) about[node] = {silent.info.name};
  const uint64_t id = prober_->Ask(about, kAnyPort);
  entry->attestation.Begin(id, std::move(asked), now, options_);
}

void SilentNodes::TakeAnswer(const NodeName& node, const ProbeAnswer& answer,
                             Time now) {
  for (const ProbeResult& result : answer.results) {
    const auto it = silent_.find(result.node);
    if (it == silent_.end()) continue;
    it->second.attestation.Take(answer.id, node, result, now.mono);
  }
}

void SilentNodes::Forget(const NodeName& node, MonoTime now) {
  silent_.erase(node);
  const Member* const member = state_->members.Find(node);
  if (member == nullptr) return;
  std::erase_if(given_up_, [&](const auto& one) {
    return now - one.second > 2 * options_.together &&
           given_up_.size() > kMostGivenUp;
  });
  given_up_[node] =
      member->state == NodeState::kReady ? now : member->last_beat;
}

bool SilentNodes::IsLost(const JobName& job, const NodeName& node) const {
  const auto it = silent_.find(node);
  if (it == silent_.end()) return false;
  const auto outlook = it->second.jobs.find(job);
  return outlook != it->second.jobs.end() &&
         outlook->second.kind == Outlook::Kind::kLost;
}

std::optional<SilentNodes::Word> SilentNodes::WordOf(const Job& job) const {
  for (const NodeName& node : NodesOf(job)) {
    const auto it = silent_.find(node);
    if (it == silent_.end()) continue;
    const auto outlook = it->second.jobs.find(job.spec.name);
    if (outlook == it->second.jobs.end()) continue;
    // Its neighbours may say within seconds that it is dead.
    if (NeedTheOthers(job, node) && it->second.silence.silent < kEarlyLoss) {
      continue;
    }
    return Word{outlook->second.kind,
                Describe(outlook->second, it->second.silence)};
  }
  return std::nullopt;
}

bool SilentNodes::HasSeveralHosts() const {
  const auto& members = state_->members.members();
  return std::any_of(members.begin(), members.end(), [&](const auto& member) {
    return member.second.info.address != members.begin()->second.info.address;
  });
}

bool SilentNodes::NeedsOperator(const NodeName& node) const {
  const auto it = silent_.find(node);
  if (it == silent_.end()) return false;
  const auto& jobs = it->second.jobs;
  return std::any_of(jobs.begin(), jobs.end(), [](const auto& job) {
    return job.second.kind == Outlook::Kind::kWaits;
  });
}

}  // namespace lockstep::server
