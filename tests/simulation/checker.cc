#include "tests/simulation/checker.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/core/rescale.h"
#include "server/core/testing.h"

namespace lockstep::simulation {
namespace {

// A node that was heard within this time is not silent.
constexpr Duration kSilence = std::chrono::seconds(3);

Invariant InvariantOf(const std::string& rule) {
  if (rule == "a final job changed" || rule == "uncancelled") {
    return Invariant::kS5;
  }
  if (rule == "two generations hold" || rule == "final, yet it holds" ||
      rule == "does not hold its places") {
    return Invariant::kS7;
  }
  return Invariant::kS8;
}

bool IsDrainRequest(const server::AnsweredRequest& request) {
  return request.method == "DrainNode" || request.method == "UndrainNode";
}

}  // namespace

std::string_view Name(Invariant invariant) {
  static constexpr std::string_view kNames[] = {
      "none", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10"};
  return kNames[static_cast<int>(invariant)];
}

uint64_t FirstState(const std::string& uid) { return Mix({HashOf(uid)}); }

bool IsSkipped(const std::string& uid, int64_t step) {
  return Mix({HashOf(uid), static_cast<uint64_t>(step), 7}) % 23 == 0;
}

uint64_t NextState(uint64_t state, const std::string& uid, int64_t step,
                   uint64_t sample) {
  if (IsSkipped(uid, step)) return state;
  return Mix({state, static_cast<uint64_t>(step), sample});
}

void Checker::Break(Invariant invariant, std::string sentence) {
  if (violation_) return;
  LOCKSTEP_TELL(story_, "** {} is broken: {}", Name(invariant), sentence);
  violation_ = {invariant, std::move(sentence), time_->passed()};
}

void Checker::OnFault(CommitPoint point, CommitFault fault) {
  ++coverage_.commits[{point, fault}];
  static constexpr std::string_view kWhat[] = {
      "", "the coordinator crashes before it is durable",
      "the coordinator crashes as soon as it is durable", "it fails"};
  LOCKSTEP_TELL(story_, "  commit ({}): {}", Name(point),
                kWhat[static_cast<int>(fault)]);
}

// ---- The store --------------------------------------------------------------

void Checker::OnCommit(const server::StoreBatch& batch) {
  if (batch.request) CheckRequest(*batch.request, batch);
  for (const auto& job : batch.jobs) {
    CheckJob(store_->Find(job->spec.name), *job);
    CheckHolds(*job);
  }
  for (const JobName& name : batch.delete_jobs) {
    const server::Job* job = store_->Find(name);
    if (job == nullptr || !IsFinal(job->state)) {
      Break(Invariant::kS5,
            fmt::format("job {} is deleted and has not ended", name));
    }
  }
  for (const NodeName& node : batch.forget_nodes) {
    LOCKSTEP_TELL(story_, "  node {} is forgotten", node);
    drained_.erase(node);
    for (const auto& [pid, rank] : live_) {
      if (rank.node == node) {
        given_up_.insert({node, rank.uid, rank.generation});
      }
    }
  }
  for (const server::NodeRecord* node : batch.nodes) CheckDrain(*node);
}

void Checker::CheckRequest(const server::AnsweredRequest& request,
                           const server::StoreBatch& batch) {
  if (!effects_.insert(request.id).second) {
    Break(Invariant::kS5,
          fmt::format("request {} takes effect again", request.id));
  }
  if (forbidden_.contains(request.id)) {
    Break(Invariant::kS10,
          fmt::format("request {} of {}, who may not, takes effect", request.id,
                      request.client));
  }
  if (!IsDrainRequest(request)) return;
  for (const server::NodeRecord* node : batch.nodes) {
    drained_[node->info.name] = request.method == "DrainNode";
  }
}

void Checker::CheckDrain(const server::NodeRecord& node) {
  const auto known = drained_.find(node.info.name);
  const bool drained = known != drained_.end() && known->second;
  if (node.drain.has_value() == drained) return;
  Break(Invariant::kS5,
        fmt::format("node {} is {}, and the last command was to {} it",
                    node.info.name, drained ? "in use" : "drained",
                    drained ? "drain" : "undrain"));
}

void Checker::CheckJob(const server::Job* before, const server::Job& after) {
  const std::string& name = after.spec.name;
  if (before != nullptr) {
    const std::string rule = server::BrokenRule(*before, after);
    if (!rule.empty()) {
      Break(InvariantOf(rule), fmt::format("job {}: {}", name, rule));
    }
    if (before->uid != after.uid) {
      Break(Invariant::kS5, fmt::format("job {} is another one", name));
    }
    CheckReleased(*before, after);
  }
  if (before == nullptr || before->state != after.state ||
      before->generation != after.generation) {
    LOCKSTEP_TELL(story_, "  job {} g{} is {}{}{}", name, after.generation,
                  lockstep::Name(after.state),
                  after.cause.message.empty() ? "" : ": ", after.cause.message);
    if (IsFinal(after.state)) ++coverage_.final_jobs;
    if (after.state == JobState::kSucceeded) CheckSuccess(after);
  } else if (after.recovery > before->recovery) {
    CheckRecovery(after);
    if (NodesOf(after) != NodesOf(*before)) ++coverage_.moves;
  } else if (after.failing && !before->failing) {
    LOCKSTEP_TELL(story_, "  job {} g{} is being stopped: {}", name,
                  after.generation, after.failing->message);
  }
  Lineage& lineage = lineages_[after.uid];
  const bool begins =
      after.state == JobState::kPreparing &&
      (before == nullptr || before->generation != after.generation ||
       before->state == JobState::kQueued ||
       before->state == JobState::kPlacing);
  if (begins) {
    ++coverage_.generations;
    if (after.generation <= lineage.highest) {
      Break(Invariant::kS8,
            fmt::format("job {}: generation {} begins a second time", name,
                        after.generation));
    }
    lineage.highest = std::max(lineage.highest, after.generation);
    CheckSize(after);
  }
  if (after.cluster) CheckGroup(after);
  if (after.lineage.empty()) return;
  const LineageEntry& entry = after.lineage.back();
  const auto began = lineage.began.find(entry.generation);
  if (entry.start_step > 0 && began != lineage.began.end() &&
      began->second != entry.start_step) {
    Break(Invariant::kS1,
          fmt::format("job {} g{} resumed after step {}, and its lineage says "
                      "{}",
                      name, entry.generation, began->second, entry.start_step));
  }
}

void Checker::CheckSize(const server::Job& job) {
  const int32_t size = server::SizeOf(job);
  if (size == server::SizeOf(job.spec)) return;
  ++coverage_.partial;
  if (size >= server::LeastSize(job.spec)) return;
  Break(Invariant::kS8,
        fmt::format("job {} g{} has {} tasks, and {} are its least number",
                    job.spec.name, job.generation, size,
                    server::LeastSize(job.spec)));
}

void Checker::CheckGroup(const server::Job& job) {
  const std::string what = fmt::format("job {} g{} r{}", job.spec.name,
                                       job.generation, job.recovery);
  Group group{*job.cluster, {}, {}};
  int32_t complete = 0;
  for (const TaskStatus& task : job.tasks) {
    bool all = true;
    for (const RankStatus& rank : task.ranks) {
      (rank.away ? group.away : group.members).insert(rank.rank);
      all = all && !rank.away;
    }
    if (all) ++complete;
  }
  const auto [known, is_new] = lineages_[job.uid].groups.try_emplace(
      {job.generation, job.recovery}, group);
  if (!is_new && !(known->second == group)) {
    Break(Invariant::kS8, what + (known->second.cluster == group.cluster
                                      ? " has other members"
                                      : " has a second cluster spec"));
  }
  if (!is_new || group.away.empty()) return;
  if (job.recovery == 0) {
    Break(Invariant::kS8, what + " begins, and ranks are away");
  }
  const int32_t least = job.spec.elastic_min_tasks;
  if (least == 0 || complete < least) {
    Break(Invariant::kS8, fmt::format("{} has {} complete tasks, and {} are "
                                      "its least number",
                                      what, complete, least));
  }
}

void Checker::CheckRecovery(const server::Job& job) {
  ++coverage_.recoveries;
  LOCKSTEP_TELL(story_, "  job {} g{}: {}", job.spec.name, job.generation,
                job.cause.message);
  const auto& formed = lineages_[job.uid].formed;
  const auto newest = formed.find(job.generation);
  if (newest == formed.end() || newest->second < job.recovery) return;
  Break(
      Invariant::kS8,
      fmt::format("job {} g{}: recovery {} begins, and {} has formed",
                  job.spec.name, job.generation, job.recovery, newest->second));
}

// A hold ends when nothing of the generation is left there. If something is,
// the host must have been silent; and a program's ranks end by themselves
// before that counts.
void Checker::CheckReleased(const server::Job& before,
                            const server::Job& after) {
  for (const server::Hold& hold : before.holds) {
    if (std::any_of(after.holds.begin(), after.holds.end(),
                    [&](const server::Hold& other) {
                      return other.node == hold.node &&
                             other.generation == hold.generation;
                    })) {
      continue;
    }
    const auto heard = heard_.find(hold.node);
    const bool silent =
        heard == heard_.end() || time_->now() - heard->second > kSilence;
    if (silent && after.spec.kind == JobKind::kNative) {
      left_.insert({hold.node, after.uid, hold.generation});
    }
    for (const auto& [pid, rank] : live_) {
      if (rank.uid != after.uid || rank.generation != hold.generation ||
          rank.node != hold.node ||
          given_up_.contains({hold.node, rank.uid, hold.generation})) {
        continue;
      }
      if (silent && (rank.native || !store_->nodes().contains(hold.node))) {
        given_up_.insert({hold.node, rank.uid, hold.generation});
        break;
      }
      Break(Invariant::kS7,
            fmt::format("job {} g{}: what it held on node {} is free, and rank "
                        "{} lives there",
                        rank.job, hold.generation, hold.node, rank.rank));
    }
  }
}

void Checker::CheckHolds(const server::Job& changed) {
  for (const server::Hold& mine : changed.holds) {
    double cpus = 0;
    std::set<int32_t> gpus;
    const auto add = [&](const server::Job& job) {
      for (const server::Hold& hold : job.holds) {
        if (hold.node != mine.node) continue;
        cpus += hold.resources.cpus;
        for (const int32_t gpu : hold.gpus) {
          if (gpus.insert(gpu).second) continue;
          Break(Invariant::kS7, fmt::format("GPU {} of node {} is given twice",
                                            gpu, mine.node));
        }
      }
    };
    add(changed);
    for (const auto& [name, job] : store_->jobs()) {
      if (name != changed.spec.name && !job->holds.empty()) add(*job);
    }
    const auto node = store_->nodes().find(mine.node);
    if (node != store_->nodes().end() &&
        cpus > node->second.info.capacity.cpus + 1e-6) {
      Break(Invariant::kS7,
            fmt::format("{} cores of node {} are given", cpus, mine.node));
    }
  }
}

void Checker::OnOrder(const NodeName& node, const Assignment& order) {
  if (order.goal >= Goal::kStop) return;
  const server::Job* job = store_->Find(order.job);
  if (job == nullptr || job->uid != order.job_uid ||
      job->generation < order.generation) {
    Break(Invariant::kS8,
          fmt::format("node {} hears of job {} g{}, which is not stored", node,
                      order.job, order.generation));
    return;
  }
  if (!order.cluster) return;
  const auto& groups = lineages_[order.job_uid].groups;
  const auto known = groups.find({order.generation, order.recovery});
  if (known == groups.end() || !(known->second.cluster == *order.cluster)) {
    Break(Invariant::kS8,
          fmt::format("node {} gets another cluster spec of job {} g{}", node,
                      order.job, order.generation));
    return;
  }
  if (std::set<int32_t>(order.away_ranks.begin(), order.away_ranks.end()) ==
      known->second.away) {
    return;
  }
  Break(Invariant::kS8,
        fmt::format("node {} is told that other ranks of job {} g{} r{} are "
                    "away",
                    node, order.job, order.generation, order.recovery));
}

void Checker::OnObeyed(const NodeName& node, const Assignment& order,
                       bool followed) {
  if (followed) return;
  Break(Invariant::kS10,
        fmt::format("node {} obeys {} of job {} g{} from epoch {}, which it "
                    "does not follow",
                    node, lockstep::Name(order.goal), order.job,
                    order.generation, order.epoch));
}

void Checker::OnLate(const Status& answer) {
  ++coverage_.late_messages;
  if (answer.code() == StatusCode::kAborted &&
      ReasonOf(answer) == "STALE_SESSION") {
    return;
  }
  Break(Invariant::kS10,
        fmt::format("a message of an ended stream is answered with \"{}\"",
                    answer.ok() ? "OK" : Message(answer)));
}

void Checker::OnAcknowledged(const std::string& id, const std::string& answer) {
  const auto [known, is_new] = answers_.try_emplace(id, answer);
  if (!is_new && known->second != answer) {
    Break(Invariant::kS5,
          fmt::format("request {} is answered with \"{}\" and with \"{}\"", id,
                      known->second, answer));
  }
  if (!store_->HasAnswered(id)) {
    Break(Invariant::kS5,
          fmt::format("request {} is acknowledged and is not stored", id));
  }
}

void Checker::OnPut(const std::string& uid, Generation generation,
                    uint64_t life) {
  puts_.try_emplace({uid, generation, life}, time_->now());
}

std::optional<MonoTime> Checker::PutSince(const std::string& uid,
                                          Generation generation,
                                          uint64_t life) const {
  const auto put = puts_.find({uid, generation, life});
  if (put == puts_.end()) return std::nullopt;
  return put->second;
}

// ---- Processes --------------------------------------------------------------

void Checker::CheckTwins(const LiveRank& rank) {
  const auto here = std::make_tuple(rank.node, rank.uid, rank.generation);
  const bool left = left_.contains(here);
  if (left) given_up_.insert(here);
  for (const auto& [pid, other] : live_) {
    if (other.uid != rank.uid) continue;
    if (other.generation == rank.generation) {
      // Its tasks moved away from a node that was lost. What lives there is a
      // member of no communicator.
      if (other.rank != rank.rank || left ||
          given_up_.contains({other.node, other.uid, other.generation})) {
        continue;
      }
      Break(Invariant::kS7,
            fmt::format("rank {} of job {} g{} starts on node {} and lives on "
                        "node {}",
                        rank.rank, rank.job, rank.generation, rank.node,
                        other.node));
      return;
    }
    if (given_up_.contains({other.node, other.uid, other.generation})) continue;
    Break(Invariant::kS7,
          fmt::format("rank {} of job {} g{} starts on node {}, and rank {} of "
                      "g{} lives on node {}",
                      rank.rank, rank.job, rank.generation, rank.node,
                      other.rank, other.generation, other.node));
    return;
  }
}

void Checker::OnStart(int64_t pid, const LiveRank& rank) {
  CheckTwins(rank);
  live_[pid] = rank;
}

void Checker::OnForgotten(const NodeName& node, const JobName& job,
                          Generation generation) {
  for (const auto& [pid, rank] : live_) {
    if (rank.node != node || rank.job != job || rank.generation != generation) {
      continue;
    }
    Break(Invariant::kS7,
          fmt::format("node {} forgets job {} g{}, and rank {} lives there",
                      node, job, generation, rank.rank));
  }
}

}  // namespace lockstep::simulation
