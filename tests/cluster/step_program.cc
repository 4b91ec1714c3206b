// A native job without a framework: trains the exact model of step_model.h.
// Prints, for tests:
//   rank R of W attempt A generation G
//   start S                      the first step minus one
//   step N                       with --print_steps 1
//   hold N                       waits for the file
//   stopped N                    as ordered, and saved
//   done N skipped K hash H      the end
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "tests/cluster/step_model.h"
#include "tests/cluster/step_options.h"
#include "tests/cluster/step_saver.h"
#include "worker/checkpoint/safetensors.h"
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
      : session_(session), options_(options), weights_(kStepElements) {
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
    LOCKSTEP_ASSIGN_OR_RETURN(const auto restored,
                              RestoreSteps(session_, views_));
    // An addition for each weight.
    if (session_->chief())
      session_->Report(kFlopsPerSampleValue, kStepElements);
    std::vector<Parameter> parameters;
    for (const StepTensor& tensor : kStepTensors) {
      parameters.push_back({tensor.name, tensor.elements});
    }
    ReducerOptions options;
    options.start_step = restored ? restored->step : 0;
    options.bucket_bytes = 2048;  // Several buckets.
    options.total_steps = options_.steps;
    options.global_batch = options_.batch;
    options.state_hash_interval = 10;
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Reducer> reducer,
                              session_->MakeReducer(parameters, options));
    Say("start {}", options.start_step);
    StepSaver saver(session_, reducer.get(), options_.batch, restored, views_);
    saver.DelayVotes(std::chrono::milliseconds(options_.vote_ms));
    bool stopped = false;
    while (!stopped && reducer->committed() < options_.steps) {
      LOCKSTEP_RETURN_IF_ERROR(Step(reducer.get(), &saver, &stopped));
    }
    LOCKSTEP_RETURN_IF_ERROR(saver.Finish());
    if (reducer->committed() == options_.steps) {
      LOCKSTEP_RETURN_IF_ERROR(saver.AwaitSpace());
      return End(*reducer);
    }
    LOCKSTEP_RETURN_IF_ERROR(saver.SaveNow());
    Say("stopped {}", reducer->committed());
    // Who leaves early looks lost to who still writes.
    return session_->Barrier();
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

  // The samples of this rank: every world_size-th of the step's.
  int64_t Fill(Reducer* reducer, bool nan) {
    session_->Enter(Phase::kCompute);
    const int64_t first_sample = (reducer->step() - 1) * options_.batch;
    int64_t samples = 0;
    for (int64_t k = session_->rank(); k < options_.batch;
         k += session_->world_size()) {
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

  Status Step(Reducer* reducer, StepSaver* saver, bool* stopped) {
    const int64_t step = reducer->step();
    const bool fails = FailsNow(step);
    if (fails && options_.fail_how != "nan") {
      LOCKSTEP_RETURN_IF_ERROR(Fail());
    }
    StepInputs inputs;
    if (reducer->wants_state_hash()) {
      inputs.state_hash = checkpoint::StateHash(views_);
    }
    inputs.samples = Fill(reducer, fails);
    inputs.loss_sum = static_cast<double>(inputs.samples) / step;
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
      if (result.samples != options_.batch) {
        return Internal("step {} had {} samples", step, result.samples);
      }
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const StepOrders orders, reducer->Commit());
    session_->Enter(Phase::kOther);
    reducer->ZeroGradients();
    LOCKSTEP_RETURN_IF_ERROR(saver->AfterStep(orders));
    *stopped = orders.stop.has_value();
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
  int64_t skipped_ = 0;
};

int Main(int argc, char** argv) {
  const auto options = ParseStepOptions(argc, argv);
  if (!options.ok()) {
    fmt::print(stderr, "step_program: {}\n", Message(options.status()));
    return 2;
  }
  auto session = Session::Join({});
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
