// Checkpoints of step_program: the writer's and the reducer's words, passed on
// to each other. Small on purpose: it shows the least that a program does.
#ifndef LOCKSTEP_TESTS_CLUSTER_STEP_SAVER_H_
#define LOCKSTEP_TESTS_CLUSTER_STEP_SAVER_H_

#include <memory>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "worker/checkpoint/async_writer.h"
#include "worker/runtime/session.h"

namespace lockstep {

class StepSaver {
 public:
  // All are borrowed. `weights` are the state that is saved.
  StepSaver(worker::runtime::Session* session,
            worker::runtime::Reducer* reducer, int64_t batch,
            std::optional<worker::checkpoint::CheckpointKey> restored,
            std::vector<worker::checkpoint::TensorView> weights);
  // How late a vote is.
  void DelayVotes(Duration by) { vote_delay_ = by; }
  // The chief alone saves, whichever rank that is.
  void SetElastic();

  // After each Commit, on all ranks.
  Status AfterStep(const worker::runtime::StepOrders& orders);
  // After the last step: until nothing is in flight.
  Status Finish();
  // After Finish: the state as it is, unless it was the last to be saved.
  Status SaveNow();
  // At the end, after Finish: until what was to be saved last is not refused
  // any more for want of space.
  Status AwaitSpace();

 private:
  void MakeWriter();
  Status SaveAgain();
  Status Begin(const worker::runtime::CheckpointOrder& order);
  void Settled(const worker::runtime::CheckpointSettled& settled);
  Status Handle(const worker::checkpoint::AsyncWriter::Event& event);
  // Now, or when it is late enough.
  Status VoteFor(uint64_t id);
  Status VoteWhenDue();

  worker::runtime::Session* const session_;
  worker::runtime::Reducer* const reducer_;
  const int64_t batch_;
  const std::vector<worker::checkpoint::TensorView> weights_;
  Duration vote_delay_{};
  struct LateVote {
    uint64_t id = 0;
    MonoTime due;
  };
  std::optional<LateVote> late_vote_;
  worker::runtime::CheckpointOrder writing_;
  Status failure_;              // Of what writing_ is, on this rank.
  int64_t complete_step_ = -1;  // The same on all ranks.
  bool elastic_ = false;
  worker::checkpoint::AsyncWriter::Options options_;
  std::unique_ptr<worker::checkpoint::AsyncWriter> writer_;
};

// The directory of a job's checkpoints.
std::string CheckpointRoot(const worker::runtime::Session& session);

// Rank 0 looks for the newest checkpoint, all load it into `weights`, whose
// memory is the caller's. Nothing: the job begins from nothing.
StatusOr<std::optional<worker::checkpoint::CheckpointKey>> RestoreSteps(
    worker::runtime::Session* session,
    const std::vector<worker::checkpoint::TensorView>& weights);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CLUSTER_STEP_SAVER_H_
