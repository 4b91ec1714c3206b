// Checkpoints of a training loop: connects the reducer, which decides when all
// ranks begin one and when all have written, with the writer, whose thread
// writes while training goes on.
//
//   after each Commit:   saver.Obey(orders, state)    // settle, begin
//                        saver.Look()                 // votes, results
//   at the end:          saver.Finish(state)          // nothing in flight
//                        saver.SaveNow(state)         // and the last one
//
// A failed checkpoint is an event and never ends training. Errors returned are
// the reducer's. Thread-compatible: the training loop's.
#ifndef LOCKSTEP_WORKER_TRAINER_SAVER_H_
#define LOCKSTEP_WORKER_TRAINER_SAVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/async_writer.h"
#include "worker/runtime/session.h"
#include "worker/trainer/train_state.h"

namespace lockstep::worker::trainer {

// The state to save; copied before the call returns.
struct SavedState {
  std::vector<checkpoint::TensorView> tensors;
  TrainProgress progress;
  std::string rng;
  // The order in which the reducer's buckets are filled; empty: not learned
  // yet.
  std::string gradient_order;
};

struct SaverOptions {
  // If empty, there is no place for checkpoints and all are abandoned.
  std::string root;
  // Goes into each manifest.
  std::map<std::string, std::string> metadata;
  // The step that this generation began with.
  int64_t start_step = 0;
  // The checkpoint that was restored, if any.
  std::optional<checkpoint::CheckpointKey> restored;
};

class Saver {
 public:
  // Makes the state to save. Only called when it is needed.
  using StateFunction = std::function<StatusOr<SavedState>()>;

  // Both are borrowed.
  Saver(runtime::Session* session, runtime::Reducer* reducer,
        const SaverOptions& options);

  // Follows the orders of Commit about checkpoints.
  Status Obey(const runtime::StepOrders& orders, const StateFunction& state);
  // Passes on the results of the writer so far.
  Status Look();
  // The newest that is complete, equal on all ranks; -1: none.
  int64_t complete_step() const { return complete_step_; }
  // A recovery: what the other ranks know.
  void SetCompleteStep(int64_t step) { complete_step_ = step; }

  // Waits until the checkpoint in flight is settled and, on rank 0, published
  // or failed, and so is the one that waited for it. No step may follow. All
  // ranks call it.
  Status Finish(const StateFunction& state);
  // After Finish: makes a checkpoint of the state as it is, and waits for it,
  // unless there is one. On a full disk it tries again until there is space:
  // the state is in memory only. All ranks call it.
  Status SaveNow(const StateFunction& state);

 private:
  Status SaveAgain(const StateFunction& state);
  Status Begin(const runtime::CheckpointOrder& order,
               const StateFunction& state);
  Status Start(const runtime::CheckpointOrder& order,
               const StateFunction& state);
  void Settled(const runtime::CheckpointSettled& settled);
  Status Handle(const checkpoint::AsyncWriter::Event& event);
  Status WaitForWriter();
  void Report(const std::string& sentence);

  runtime::Session* const session_;
  runtime::Reducer* const reducer_;
  std::unique_ptr<checkpoint::AsyncWriter> writer_;  // None without a root.
  // The checkpoint that the writer works on, also after all voted: rank 0
  // publishes.
  runtime::CheckpointOrder writing_;
  // Why the newest one that was begun failed on this rank; OK: it has not.
  Status failure_;
  int64_t complete_step_;
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_SAVER_H_
