// Checkpoints of a training loop: connects the reducer, which decides when all
// ranks begin one and when all have written, with the writer, whose thread
// writes while training goes on.
//
//   after each Commit:   saver.Obey(orders, state)    // settle, begin
//                        saver.Look()                 // votes, results
//   at the end:          saver.Finish(state)          // nothing in flight
//                        saver.SaveNow(state)         // and the last one
//
// Where the job is elastic, a checkpoint is the chief's alone, as of a job of
// one rank: the part of another rank is nothing, and its vote comes at once. So
// it does not matter who is away, and a job of either kind goes on from it.
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
  // Empty: there are none to save.
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
  // Of the session.
  bool elastic = false;
};

class Saver {
 public:
  // Makes the state to save. Only called when it is needed.
  using StateFunction = std::function<StatusOr<SavedState>()>;

  // Both are borrowed.
  Saver(runtime::Session* session, runtime::Reducer* reducer,
        const SaverOptions& options);

  // Before what may lose a peer: a checkpoint that all ranks have written is
  // published, or given up. Takes that out of `orders`.
  void TakeSettled(runtime::StepOrders* orders);
  // Follows the orders of Commit about checkpoints.
  Status Obey(const runtime::StepOrders& orders, const StateFunction& state);
  // Passes on the results of the writer so far.
  Status Look();
  // The newest that is complete, equal on all ranks; -1: none.
  int64_t complete_step() const { return complete_step_; }
  // After a recovery, which may have changed the chief: takes what the other
  // ranks know, and follows its orders. A rank that is no longer the chief
  // gives up what it writes, unless all have voted: that it publishes
  // meanwhile.
  Status Resume(const runtime::StepOrders& orders, int64_t complete_step,
                const StateFunction& state);

  // Waits until the checkpoint in flight is settled and, on the chief,
  // published or failed, and so is the one that waited for it. No step may
  // follow. All ranks call it.
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
  // Whether this rank has a part in checkpoints.
  bool writes() const { return !options_.elastic || session_->chief(); }
  // Where this rank became the chief, or is it no longer.
  void FollowChief();
  Status Handle(const checkpoint::AsyncWriter::Event& event);
  Status WaitForWriter();
  void Report(const std::string& sentence);

  runtime::Session* const session_;
  runtime::Reducer* const reducer_;
  const SaverOptions options_;
  // None without a root, and where this rank never had a part in a checkpoint.
  std::unique_ptr<checkpoint::AsyncWriter> writer_;
  // The checkpoint that the writer works on, also after all voted: the chief
  // publishes.
  runtime::CheckpointOrder writing_;
  bool publishing_ = false;  // All have voted for it.
  // Why the newest one that was begun failed on this rank; OK: it has not.
  Status failure_;
  int64_t complete_step_;
};

}  // namespace lockstep::worker::trainer

#endif  // LOCKSTEP_WORKER_TRAINER_SAVER_H_
