#include "tests/simulation/training.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::simulation {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using worker::agent::Actions;
using worker::agent::AgentCore;
using worker::agent::GangKey;
using worker::agent::RankNews;
using worker::runtime::CheckpointOrder;
using worker::runtime::ControlWords;
using worker::runtime::StepController;
using worker::runtime::StepOrders;

constexpr int64_t kHashInterval = 4;

Duration StepTime(const std::string& uid) {
  return std::chrono::milliseconds(100 + Mix({HashOf(uid), 2}) % 900);
}

ExitStatus ExitWith(int32_t code, std::string message) {
  ExitStatus exit;
  exit.value = code;
  exit.message = std::move(message);
  return exit;
}

}  // namespace

// ---- The disk ---------------------------------------------------------------

const SavedState* SharedDisk::FindResume(
    const std::string& uid, const std::vector<LineageEntry>& lineage,
    bool older) const {
  const auto job = jobs_.find(uid);
  if (job == jobs_.end()) return nullptr;
  const auto alive = [&](const SavedState& saved) {
    bool listed = false;
    for (const LineageEntry& entry : lineage) {
      if (entry.generation == saved.generation) {
        listed = entry.start_step <= saved.step;
      }
      if (entry.generation > saved.generation &&
          entry.start_step != LineageEntry::kNotSaid &&
          entry.start_step < saved.step) {
        return false;
      }
    }
    return listed;
  };
  const auto& entries = job->second.entries;
  for (auto it = entries.rbegin(); it != entries.rend(); ++it) {
    const Entry& entry = it->second;
    if (!entry.complete || !alive(entry.saved)) continue;
    if (!std::exchange(older, false)) return &entry.saved;
  }
  return nullptr;
}

bool SharedDisk::TakeOver(const std::string& uid, Generation generation) {
  Job& job = jobs_[uid];
  if (generation < job.newest) return false;
  job.newest = generation;
  return true;
}

void SharedDisk::LosePower(int32_t node) {
  for (auto& [uid, job] : jobs_) {
    for (auto& [key, entry] : job.entries) {
      std::erase_if(entry.unsynced, [&](const auto& part) {
        if (part.second != node) return false;
        entry.saved.parts.erase(part.first);
        return true;
      });
    }
  }
}

// ---- Ranks ------------------------------------------------------------------

Training::Member* Training::Find(int64_t pid) {
  const auto it = members_.find(pid);
  return it == members_.end() ? nullptr : &it->second;
}

Duration Training::Pause(const Member& member, Duration least, Duration most,
                         uint64_t what) const {
  const int64_t step =
      member.controller ? member.controller->committed() : int64_t{0};
  return time_->Delay(
      least, most,
      {what, HashOf(member.gang.first), member.gang.second,
       static_cast<uint64_t>(member.rank), static_cast<uint64_t>(step)});
}

void Training::Later(int64_t pid, Duration delay,
                     std::function<void(Member*)> what) {
  time_->After(delay, [this, pid, what = std::move(what)] {
    Member* const member = Find(pid);
    if (member == nullptr) return;
    if (time_->now() < member->frozen_until) {
      return Later(pid, member->frozen_until - time_->now(), what);
    }
    what(member);
  });
}

void Training::Together(int64_t pid, Duration delay,
                        std::function<void(Member*)> what) {
  Later(pid, delay,
        [recovery = Find(pid)->recovery, what = std::move(what)](Member* m) {
          if (!m->parked && m->recovery == recovery) what(m);
        });
}

void Training::Start(int64_t pid, RankHost* host, const Assignment& assignment,
                     int32_t rank) {
  Member& member = members_[pid];
  member.host = host;
  member.gang = {assignment.job_uid, assignment.generation};
  member.rank = rank;
  member.progress.phase = "forming";
  Gang& gang = gangs_[member.gang];
  gang.job = assignment.job;
  gang.world_size = assignment.cluster->world_size;
  if (gang.members.empty()) {
    for (int32_t i = 0; i < gang.world_size; ++i) gang.members.insert(i);
  }
  if (rank == 0) gang.spec = *assignment.spec;
  gang.pids[rank] = pid;
  if (assignment.recovery == 0) return;
  member.go = member.parked = true;
  member.recovery = assignment.recovery;
  member.away.insert(assignment.away_ranks.begin(),
                     assignment.away_ranks.end());
  Later(pid, Pause(member, 100ms, 900ms, 19),
        [this, pid](Member* m) { Enter(pid, m); });
}

void Training::OnGo(int64_t pid) {
  Member* const member = Find(pid);
  if (member == nullptr || std::exchange(member->go, true)) return;
  Gang& gang = GangOf(*member);
  if (gang.pids.size() < static_cast<size_t>(gang.world_size) || gang.resumed) {
    return;
  }
  for (const auto& [rank, other] : gang.pids) {
    const Member* const peer = Find(other);
    if (peer == nullptr || !peer->go) return;
  }
  gang.resumed = true;
  Together(
      gang.pids.at(0), Pause(*member, 50ms, 900ms, 10),
      [this, chief = gang.pids.at(0)](Member* rank0) { Resume(chief, rank0); });
}

void Training::Resume(int64_t pid, Member* chief) {
  const auto [uid, generation] = chief->gang;
  const Gang& gang = GangOf(*chief);
  if (!disk_.TakeOver(uid, generation)) {
    return chief->host->End(pid, ExitWith(1, "a newer generation writes here"));
  }
  const SavedState* const from =
      disk_.FindResume(uid, gang.spec.lineage, bug_ == Bug::kResumesOlder);
  LOCKSTEP_TELL(story_, "  job {} g{} resumes after step {}", gang.job,
                generation, from == nullptr ? 0 : from->step);
  checker_->OnResumed(uid, generation, from, gang.world_size);
  RankNews news;
  news.resumed_step = from == nullptr ? 0 : from->step;
  chief->host->Tell(
      pid, [key = GangKey{gang.job, generation}, rank = chief->rank, news](
               AgentCore* core, Time now, Actions* out) {
        core->OnRankNews(key, rank, news, now, out);
      });
  for (const int32_t rank : gang.members) {
    const int64_t other = gang.pids.at(rank);
    Member* const member = Find(other);
    // It may be in a recovery that the chief, frozen, knows nothing of.
    if (member == nullptr || member->recovery != chief->recovery) continue;
    BeginAt(member, generation, from);
    Together(other, 1ms, [this, other](Member* m) { Go(other, m); });
  }
}

void Training::BeginAt(Member* member, Generation generation,
                       const SavedState* from) {
  const Gang& gang = GangOf(*member);
  worker::runtime::StepControllerOptions options;
  // Members are numbered in the order of their ranks.
  options.rank = static_cast<int>(std::distance(
      gang.members.begin(), gang.members.lower_bound(member->rank)));
  options.world_size = static_cast<int>(gang.members.size());
  options.generation = generation;
  options.fingerprint = 42;
  options.start_step = from == nullptr ? 0 : from->step;
  options.checkpoint_interval = gang.spec.checkpoint.interval_steps;
  options.state_hash_interval = kHashInterval;
  if (bug_ == Bug::kSkipsSamples && from != nullptr) {
    member->sample_error = static_cast<uint64_t>(options.start_step) * kBatch;
  }
  if (bug_ == Bug::kSkipsStep && from != nullptr) ++options.start_step;
  auto controller = StepController::Create(options);
  if (!controller.ok()) {
    return checker_->Break(Invariant::kS3,
                           std::string(Message(controller.status())));
  }
  member->controller.emplace(*std::move(controller));
  member->state =
      from == nullptr ? FirstState(member->gang.first) : from->state;
  member->progress.total_steps = TotalSteps(member->gang.first);
  member->progress.committed_step = options.start_step;
  for (const Directive& directive : member->directives) {
    member->controller->Offer(directive.kind == DirectiveKind::kStop
                                  ? worker::runtime::DirectiveOp::kStop
                                  : worker::runtime::DirectiveOp::kCheckpoint,
                              directive.id);
  }
}

void Training::OnDirective(int64_t pid, const Directive& directive) {
  Member* const member = Find(pid);
  if (member == nullptr) return;
  member->directives.push_back(directive);
  if (!member->controller) return;
  member->controller->Offer(directive.kind == DirectiveKind::kStop
                                ? worker::runtime::DirectiveOp::kStop
                                : worker::runtime::DirectiveOp::kCheckpoint,
                            directive.id);
}

void Training::Go(int64_t pid, Member* member) {
  StepController* const controller = &*member->controller;
  const bool done = controller->committed() >= member->progress.total_steps;
  if (!done && !member->stopping) {
    member->progress.step = controller->step();
    member->progress.phase = "compute";
    const Duration usual = StepTime(member->gang.first);
    Together(pid, Pause(*member, usual / 2, usual * 3 / 2, 11),
             [this, pid](Member* m) {
               const int64_t step = m->controller->step();
               worker::runtime::StepFacts facts;
               facts.cursor = static_cast<uint64_t>(step) * kBatch;
               facts.nonfinite = IsChief(*m) && IsSkipped(m->gang.first, step);
               if (m->controller->wants_state_hash())
                 facts.state_hash = m->state;
               Contribute(pid, m, m->controller->Begin(facts));
             });
    return;
  }
  // Saves once more, and ends when that is settled.
  if (!controller->in_flight() && !std::exchange(member->saved_last, true)) {
    const auto order = controller->BeginCheckpoint();
    if (order.ok()) Save(pid, member, *order);
  }
  if (controller->in_flight()) {
    Together(pid, Pause(*member, 80ms, 160ms, 12), [this, pid](Member* m) {
      Contribute(pid, m, m->controller->BeginRound());
    });
    return;
  }
  // The chief stays until what it publishes is there.
  if (member->publishing > 0) return;
  Together(pid, Pause(*member, 5ms, 100ms, 13),
           [pid](Member* m) { m->host->End(pid, ExitWith(0, "")); });
}

void Training::Contribute(int64_t pid, Member* member,
                          const StatusOr<ControlWords>& words) {
  if (!words.ok()) {
    return member->host->End(pid,
                             ExitWith(1, std::string(Message(words.status()))));
  }
  Gang& gang = GangOf(*member);
  member->progress.phase = "allreduce";
  ++member->progress.collectives;
  // It runs on a host that was given up, and its rank is elsewhere: the others
  // do not know it.
  if (gang.pids.at(member->rank) != pid) return;
  if (HaveLeft(*member)) return Park(pid, member);
  gang.words[member->rank] = *words;
  if (gang.words.size() == gang.members.size()) {
    Reduce(member->gang, gang.rounds);
  }
}

void Training::Reduce(const GangId& id, uint64_t round) {
  Gang& gang = gangs_.at(id);
  if (gang.rounds != round || gang.words.size() != gang.members.size()) {
    return;
  }
  for (const int32_t rank : gang.members) {
    const Member* const a = Find(gang.pids.at(rank));
    for (const int32_t other : gang.members) {
      const Member* const b = Find(gang.pids.at(other));
      if (a == nullptr || b == nullptr) return;  // It never ends.
      if (Reaches(a->host->index(), b->host->index())) continue;
      if (IsRecoverable(id.first) && time_->Choose(8, {26, round}) == 0) {
        return ParkAll(gang);
      }
      time_->After(300ms, [this, id, round] { Reduce(id, round); });
      return;
    }
  }
  ++gang.rounds;
  ControlWords sum{};
  for (const auto& [rank, words] : gang.words) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += words[i];
  }
  gang.words.clear();
  // Of ranks that lose a peer meanwhile some have the step and others not.
  const Duration late = IsRecoverable(id.first) ? 150ms : 8ms;
  for (const int32_t rank : gang.members) {
    const int64_t pid = gang.pids.at(rank);
    Together(pid, Pause(*Find(pid), 1ms, late, 14),
             [this, pid, sum](Member* m) { Receive(pid, m, sum); });
  }
}

void Training::Receive(int64_t pid, Member* member, const ControlWords& sum) {
  if (HaveLeft(*member)) return Park(pid, member);
  StepController* const controller = &*member->controller;
  const int64_t before = controller->committed();
  const auto verdict = controller->Verify(sum);
  if (!verdict.ok()) {
    return member->host->End(
        pid, ExitWith(1, std::string(Message(verdict.status()))));
  }
  const auto orders = controller->Commit();
  if (!orders.ok()) {
    return member->host->End(
        pid, ExitWith(1, std::string(Message(orders.status()))));
  }
  if (const int64_t step = controller->committed(); step != before) {
    const std::string& uid = member->gang.first;
    const uint64_t sample =
        static_cast<uint64_t>(step - 1) * kBatch - member->sample_error;
    member->state = NextState(member->state, uid, step, sample);
    if (bug_ == Bug::kAppliesTwice && member->rank == 1 && step % 5 == 3) {
      member->state = NextState(member->state, uid, step, sample);
    }
    member->progress.committed_step = step;
    member->progress.samples += static_cast<int64_t>(kBatch);
    checker_->OnCommitted({uid, member->gang.second, member->recovery,
                           member->rank, step, sample, member->state});
  }
  Follow(pid, member, *orders);
}

void Training::Follow(int64_t pid, Member* member, const StepOrders& orders) {
  if (orders.settled && IsChief(*member)) {
    if (orders.settled->complete) {
      Publish(pid, member, orders.settled->order);
    } else {
      LOCKSTEP_TELL(story_, "  job {} g{} gives up the checkpoint of step {}",
                    GangOf(*member).job, member->gang.second,
                    orders.settled->order.step);
    }
  }
  if (orders.checkpoint) Save(pid, member, *orders.checkpoint);
  if (orders.stop) member->stopping = true;
  Go(pid, member);
}

void Training::Save(int64_t pid, Member* member, const CheckpointOrder& order) {
  const GangId id = member->gang;
  if (std::exchange(member->cannot_save, false)) {
    Together(pid, 100ms, [order](Member* m) {
      (void)m->controller->Vote(order.id, false);
    });
    return;
  }
  const uint64_t state = member->state;
  Together(
      pid, Pause(*member, 50ms, 700ms, 15),
      [this, pid, id, order, state](Member* m) {
        SharedDisk::Entry& entry = disk_.At(id.first, {id.second, order.step});
        // Of an earlier order of the same step: it is never written again.
        if (entry.complete) {
          return (void)m->controller->Vote(order.id, true);
        }
        entry.saved.generation = id.second;
        entry.saved.step = order.step;
        if (IsChief(*m)) entry.saved.state = state;
        // Another order writes in a folder of its own: the part of an order
        // that is being published stays as it is.
        if (entry.saved.parts.insert(m->rank).second) {
          entry.unsynced[m->rank] = m->host->index();
        }
        const bool early = bug_ == Bug::kVotesEarly;
        if (early) (void)m->controller->Vote(order.id, true);
        const Duration sync =
            early ? Duration(60s) : Pause(*m, 20ms, 400ms, 16);
        Together(pid, sync, [this, id, order](Member* done) {
          disk_.At(id.first, {id.second, order.step})
              .unsynced.erase(done->rank);
          if (bug_ != Bug::kVotesEarly) {
            (void)done->controller->Vote(order.id, true);
          }
        });
      });
}

void Training::Publish(int64_t pid, Member* member,
                       const CheckpointOrder& order) {
  ++member->publishing;
  const uint32_t recovery = member->recovery;
  Later(pid, Pause(*member, 20ms, 300ms, 17), [=, this](Member* m) {
    const auto [uid, generation] = m->gang;
    const Gang& gang = GangOf(*m);
    if (!disk_.TakeOver(uid, generation)) {
      return m->host->End(pid, ExitWith(1, "a newer generation writes here"));
    }
    SharedDisk::Entry& entry = disk_.At(uid, {generation, order.step});
    if (!std::exchange(entry.complete, true)) {
      checker_->OnPublished(uid, entry.saved, recovery);
    }
    LOCKSTEP_TELL(story_, "  job {} g{} publishes the checkpoint of step {}",
                  gang.job, generation, order.step);
    RankNews news;
    news.checkpoint = Checkpoint{order.step, generation, "/out", {}, 100};
    for (const uint32_t directive : order.directives) {
      news.directive_done = std::max(news.directive_done, directive);
    }
    std::erase_if(m->directives, [&](const Directive& directive) {
      return directive.kind != DirectiveKind::kStop &&
             directive.id <= news.directive_done;
    });
    m->host->Tell(pid, [key = GangKey{gang.job, generation}, rank = m->rank,
                        news](AgentCore* core, Time now, Actions* out) {
      core->OnRankNews(key, rank, news, now, out);
    });
    ++m->progress.checkpoints;
    const bool over =
        m->controller->committed() >= m->progress.total_steps || m->stopping;
    if (--m->publishing == 0 && over && m->saved_last && !m->parked &&
        !m->controller->in_flight()) {
      Go(pid, m);
    }
  });
}

void Training::OnDead(int64_t pid, bool well) {
  const auto it = members_.find(pid);
  if (it == members_.end()) return;
  const GangId id = it->second.gang;
  const Gang& gang = gangs_.at(id);
  const int32_t rank = it->second.rank;
  members_.erase(it);
  if (well || gang.pids.at(rank) != pid || !gang.members.contains(rank)) return;
  if (IsRecoverable(id.first)) return ParkAll(gang);
  for (const auto& [other, peer] : gang.pids) {
    Member* const member = Find(peer);
    if (other == rank || member == nullptr || !member->controller) continue;
    Later(peer, Pause(*member, 1ms, 60ms, 18), [peer = peer, rank](Member* m) {
      m->host->End(peer, ExitWith(worker::agent::kPeerLostCode,
                                  fmt::format("lost rank {}", rank)));
    });
  }
}

RankProgress Training::ProgressOf(int64_t pid) const {
  const auto it = members_.find(pid);
  return it == members_.end() ? RankProgress() : it->second.progress;
}

// ---- Faults -----------------------------------------------------------------

void Training::Freeze(int64_t pid, Duration time) {
  if (Member* const member = Find(pid)) {
    member->frozen_until = time_->now() + time;
  }
}

void Training::FailCheckpoint(int64_t pid) {
  if (Member* const member = Find(pid)) member->cannot_save = true;
}

void Training::CutData(int32_t a, int32_t b, Duration time) {
  cut_until_[std::minmax(a, b)] = time_->now() + time;
}

bool Training::Reaches(int32_t a, int32_t b) const {
  const auto cut = cut_until_.find(std::minmax(a, b));
  return cut == cut_until_.end() || time_->now() >= cut->second;
}

}  // namespace lockstep::simulation
