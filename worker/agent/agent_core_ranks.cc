// What ranks say and how they end.
#include <algorithm>
#include <utility>

#include "worker/agent/agent_core.h"

namespace lockstep {

RankStatus* AgentCore::FindRank(const GangKey& key, int32_t rank, Gang** gang) {
  const auto it = gangs_.find(key);
  if (it == gangs_.end()) return nullptr;
  *gang = &it->second;
  for (RankStatus& status : it->second.status.ranks) {
    if (status.rank == rank) return &status;
  }
  return nullptr;
}

void AgentCore::OnRankStarted(const GangKey& key, int32_t rank, int64_t pid,
                              Actions* out) {
  Gang* gang = nullptr;
  RankStatus* status = FindRank(key, rank, &gang);
  if (status == nullptr || status->state >= RankState::kStarted) return;
  status->state = RankState::kStarted;
  status->pid = pid;
  out->push_back(MakeAction(Action::Kind::kReport, key));
}

void AgentCore::OnRankJoined(const GangKey& key, int32_t rank, Actions* out) {
  Gang* gang = nullptr;
  RankStatus* status = FindRank(key, rank, &gang);
  if (status == nullptr || status->state >= RankState::kJoined) return;
  status->state = RankState::kJoined;
  out->push_back(MakeAction(Action::Kind::kReport, key));
  if (gang->assignment.goal == Goal::kGo) Go(key, gang, out);
}

void AgentCore::OnRankNews(const GangKey& key, int32_t rank,
                           const RankNews& news, Time now, Actions* out) {
  Gang* gang = nullptr;
  if (FindRank(key, rank, &gang) == nullptr) return;
  GangStatus& status = gang->status;
  const GangStatus before = status;
  if (news.checkpoint && (!status.checkpoint ||
                          news.checkpoint->step >= status.checkpoint->step)) {
    const WallTime time =
        status.checkpoint && status.checkpoint->step == news.checkpoint->step
            ? status.checkpoint->time  // A repeat.
            : now.wall;
    status.checkpoint = news.checkpoint;
    status.checkpoint->generation = key.generation;
    status.checkpoint->time = time;
  }
  if (!news.artifact_name.empty() &&
      (status.artifacts.size() < 64 ||
       status.artifacts.contains(news.artifact_name))) {
    status.artifacts[news.artifact_name] = news.artifact_path;
  }
  if (!news.event.empty()) {
    status.events.push_back(
        {++gang->last_event, rank, now.wall, news.event_reason, news.event});
    if (status.events.size() > kKeptEvents) {
      status.events.erase(status.events.begin());
    }
  }
  if (news.resumed_step) status.resumed_step = news.resumed_step;
  if (rank == 0 && !news.reduction_plan.empty()) {
    status.reduction_plan = news.reduction_plan;
  }
  status.directive_done = std::max(status.directive_done, news.directive_done);
  KeepLostPeers(rank, news, gang);
  AgentCore::Gang::LastWords& words = gang->words[rank];
  if (!news.failure.empty()) words.failure = news.failure;
  if (news.failure_reason != Reason::kNone) words.reason = news.failure_reason;
  words.victim = words.victim || news.victim;
  if (status != before) out->push_back(MakeAction(Action::Kind::kReport, key));
}

void AgentCore::KeepLostPeers(int32_t rank, const RankNews& news, Gang* gang) {
  if (!gang->assignment.cluster) return;  // Nothing was launched.
  std::vector<LostPeer>& kept = gang->status.lost_peers;
  for (const int32_t peer : news.lost_peers) {
    if (peer < 0 || peer == rank ||
        peer >= gang->assignment.cluster->world_size ||
        kept.size() >= kKeptLostPeers) {
      continue;
    }
    const bool known =
        std::any_of(kept.begin(), kept.end(), [&](const LostPeer& other) {
          return other.rank == rank && other.peer == peer;
        });
    if (!known) kept.push_back({rank, peer, news.lost_peer_error});
  }
}

void AgentCore::OnRankExited(const GangKey& key, int32_t rank, ExitStatus exit,
                             const RankProgress& progress, const Usage& usage,
                             Actions* out) {
  Gang* gang = nullptr;
  RankStatus* status = FindRank(key, rank, &gang);
  if (status == nullptr || status->state == RankState::kExited) return;
  const Gang::LastWords words = gang->words[rank];
  if (!words.failure.empty()) exit.message = words.failure;
  if (words.reason != Reason::kNone) exit.reason = words.reason;
  exit.victim = exit.victim || words.victim;
  // What ends after we said stop ends because of that: but not a rank that
  // had ended before, or had named an error of its own. Its peers may have
  // been quicker to say that it is gone than it was to go.
  const bool own_error = !words.failure.empty() && !words.victim;
  const bool before_stop = gang->stopped_at && exit.end_time != WallTime{} &&
                           exit.end_time < *gang->stopped_at;
  if (!exit.ok() && gang->assignment.goal >= Goal::kStop && !own_error &&
      !before_stop) {
    exit.victim = true;
    const std::string& why = gang->assignment.stop_message;
    if (exit.message.empty() && !why.empty()) exit.message = "stopped: " + why;
  }
  const bool native =
      gang->assignment.spec && gang->assignment.spec->kind == JobKind::kNative;
  if (native && exit.how == ExitStatus::How::kCode &&
      exit.value == kPeerLostCode) {
    exit.victim = true;
  }
  status->state = RankState::kExited;
  status->exit = std::move(exit);
  status->progress = progress;
  status->usage = usage;
  out->push_back(MakeAction(Action::Kind::kReport, key));
  RestartTasks(key, gang, out);
  EndIfOver(key, gang, out);
  ForgetIfAsked(key, out);
}

}  // namespace lockstep
