// Working directories of tasks: making them, what they held at the end, parts
// of them for who fetches files, and removing them.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/base/logging.h"
#include "worker/agent/agent.h"
#include "worker/agent/work/work_files.h"

namespace lockstep {
namespace {

// A file system that does not answer must not keep an end from being reported.
// Longer than the walk itself may take.
constexpr Duration kLongestWalk = std::chrono::seconds(1);
// The next attempt waits for the walk after a failure.
constexpr size_t kEntriesAfterFailure = 5000;
constexpr Duration kTimeAfterFailure = std::chrono::milliseconds(100);
// Requests for files that wait here; the coordinator sends fewer.
constexpr size_t kMostFileRequests = 32;

bool HasOwnWork(const LocalGang& gang) {
  return gang.assignment.spec &&
         gang.assignment.spec->working_directory.empty();
}

}  // namespace

std::string Agent::WorkOf(const RankRef& ref, const Assignment& assignment,
                          const LocalTask& task) const {
  const auto path =
      work_store_.PathOf(assignment.job_uid, task.type, task.index);
  return path.ok() ? *path : store_.PathsOf(ref.gang, ref.rank).work;
}

Status Agent::MakeWork(const Assignment& assignment, const LocalTask& task) {
  if (!assignment.spec->working_directory.empty()) return OkStatus();
  return work_store_
      .Make(assignment.job_uid, task.type, task.index,
            config_.user ? config_.user->uid : geteuid(),
            config_.user ? config_.user->gid : getegid())
      .status();
}

bool Agent::AwaitsWork(const GangKey& key) {
  const LocalGang* gang = core_.Find(key);
  if (gang == nullptr || gang->status.phase != GangPhase::kStopped ||
      !HasOwnWork(*gang)) {
    return false;
  }
  const std::vector<RankStatus>& ranks = gang->status.ranks;
  if (std::none_of(ranks.begin(), ranks.end(), [](const RankStatus& rank) {
        return rank.exit.has_value();
      })) {
    return false;  // It never ran.
  }
  // A later generation uses the directories already, and its reports must not
  // come before this one's.
  const auto later = core_.gangs().upper_bound(key);
  if (later != core_.gangs().end() && later->first.job == key.job) return false;
  GangInfo& info = gangs_[key];
  if (info.work_walk != OutputSearch::kNone) {
    return info.work_walk == OutputSearch::kRuns;
  }
  info.work_walk = OutputSearch::kRuns;
  WalkLimits limits;
  if (std::any_of(ranks.begin(), ranks.end(), [](const RankStatus& rank) {
        return rank.exit && !rank.exit->ok();
      })) {
    limits.entries = kEntriesAfterFailure;
    limits.time = kTimeAfterFailure;
  }
  std::vector<std::string> paths;
  for (const LocalTask& task : gang->assignment.spec->tasks) {
    paths.push_back(
        work_store_.PathOf(gang->assignment.job_uid, task.type, task.index)
            .value_or(""));
  }
  walk_work_->Add([this, key, limits, paths, alive = alive_] {
    std::vector<WorkDirectory> found;
    WalkLimits left = limits;
    const MonoTime end = MonotonicNow() + limits.time;
    for (const std::string& path : paths) {
      left.time = std::max(Duration{}, end - MonotonicNow());
      found.push_back(DescribeWork(path, left, MonotonicNow));
    }
    loop_->Post([this, key, found, alive] {
      if (*alive) OnWork(key, found);
    });
  });
  loop_->At(loop_->Now().mono + kLongestWalk, [this, key, alive = alive_] {
    if (*alive) OnWork(key, {});
  });
  return true;
}

void Agent::OnWork(const GangKey& key, std::vector<WorkDirectory> work) {
  const auto it = gangs_.find(key);
  if (core_.Find(key) == nullptr || it == gangs_.end() ||
      it->second.work_walk != OutputSearch::kRuns) {
    return;
  }
  it->second.work_walk = OutputSearch::kDone;
  it->second.work = std::move(work);
  Report(key);
}

bool Agent::IsHere(const std::string& uid) const {
  return std::any_of(
      core_.gangs().begin(), core_.gangs().end(),
      [&](const auto& entry) { return entry.second.status.job_uid == uid; });
}

void Agent::SettleWork(const std::string& uid) {
  std::erase_if(unwanted_work_, [this](const std::string& unwanted) {
    if (IsHere(unwanted)) return false;
    DropWork(unwanted);
    return true;
  });
  if (!uid.empty() && !IsHere(uid)) work_store_.Settle(uid);
}

void Agent::OnDropWork(const v1::DropWork& drop) {
  for (const std::string& uid : drop.job_uids()) {
    if (!work_store_.jobs().contains(uid)) continue;
    if (IsHere(uid)) {
      unwanted_work_.insert(uid);  // Once its gangs are gone.
      continue;
    }
    DropWork(uid);
  }
}

void Agent::DropWork(const std::string& uid) {
  const auto aside = work_store_.SetAside(uid);
  if (aside.ok()) return RemoveAside(*aside);
  if (aside.status().code() != StatusCode::kNotFound) {
    LOG_WARN("{}", Message(aside.status()));
  }
}

void Agent::DropOldestWork() {
  if (!disk_is_full_ || dropping_work_) return;
  std::set<std::string> busy;
  for (const auto& [key, gang] : core_.gangs()) {
    busy.insert(gang.status.job_uid);
  }
  const auto oldest = work_store_.Oldest(busy, loop_->Now().wall);
  if (!oldest) return;
  const auto aside = work_store_.SetAside(*oldest);
  if (!aside.ok()) {
    LOG_WARN("{}", Message(aside.status()));
    return;
  }
  ++dropped_work_;
  LOG_WARN(
      "the working directories of job {} are removed, as the disk of {} is "
      "nearly full and they were used the longest ago",
      *oldest, config_.dir);
  // One at a time: it may be enough.
  dropping_work_ = true;
  removal_work_->Add([this, files = files_, path = *aside, alive = alive_] {
    if (const Status removed = files->RemoveAll(path); !removed.ok()) {
      LOG_WARN("{}: the next start of the worker tries it again",
               Message(removed));
    }
    loop_->Post([this, alive] {
      if (*alive) dropping_work_ = false;
    });
  });
}

void Agent::OnFileRequest(uint64_t stream, const FileQuery& query) {
  const auto send = [this, stream](const FileAnswer& answer) {
    if (stream != stream_) return;
    v1::WorkerMessage message;
    *message.mutable_file_reply() = ToProto(answer);
    Send(message);
  };
  FileAnswer refusal;
  refusal.id = query.id;
  const auto path = work_store_.PathOf(query.job_uid, query.type, query.index);
  if (!path.ok()) {
    refusal.status = path.status();
    return send(refusal);
  }
  if (file_requests_ >= kMostFileRequests) {
    refusal.status = Unavailable(
        "node {} answers {} requests for files already: try again in a moment",
        config_.node.name, file_requests_);
    return send(refusal);
  }
  ++file_requests_;
  file_work_->Add(
      [this, query, send, path = *path, user = config_.user, alive = alive_] {
        auto answer = std::make_shared<FileAnswer>(
            AnswerQuery(path, query, user, WalkLimits(), MonotonicNow));
        loop_->Post([this, send, answer, alive] {
          if (!*alive) return;
          --file_requests_;
          send(*answer);
        });
      });
}

}  // namespace lockstep
