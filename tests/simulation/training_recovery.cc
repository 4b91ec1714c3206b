// Ranks that lost a peer and stay.
#include <algorithm>
#include <set>

#include "tests/simulation/training.h"

namespace lockstep::simulation {

bool IsRecoverable(const std::string& uid) {
  return Mix({HashOf(uid), 3}) % 3 > 0;
}

bool IsElastic(const std::string& uid) {
  return IsRecoverable(uid) && Mix({HashOf(uid), 4}) % 8 > 0;
}

using std::chrono_literals::operator""ms;
using worker::agent::Actions;
using worker::agent::AgentCore;
using worker::agent::GangKey;
using worker::agent::RankJoin;
using worker::agent::RankNews;

void Training::ParkAll(const Gang& gang) {
  for (const auto& [rank, pid] : gang.pids) {
    const Member* const member = Find(pid);
    if (member == nullptr || !member->controller || member->parked) continue;
    Together(pid, Pause(*member, 1ms, 60ms, 18),
             [this, pid = pid](Member* m) { Park(pid, m); });
  }
}

void Training::Park(int64_t pid, Member* member) {
  member->parked = true;
  member->progress.phase = "recovering";
  member->told_parked = member->recovery + 1;
  if (member->IsAway()) {
    const auto& [uid, generation] = member->gang;
    checker_->OnWaits(pid, uid, generation, member->recovery, member->rank);
  }
  Repeat(pid);
}

void Training::Repeat(int64_t pid) {
  const Member* const member = Find(pid);
  if (member == nullptr) return;
  RankNews news;
  news.parked = member->told_parked;
  const GangKey key{GangOf(*member).job, member->gang.second};
  member->host->Tell(pid,
                     [key, rank = member->rank, news, joined = member->joined](
                         AgentCore* core, Time now, Actions* out) {
                       if (joined) core->OnRankJoined(key, rank, *joined, out);
                       if (news.parked > 0)
                         core->OnRankNews(key, rank, news, now, out);
                     });
}

void Training::OnRecover(int64_t pid, uint32_t recovery,
                         const std::vector<int32_t>& away) {
  if (Find(pid) == nullptr) return;
  Later(pid, 2ms, [this, pid, recovery, away](Member* m) {
    if (recovery <= m->recovery) return;
    // It leaves the communicator that it is in.
    if (m->controller && !m->parked) Park(pid, m);
    m->recovery = recovery;
    m->away = {away.begin(), away.end()};
    m->parked = true;
    m->joined.reset();
    m->progress.phase = "recovering";
    Enter(pid, m);
  });
}

void Training::Enter(int64_t pid, Member* member) {
  if (!member->IsAway()) return Form(member->gang, member->recovery);
  member->stopping = member->saved_last = false;
  // It gets another one when it is back.
  if (bug_ == Bug::kKeepsOldState) {
    member->kept = member->controller.has_value();
  } else {
    member->controller.reset();
  }
  Later(pid, Pause(*member, 100ms, 900ms, 28),
        [this, pid, recovery = member->recovery](Member* m) {
          if (m->recovery == recovery) Park(pid, m);
        });
}

void Training::Form(const GangId& id, uint32_t recovery) {
  Gang& gang = gangs_.at(id);
  if (gang.formed >= recovery) return;
  // All that are in the recovery know who is away.
  const auto there =
      std::find_if(gang.pids.begin(), gang.pids.end(), [&](const auto& entry) {
        const Member* const member = Find(entry.second);
        return member != nullptr && member->recovery == recovery;
      });
  if (there == gang.pids.end()) return;
  const std::set<int32_t> away = Find(there->second)->away;
  std::set<int32_t> members;
  std::set<int64_t> pids;
  for (int32_t rank = 0; rank < gang.world_size; ++rank) {
    if (away.contains(rank)) continue;
    const auto pid = gang.pids.find(rank);
    if (pid == gang.pids.end()) return;
    const Member* const member = Find(pid->second);
    if (member == nullptr || member->recovery != recovery ||
        member->away != away) {
      return;
    }
    members.insert(rank);
    pids.insert(pid->second);
  }
  for (const int64_t a : pids) {
    for (const int64_t b : pids) {
      if (Reaches(Find(a)->host->index(), Find(b)->host->index())) continue;
      return time_->After(300ms, [this, id, recovery] { Form(id, recovery); });
    }
  }
  gang.formed = recovery;
  gang.members = members;
  gang.words.clear();
  ++gang.rounds;
  checker_->OnFormed(id.first, id.second, recovery, pids);
  Level(id, recovery);
  // They may not know yet that they are away, and see that the others left.
  for (const auto& [rank, pid] : gang.pids) {
    const Member* const member = Find(pid);
    if (member == nullptr || !member->controller || member->parked) continue;
    if (members.contains(rank)) continue;
    Together(pid, Pause(*member, 1ms, 60ms, 18),
             [this, pid = pid](Member* m) { Park(pid, m); });
  }
}

void Training::Level(const GangId& id, uint32_t recovery) {
  Gang& gang = gangs_.at(id);
  const Member* source = nullptr;
  for (const int32_t rank : gang.members) {
    const Member* const member = Find(gang.pids.at(rank));
    if (!member->controller) continue;
    if (member->kept) {
      source = member;
      break;
    }
    if (source == nullptr) {
      source = member;
      continue;
    }
    const int64_t more =
        member->controller->committed() - source->controller->committed();
    if (bug_ == Bug::kLevelsBack ? more < 0 : more > 0) source = member;
  }
  // Without a state they begin as at the start of the generation.
  if (source == nullptr) gang.resumed = true;
  const bool stopping = source != nullptr && source->stopping;
  SavedState state;
  if (source != nullptr) {
    state.generation = id.second;
    state.step = source->controller->committed();
    state.state = source->state;
  }
  for (const int32_t rank : gang.members) {
    const int64_t pid = gang.pids.at(rank);
    Member* const member = Find(pid);
    member->kept = false;
    if (source != nullptr) {
      checker_->OnLevelled(
          {id.first, id.second, recovery, rank, state.step, 0, state.state},
          member->controller.has_value());
      BeginAt(member, id.second, &state);
      member->stopping = stopping;
      member->saved_last = false;
    }
    Later(pid, Pause(*member, 5ms, 400ms, 27),
          [this, pid, recovery](Member* m) { Rejoin(pid, m, recovery); });
  }
}

void Training::Rejoin(int64_t pid, Member* member, uint32_t recovery) {
  if (member->recovery != recovery) return;
  member->parked = false;
  member->joined = RankJoin{recovery, true, IsElastic(member->gang.first)};
  Repeat(pid);
  if (member->controller) {
    Together(pid, 1ms, [this, pid](Member* m) { Go(pid, m); });
  } else if (IsChief(*member)) {
    Together(pid, 500ms, [this, pid](Member* m) { Resume(pid, m); });
  }
}

}  // namespace lockstep::simulation
