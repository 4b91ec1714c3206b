#include "worker/agent/prepare/preparation_times.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::worker::agent {

void PreparationTimes::Set(const GangKey& key, TaskPreparation preparation) {
  gangs_[key].preparation = std::move(preparation);
}

std::optional<TaskPreparation> PreparationTimes::Get(const GangKey& key) const {
  const auto it = gangs_.find(key);
  return it == gangs_.end() ? std::nullopt : it->second.preparation;
}

void PreparationTimes::NoteLaunch(const GangKey& key, MonoTime now) {
  Times& times = gangs_[key];
  if (!times.launched) times.launched = now;
}

void PreparationTimes::NoteStarted(const GangKey& key, const LocalGang& gang,
                                   int32_t rank, MonoTime now) {
  const auto it = gangs_.find(key);
  if (!gang.assignment.spec || it == gangs_.end() || !it->second.launched) {
    return;
  }
  const auto runs = [&](const RankSpec& spec) {
    const RankStatus* status = FindRank(gang, spec.rank);
    return status != nullptr && status->state >= RankState::kStarted;
  };
  const std::vector<LocalTask>& tasks = gang.assignment.spec->tasks;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const std::vector<RankSpec>& ranks = tasks[i].ranks;
    const bool own =
        std::any_of(ranks.begin(), ranks.end(),
                    [&](const RankSpec& spec) { return spec.rank == rank; });
    if (own && std::all_of(ranks.begin(), ranks.end(), runs)) {
      it->second.exec.try_emplace(i, now - *it->second.launched);
    }
  }
}

void PreparationTimes::AddTo(const GangKey& key, const LocalGang& gang,
                             MonoTime now, GangStatus* status) const {
  const auto it = gangs_.find(key);
  if (!gang.assignment.spec || it == gangs_.end() || !it->second.preparation) {
    return;
  }
  const Times& times = it->second;
  status->preparations.clear();
  for (size_t i = 0; i < gang.assignment.spec->tasks.size(); ++i) {
    TaskPreparation task = *times.preparation;
    const auto exec = times.exec.find(i);
    if (exec != times.exec.end()) {
      task.parts.push_back({std::string(kExecPart), exec->second});
    } else if (times.launched && status->phase == GangPhase::kLaunched) {
      task.parts.push_back({std::string(kExecPart), now - *times.launched});
      task.current = kExecPart;
    }
    status->preparations.push_back(std::move(task));
  }
}

}  // namespace lockstep::worker::agent
