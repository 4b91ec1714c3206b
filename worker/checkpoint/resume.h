// The rule from which checkpoint a generation resumes, shared by all native
// programs.
//
// One rank, the chief, calls FindResume; the others get the path.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_RESUME_H_
#define LOCKSTEP_WORKER_CHECKPOINT_RESUME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/checkpoint/layout.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/reader.h"

namespace lockstep::worker::checkpoint {

// Reasons of errors for which the coordinator holds the job.
inline constexpr char kReasonNoCheckpoint[] = "NO_CHECKPOINT";
inline constexpr char kReasonOutputMissing[] = "OUTPUT_MISSING";

struct ResumeRequest {
  std::string job;
  uint64_t generation = 0;
  std::vector<LineageEntry> lineage;
  // The newest complete checkpoint that the coordinator knows of.
  std::optional<CheckpointKey> known;
  // The order of a user: the checkpoint of this step, or none.
  std::optional<int64_t> restore_step;
  bool from_start = false;
};

struct ResumeResult {
  // Verified in full. No value: the job begins from the start.
  std::optional<Checkpoint> from;
  // Files that another job had left there, by the names they have now.
  std::vector<std::string> strangers;
  // Newer than `from`, and damaged; for the operator, newest first.
  std::vector<Damaged> damaged;
};

// Takes `root` over (cleanup.h) and finds the checkpoint to resume from: the
// one that a user ordered, else the newest intact one on the lineage. Deletes
// no checkpoint, and sets aside only those that are proven to be damaged.
//   FailedPrecondition, with the reason
//     OUTPUT_MISSING  a later generation does not find the parent of `root`
//     NO_CHECKPOINT   the known checkpoint is missing and was not found damaged
//                     before; there are checkpoints and none is intact; or the
//                     ordered step is not there or is damaged. No file was
//                     renamed.
//   any other: the files cannot be read now, as in FindNewest and TakeOver.
StatusOr<ResumeResult> FindResume(FileSystem* fs, const std::string& root,
                                  const ResumeRequest& request);

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_RESUME_H_
