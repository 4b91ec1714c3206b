#include "worker/agent/work/gang_leftovers.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "worker/agent/work/output_files.h"
#include "worker/agent/work/work_files.h"

namespace lockstep::worker::agent {
namespace {

// A file system that does not answer must not keep the end of a job from being
// reported. Each is longer than the search itself may take.
constexpr Duration kLongestSearch = std::chrono::seconds(3);
constexpr Duration kLongestWalk = std::chrono::seconds(1);
// The next attempt waits for the walk after a failure.
constexpr size_t kEntriesAfterFailure = 5000;
constexpr Duration kTimeAfterFailure = std::chrono::milliseconds(100);

bool AnyRank(const LocalGang& gang, bool (*is)(const ExitStatus& exit)) {
  return std::any_of(
      gang.status.ranks.begin(), gang.status.ranks.end(),
      [is](const RankStatus& rank) { return rank.exit && is(*rank.exit); });
}

}  // namespace

GangLeftovers::GangLeftovers(EventLoop* loop, const CoreRunner* core,
                             const WorkDirectories* work,
                             std::function<void(const GangKey&)> found)
    : loop_(loop), core_(core), work_(work), found_(std::move(found)) {}

bool GangLeftovers::Awaits(const GangKey& key) {
  const LocalGang* gang = core_->Find(key);
  if (gang == nullptr || gang->status.phase != GangPhase::kStopped ||
      !gang->assignment.spec) {
    return false;
  }
  // Both begin at once.
  const bool outputs = AwaitsOutputs(key, *gang);
  return AwaitsWork(key, *gang) || outputs;
}

bool GangLeftovers::AwaitsOutputs(const GangKey& key, const LocalGang& gang) {
  const std::string& directory = gang.assignment.spec->output_directory;
  const RankStatus* first = FindRank(gang, gang.chief);
  // Without an exit it never ran.
  if (directory.empty() || first == nullptr || !first->exit) return false;
  Leftovers& left = gangs_[key];
  // After a failure the next attempt waits for this report: what is found then
  // comes after it.
  const bool waits = first->exit->ok();
  if (left.output_search != Search::kNone) {
    return waits && left.output_search == Search::kRuns;
  }
  left.output_search = Search::kRuns;
  output_thread_.Add([this, key, directory] {
    auto found = std::make_shared<std::vector<OutputFile>>(FindOutputFiles(
        directory, OutputLimits(), [] { return MonotonicNow(); }));
    loop_->Post(lifetime_.Guard(
        [this, key, found] { OnOutputs(key, std::move(*found)); }));
  });
  loop_->At(loop_->Now().mono + kLongestSearch,
            lifetime_.Guard([this, key] { OnOutputs(key, {}); }));
  return waits;
}

void GangLeftovers::OnOutputs(const GangKey& key,
                              std::vector<OutputFile> outputs) {
  const auto it = gangs_.find(key);
  if (core_->Find(key) == nullptr || it == gangs_.end() ||
      it->second.output_search != Search::kRuns) {
    return;
  }
  it->second.output_search = Search::kDone;
  it->second.outputs = std::move(outputs);
  found_(key);
}

bool GangLeftovers::AwaitsWork(const GangKey& key, const LocalGang& gang) {
  if (!gang.assignment.spec->working_directory.empty() ||
      !AnyRank(gang, [](const ExitStatus&) { return true; })) {
    return false;  // It has none of its own, or never ran.
  }
  // A later generation uses the directories already, and its reports must not
  // come before this one's.
  const auto& all = core_->core().gangs();
  const auto later = all.upper_bound(key);
  if (later != all.end() && later->first.job == key.job) return false;
  Leftovers& left = gangs_[key];
  if (left.work_search != Search::kNone) {
    return left.work_search == Search::kRuns;
  }
  left.work_search = Search::kRuns;
  WalkLimits limits;
  if (AnyRank(gang, [](const ExitStatus& exit) { return !exit.ok(); })) {
    limits.entries = kEntriesAfterFailure;
    limits.time = kTimeAfterFailure;
  }
  std::vector<std::string> paths;
  for (const LocalTask& task : gang.assignment.spec->tasks) {
    paths.push_back(
        work_->PathOf(gang.assignment.job_uid, task.type, task.index)
            .value_or(""));
  }
  work_thread_.Add([this, key, limits, paths] {
    std::vector<WorkDirectory> found;
    WalkLimits rest = limits;
    const MonoTime end = MonotonicNow() + limits.time;
    for (const std::string& path : paths) {
      rest.time = std::max(Duration{}, end - MonotonicNow());
      found.push_back(DescribeWork(path, rest, MonotonicNow));
    }
    loop_->Post(lifetime_.Guard([this, key, found] { OnWork(key, found); }));
  });
  loop_->At(loop_->Now().mono + kLongestWalk,
            lifetime_.Guard([this, key] { OnWork(key, {}); }));
  return true;
}

void GangLeftovers::OnWork(const GangKey& key,
                           std::vector<WorkDirectory> work) {
  const auto it = gangs_.find(key);
  if (core_->Find(key) == nullptr || it == gangs_.end() ||
      it->second.work_search != Search::kRuns) {
    return;
  }
  it->second.work_search = Search::kDone;
  it->second.work = std::move(work);
  found_(key);
}

void GangLeftovers::Adopt(const GangKey& key, const GangStatus& status) {
  Leftovers& left = gangs_[key];
  left.outputs = status.outputs;
  left.work = status.work;
  const LocalGang* gang = core_->Find(key);
  if (gang == nullptr || gang->status.phase != GangPhase::kStopped ||
      !gang->assignment.spec) {
    return;
  }
  // Reported again once it is known.
  if (status.outputs.empty()) (void)AwaitsOutputs(key, *gang);
  if (status.work.empty()) (void)AwaitsWork(key, *gang);
}

void GangLeftovers::AddTo(const GangKey& key, GangStatus* status) const {
  const auto it = gangs_.find(key);
  if (it == gangs_.end()) return;
  status->outputs = it->second.outputs;
  status->work = it->second.work;
}

}  // namespace lockstep::worker::agent
