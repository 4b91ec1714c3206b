// A native job without a framework: trains the exact model of step_model.h.
// Prints, for tests:
//   rank R of W attempt A generation G
//   start S                      the first step minus one
//   step N                       with --print_steps 1
//   hold N                       waits for the file
//   stopped N                    as ordered, and saved
//   recovered R at N             a recovery is over
//   computes S,S [as the chief]  with --elastic, the shards from then on
//   done N skipped K hash H      the end
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "tests/cluster/step_model.h"
#include "tests/cluster/step_options.h"
#include "tests/cluster/step_saver.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/runtime/recovery.h"
#include "worker/runtime/session.h"

namespace lockstep::worker::runtime {
namespace {

using checkpoint::TensorView;

constexpr Duration kHoldPatience = std::chrono::minutes(2);

// Tests read it while the program runs.
template <typename... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print("{}\n", fmt::format(format, std::forward<Args>(args)...));
  std::fflush(stdout);
}

class StepTrainer {
 public:
  StepTrainer(Session* session, const StepOptions& options)
      : session_(session),
        options_(options),
        weights_(kStepElements),
        more_(static_cast<size_t>(options.state_mib) << 18) {
    size_t first = 0;
    for (const StepTensor& tensor : kStepTensors) {
      views_.push_back({.name = tensor.name,
                        .dtype = checkpoint::DType::kF32,
                        .shape = {static_cast<int64_t>(tensor.elements)},
                        .data = weights_.data() + first,
                        .bytes = tensor.elements * sizeof(float)});
      first += tensor.elements;
    }
  }

  Status Run() {
    Say("rank {} of {} attempt {} generation {}", session_->rank(),
        session_->world_size(), session_->identity().attempt,
        session_->identity().generation);
    const bool odd = options_.odd_rank == session_->rank();
    LOCKSTEP_RETURN_IF_ERROR(session_->Form(
        {{"model", "exact"},
         {"batch", fmt::format("{}", options_.batch + (odd ? 1 : 0))}}));
    bool recovering = session_->identity().recovering;
    if (recovering) {
      std::this_thread::sleep_for(std::chrono::milliseconds(options_.late_ms));
    }
    std::optional<checkpoint::CheckpointKey> restored;
    if (!recovering) {
      LOCKSTEP_ASSIGN_OR_RETURN(restored, RestoreSteps(session_, views_));
    }
    // An addition for each weight.
    if (session_->chief())
      session_->Report(kFlopsPerSampleValue, kStepElements);
    LOCKSTEP_RETURN_IF_ERROR(MakeReducer(restored ? restored->step : 0));
    saver_.emplace(session_, reducer_.get(), options_.batch, restored, views_);
    if (options_.elastic != 0) saver_->SetElastic();
    saver_->DelayVotes(std::chrono::milliseconds(options_.vote_ms));
    Status status = recovering ? OkStatus() : Train();
    while (recovering || CanRecover(*session_, status)) {
      recovering = false;
      LOCKSTEP_ASSIGN_OR_RETURN(
          const Recovered recovered,
          Recover(session_, status, reducer_.get(), Replica()));
      Say("recovered {} at {}", recovered.recovery, recovered.step);
      if (options_.elastic != 0) {
        Say("computes {}{}",
            fmt::join(MembershipOf(*session_).own_shards(), ","),
            session_->chief() ? " as the chief" : "");
      }
      stopped_ = stopped_ || recovered.orders.stop.has_value();
      status = saver_->AfterStep(recovered.orders);
      if (status.ok()) status = Train();
    }
    return status;
  }

 private:
  bool FailsNow(int64_t step) const {
    return options_.fail_step == step &&
           options_.fail_rank == session_->rank() &&
           session_->identity().attempt <= options_.fail_attempts;
  }

  Status Fail() {
    if (options_.fail_how == "kill") kill(getpid(), SIGKILL);
    if (options_.fail_how == "segv") {
      signal(SIGSEGV, SIG_DFL);  // Sanitizers have a handler of their own.
      kill(getpid(), SIGSEGV);
    }
    if (options_.fail_how == "error") return DataLoss("asked to fail");
    _exit(std::atoi(options_.fail_how.c_str()));
  }

  Status MakeReducer(int64_t start_step) {
    std::vector<Parameter> parameters;
    for (const StepTensor& tensor : kStepTensors) {
      parameters.push_back({tensor.name, tensor.elements});
    }
    ReducerOptions options;
    options.start_step = start_step;
    options.bucket_bytes = 2048;  // Several buckets.
    options.total_steps = options_.steps;
    options.global_batch = options_.batch;
    options.state_hash_interval = 10;
    LOCKSTEP_ASSIGN_OR_RETURN(reducer_,
                              session_->MakeReducer(parameters, options));
    Say("start {}", options.start_step);
    return OkStatus();
  }

  // What a rank that replaces a lost one gets.
  ReplicaState Replica() {
    ReplicaState state;
    state.memory = {std::as_writable_bytes(std::span(weights_)),
                    std::as_writable_bytes(std::span(more_))};
    state.save = [this] { return fmt::format("{}", skipped_); };
    state.load = [this](std::string_view text) {
      skipped_ = std::atoll(std::string(text).c_str());
      return OkStatus();
    };
    return state;
  }

  // To the end.
  Status Train() {
    while (!stopped_ && reducer_->committed() < options_.steps) {
      LOCKSTEP_RETURN_IF_ERROR(CheckMembership(session_));
      LOCKSTEP_RETURN_IF_ERROR(Step(reducer_.get(), &*saver_));
    }
    LOCKSTEP_RETURN_IF_ERROR(saver_->Finish());
    if (reducer_->committed() == options_.steps) {
      LOCKSTEP_RETURN_IF_ERROR(saver_->AwaitSpace());
      return End(*reducer_);
    }
    LOCKSTEP_RETURN_IF_ERROR(saver_->SaveNow());
    Say("stopped {}", reducer_->committed());
    // A rank that leaves early looks lost to the ranks that still write.
    return session_->Barrier();
  }

  // The shards of this rank; the samples of the last one.
  StatusOr<int64_t> Fill(Reducer* reducer, bool nan) {
    session_->Enter(Phase::kCompute);
    const std::vector<int>& shards = MembershipOf(*session_).own_shards();
    for (size_t i = 0; i + 1 < shards.size(); ++i) {
      const int64_t samples = FillShard(reducer, shards[i], nan);
      LOCKSTEP_RETURN_IF_ERROR(
          reducer->NextShard(samples, LossOf(samples, reducer->step())));
      reducer->ZeroGradients();
    }
    return FillShard(reducer, shards.back(), nan);
  }
  static double LossOf(int64_t samples, int64_t step) {
    return static_cast<double>(samples) / static_cast<double>(step);
  }

  // The samples of a shard: every world_size-th of the step's.
  int64_t FillShard(Reducer* reducer, int shard, bool nan) {
    const int64_t first_sample = (reducer->step() - 1) * options_.batch;
    int64_t samples = 0;
    for (int64_t k = shard; k < options_.batch; k += session_->world_size()) {
      size_t first = 0;
      for (size_t i = 0; i < reducer->parameters(); ++i) {
        AddSample(first_sample + k, first, reducer->gradient(i));
        first += kStepTensors[i].elements;
      }
      ++samples;
    }
    if (nan) reducer->gradient(1)[3] = std::nanf("");
    const bool slow = options_.slow_rank == session_->rank();
    const int64_t takes = options_.step_ms + (slow ? options_.slow_ms : 0);
    if (takes > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(takes));
    }
    return samples;
  }

  Status Step(Reducer* reducer, StepSaver* saver) {
    const int64_t step = reducer->step();
    const bool fails = FailsNow(step);
    if (fails && options_.fail_how != "nan") {
      LOCKSTEP_RETURN_IF_ERROR(Fail());
    }
    StepInputs inputs;
    if (reducer->wants_state_hash()) {
      inputs.state_hash = checkpoint::StateHash(views_);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(inputs.samples, Fill(reducer, fails));
    inputs.loss_sum = LossOf(inputs.samples, step);
    inputs.position = static_cast<uint64_t>(step * options_.batch);
    inputs.learning_rate = 1;
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result, reducer->Finish(inputs));
    if (result.skipped) ++skipped_;
    if (result.apply) {
      session_->Enter(Phase::kOptimizer);
      size_t at = 0;
      for (size_t i = 0; i < reducer->parameters(); ++i) {
        for (const float g : reducer->gradient(i)) weights_[at++] += g;
      }
      if (!more_.empty()) {
        more_[static_cast<size_t>(step * 4099) % more_.size()] += 1;
      }
      if (result.samples != options_.batch) {
        return Internal("step {} had {} samples", step, result.samples);
      }
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const StepOrders orders, reducer->Commit());
    session_->Enter(Phase::kOther);
    reducer->ZeroGradients();
    LOCKSTEP_RETURN_IF_ERROR(saver->AfterStep(orders));
    stopped_ = orders.stop.has_value();
    if (options_.print_steps != 0) Say("step {}", step);
    if (step != options_.hold_step) return OkStatus();
    // What is being saved is there before anybody looks.
    LOCKSTEP_RETURN_IF_ERROR(saver->Finish());
    return Hold(step);
  }

  Status Hold(int64_t step) {
    Say("hold {}", step);
    const SystemClock clock;
    const MonoTime deadline = clock.Now().mono + kHoldPatience;
    while (!RealFileSystem()->Exists(options_.hold_file)) {
      if (clock.Now().mono > deadline) {
        return DeadlineExceeded("nobody made {}", options_.hold_file);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return OkStatus();
  }

  Status End(const Reducer& reducer) {
    double marks = 0;
    for (const float mark : more_) marks += mark;
    if (marks != static_cast<double>(more_.empty() ? 0 : options_.steps)) {
      return Internal("the state has {} of {} steps", marks, options_.steps);
    }
    Say("done {} skipped {} hash {}", reducer.committed(), skipped_,
        HashWeights(weights_));
    session_->Report("first_weight", weights_[0]);
    if (!session_->chief() || session_->identity().output_directory.empty()) {
      return OkStatus();
    }
    const std::string path =
        JoinPath(session_->identity().output_directory, "model.safetensors");
    LOCKSTEP_RETURN_IF_ERROR(
        checkpoint::SaveSafetensors(RealFileSystem(), path, views_, {}));
    session_->ReportArtifact("model", path);
    return OkStatus();
  }

  Session* const session_;
  const StepOptions options_;
  std::vector<float> weights_;
  std::vector<TensorView> views_;
  // A count of the steps, spread over the memory: part of the state, but of no
  // checkpoint.
  std::vector<float> more_;
  std::unique_ptr<Reducer> reducer_;
  std::optional<StepSaver> saver_;
  bool stopped_ = false;
  int64_t skipped_ = 0;
};

int Main(int argc, char** argv) {
  const auto options = ParseStepOptions(argc, argv);
  if (!options.ok()) {
    fmt::print(stderr, "step_program: {}\n", Message(options.status()));
    return 2;
  }
  SessionOptions joining;
  joining.backend = options->backend;
  joining.recoverable = options->recover != 0 || options->elastic != 0;
  joining.elastic = options->elastic != 0;
  auto session = Session::Join(joining);
  if (!session.ok()) {
    fmt::print(stderr, "step_program: {}\n", Message(session.status()));
    return 1;
  }
  const Status status = StepTrainer(session->get(), *options).Run();
  if (!status.ok()) {
    fmt::print(stderr, "step_program: {}\n", Message(status));
  }
  return (*session)->Leave(status);
}

}  // namespace
}  // namespace lockstep::worker::runtime

int main(int argc, char** argv) {
  return lockstep::worker::runtime::Main(argc, argv);
}
