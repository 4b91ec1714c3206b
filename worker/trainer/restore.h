// The beginning of a training: at the newest whole checkpoint, or from nothing.
#ifndef LOCKSTEP_WORKER_TRAINER_RESTORE_H_
#define LOCKSTEP_WORKER_TRAINER_RESTORE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/checkpoint/layout.h"
#include "worker/runtime/session.h"
#include "worker/trainer/optimizer.h"
#include "worker/trainer/replica.h"
#include "worker/trainer/train_state.h"

namespace lockstep::worker::trainer {

struct Restored {
  std::optional<checkpoint::CheckpointKey> from;  // No value: from nothing.
  TrainProgress progress;
  // Empty: none was learned, or the checkpoint is older than this.
  std::vector<uint32_t> gradient_order;
};

// All ranks call it after Form. Rank 0 takes `root` over and finds the
// checkpoint to resume from (worker/checkpoint/resume.h): the newest one on the
// session's lineage whose every byte is right, or the one that a user ordered;
// damaged ones are set aside and become events of the job. Then all load it:
// parameters, optimizer, and where `random_numbers` says so each rank its own
// ones (a rank whose numbers the saving job did not have, or did not save,
// keeps its fresh ones). Last, all compare what they hold.
//
// `facts` are what must be equal between the saving run and this one; they are
// looked up in the manifest's metadata. FailedPrecondition names the first
// that differs, or a tensor that does not fit.
StatusOr<Restored> Restore(FileSystem* fs, runtime::Session* session,
                           const std::string& root,
                           const std::map<std::string, std::string>& facts,
                           Replica* replica, Optimizer* optimizer,
                           bool random_numbers);

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_RESTORE_H_
