#include "worker/checkpoint/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "worker/checkpoint/cleanup.h"

namespace lockstep::worker::checkpoint {
namespace {

Status NoCheckpoint(const std::string& sentence) {
  return WithReason(FailedPrecondition("{}", sentence), kReasonNoCheckpoint);
}

bool Orders(const ResumeRequest& request) {
  return request.from_start || request.restore_step.has_value();
}

// A directory that existed before must not be created again: it would hide that
// the right one is missing.
Status CheckParent(FileSystem* fs, const std::string& root,
                   const ResumeRequest& request) {
  const std::string parent = ParentDir(root);
  if (request.generation <= 1 || request.from_start || fs->Exists(parent)) {
    return OkStatus();
  }
  return WithReason(
      FailedPrecondition("the output directory {} is missing", parent),
      kReasonOutputMissing);
}

// Whether `key` was found damaged before: it lies there as ".bad-NAME", perhaps
// with a number behind.
bool WasDamaged(const std::vector<std::string>& names,
                const CheckpointKey& key) {
  const std::string bad = fmt::format("{}{}", kBadPrefix, CheckpointName(key));
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name == bad || name.starts_with(bad + ".");
  });
}

// Before anything is changed: what the coordinator knows of must be there,
// something newer, or the proof that it was damaged.
Status CheckKnown(FileSystem* fs, const std::string& root,
                  const ResumeRequest& request) {
  if (!request.known || Orders(request)) return OkStatus();
  const CheckpointKey& known = *request.known;
  const auto names = fs->List(root);
  if (!names.ok() && names.status().code() != StatusCode::kNotFound) {
    return names.status();
  }
  if (names.ok()) {
    for (const std::string& name : *names) {
      const auto key = ParseCheckpointName(name);
      if (key && (*key == known ||
                  (*key > known && IsOnLineage(request.lineage, *key)))) {
        return OkStatus();
      }
    }
    if (WasDamaged(*names, known)) return OkStatus();
  }
  return NoCheckpoint(
      fmt::format("the checkpoint {} of job {} is missing in {}, where it was "
                  "published: mount the right directory",
                  CheckpointName(known), request.job, root));
}

std::string Named(const std::vector<Damaged>& damaged) {
  constexpr size_t kMost = 3;
  std::vector<std::string> names;
  for (const Damaged& one : damaged) {
    if (names.size() == kMost) {
      names.push_back("...");
      break;
    }
    names.push_back(fmt::format("{} ({})", one.name, one.reason));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string StepsOf(const std::vector<CheckpointKey>& keys) {
  std::set<int64_t> steps;
  for (const CheckpointKey& key : keys) steps.insert(key.step);
  if (steps.empty()) return "it has none";
  return fmt::format("it has those of the steps {}", fmt::join(steps, ", "));
}

// The complete checkpoint of one step: where there are several, the one that
// the job descends from, else the newest.
StatusOr<Checkpoint> FindStep(FileSystem* fs, const std::string& root,
                              const ResumeRequest& request) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<CheckpointKey> keys,
                            ListCheckpoints(fs, root));
  const std::vector<CheckpointKey> all = keys;
  std::erase_if(keys, [&](const CheckpointKey& key) {
    return key.step != *request.restore_step;
  });
  std::reverse(keys.begin(), keys.end());
  std::stable_partition(keys.begin(), keys.end(),
                        [&](const CheckpointKey& key) {
                          return IsOnLineage(request.lineage, key);
                        });
  std::vector<Damaged> damaged;
  for (const CheckpointKey& key : keys) {
    auto found = OpenVerified(fs, root, key, request.job);
    if (!found.ok()) return found.status();
    if (found->checkpoint) return *std::move(found->checkpoint);
    if (found->damage) damaged.push_back(*found->damage);
  }
  if (!damaged.empty()) {
    return NoCheckpoint(fmt::format("the checkpoint of step {} is damaged: {}",
                                    *request.restore_step, Named(damaged)));
  }
  return NoCheckpoint(fmt::format("there is no checkpoint of step {} in {}: {}",
                                  *request.restore_step, root, StepsOf(all)));
}

}  // namespace

StatusOr<ResumeResult> FindResume(FileSystem* fs, const std::string& root,
                                  const ResumeRequest& request) {
  LOCKSTEP_RETURN_IF_ERROR(CheckParent(fs, root, request));
  LOCKSTEP_RETURN_IF_ERROR(CheckKnown(fs, root, request));
  ResumeResult result;
  LOCKSTEP_ASSIGN_OR_RETURN(
      result.strangers, TakeOver(fs, root, request.job, request.generation));
  if (request.from_start) return result;
  if (request.restore_step) {
    LOCKSTEP_ASSIGN_OR_RETURN(result.from, FindStep(fs, root, request));
    return result;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      FindResult found,
      FindNewest(fs, root, request.job, [&](const CheckpointKey& key) {
        return IsOnLineage(request.lineage, key);
      }));
  if (!found.newest && !found.damaged.empty()) {
    return NoCheckpoint(
        fmt::format("none of the {} checkpoints in {} is intact: {}",
                    found.damaged.size(), root, Named(found.damaged)));
  }
  if (!found.newest && request.known) {
    return NoCheckpoint(
        fmt::format("job {1} saved the checkpoint {2}, but {0} has none that "
                    "it can resume from",
                    root, request.job, CheckpointName(*request.known)));
  }
  result.from = std::move(found.newest);
  result.damaged = std::move(found.damaged);
  return result;
}

}  // namespace lockstep::worker::checkpoint
