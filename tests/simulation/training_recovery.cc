// Ranks that lost a peer and stay.
#include <set>

#include "tests/simulation/training.h"

namespace lockstep::simulation {

using std::chrono_literals::operator""ms;
using worker::agent::Actions;
using worker::agent::AgentCore;
using worker::agent::GangKey;
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
  RankNews news;
  news.parked = member->recovery + 1;
  const GangKey key{GangOf(*member).job, member->gang.second};
  member->host->Tell(pid, [key, rank = member->rank, news](
                              AgentCore* core, Time now, Actions* out) {
    core->OnRankNews(key, rank, news, now, out);
  });
}

void Training::OnRecover(int64_t pid, uint32_t recovery) {
  if (Find(pid) == nullptr) return;
  Later(pid, 2ms, [this, recovery](Member* m) {
    if (recovery <= m->recovery) return;
    m->recovery = recovery;
    m->parked = true;
    m->progress.phase = "recovering";
    Form(m->gang, recovery);
  });
}

void Training::Form(const GangId& id, uint32_t recovery) {
  Gang& gang = gangs_.at(id);
  if (gang.formed >= recovery ||
      gang.pids.size() < static_cast<size_t>(gang.world_size)) {
    return;
  }
  std::set<int64_t> pids;
  for (const auto& [rank, pid] : gang.pids) {
    const Member* const member = Find(pid);
    if (member == nullptr || member->recovery != recovery) return;
    pids.insert(pid);
  }
  for (const int64_t a : pids) {
    for (const int64_t b : pids) {
      if (Reaches(Find(a)->host->index(), Find(b)->host->index())) continue;
      return time_->After(300ms, [this, id, recovery] { Form(id, recovery); });
    }
  }
  gang.formed = recovery;
  gang.words.clear();
  ++gang.rounds;
  checker_->OnFormed(id.first, id.second, recovery, pids);
  Level(id, recovery);
}

void Training::Level(const GangId& id, uint32_t recovery) {
  Gang& gang = gangs_.at(id);
  const Member* source = nullptr;
  for (const auto& [rank, pid] : gang.pids) {
    const Member* const member = Find(pid);
    if (!member->controller) continue;
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
  for (const auto& [rank, pid] : gang.pids) {
    Member* const member = Find(pid);
    if (source != nullptr) {
      checker_->OnLevelled({id.first, id.second, rank, gang.world_size,
                            state.step, 0, state.state},
                           member->controller.has_value());
      BeginAt(member, id.second, &state);
      member->stopping = stopping;
      member->saved_last = false;
    }
    Later(pid, Pause(*member, 5ms, 400ms, 27),
          [this, pid = pid, recovery](Member* m) { Rejoin(pid, m, recovery); });
  }
}

void Training::Rejoin(int64_t pid, Member* member, uint32_t recovery) {
  if (member->recovery != recovery) return;
  member->parked = false;
  const GangKey key{GangOf(*member).job, member->gang.second};
  member->host->Tell(pid, [key, rank = member->rank, recovery](
                              AgentCore* core, Time, Actions* out) {
    core->OnRankJoined(key, rank, {recovery, true}, out);
  });
  if (member->controller) {
    Together(pid, 1ms, [this, pid](Member* m) { Go(pid, m); });
  } else if (member->rank == 0) {
    Together(pid, 500ms, [this, pid](Member* m) { Resume(pid, m); });
  }
}

}  // namespace lockstep::simulation
