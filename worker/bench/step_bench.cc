#include <algorithm>
#include <cmath>
#include <cstring>

#include "worker/bench/bench_run.h"
#include "worker/bench/synthetic.h"
#include "worker/collective/factory/form_communicator.h"

namespace lockstep::worker::bench {
namespace {

// Limit for the reference runs.
constexpr int kMostReferenceSteps = 30;
constexpr int kLeastReferenceSteps = 3;

class StepBench {
 public:
  StepBench(collective::Communicator* communicator, const BenchOptions& options)
      : communicator_(communicator),
        options_(options),
        gradients_(SyntheticGradients(options.step, communicator->rank())) {}

  StatusOr<StepResults> Run() {
    results_.model = options_.step;
    results_.ranks = communicator_->size();
    results_.steps = options_.iterations;
    LOCKSTEP_ASSIGN_OR_RETURN(scratch_, communicator_->Allocate(64));
    LOCKSTEP_RETURN_IF_ERROR(Calibrate());
    LOCKSTEP_RETURN_IF_ERROR(MeasureAlone());
    LOCKSTEP_RETURN_IF_ERROR(MeasureBeside());
    LOCKSTEP_RETURN_IF_ERROR(MeasureTogether());
    return std::move(results_);
  }

 private:
  StatusOr<double> Largest(double value) {
    return LargestOf(communicator_, scratch_, value, options_.timeout);
  }

  // Rank 0's speed, while the others are idle, sets the work of all.
  Status Calibrate() {
    double rate = 0;
    if (communicator_->rank() == 0) rate = loop_.MeasureRate();
    LOCKSTEP_ASSIGN_OR_RETURN(rate, Largest(rate));
    const StepBenchOptions& model = options_.step;
    double turns = model.flops > 0 ? model.flops / ComputeLoop::kFlopsPerTurn
                                   : model.compute_seconds * rate;
    if (communicator_->rank() == model.slow_rank) turns *= 1 + model.slow_share;
    compute_ = [this, turns](double from, double to) {
      loop_.Run(std::llround(turns * (to - from)));
    };
    results_.flops_per_second = rate * ComputeLoop::kFlopsPerTurn;
    return OkStatus();
  }

  // Steps of this rank by itself, as many as do not keep others waiting.
  StatusOr<StepTimes> RunBySelf() {
    collective::CommunicatorOptions options;
    options.label = "lockstep-bench";
    LOCKSTEP_ASSIGN_OR_RETURN(const auto self, FormCommunicator(options));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto trainer,
        SyntheticTrainer::Make(self.get(), options_, compute_, gradients_));
    const int most = std::clamp(options_.iterations, kLeastReferenceSteps,
                                kMostReferenceSteps);
    const MonoTime limit = MonotonicNow() + options_.timeout / 4;
    std::vector<double> times;
    for (int i = -1; i < most; ++i) {
      const MonoTime start = MonotonicNow();
      LOCKSTEP_RETURN_IF_ERROR(trainer->Step());
      const MonoTime end = MonotonicNow();
      if (i >= 0) times.push_back(ToSeconds(end - start));
      if (end >= limit && times.size() >= kLeastReferenceSteps) break;
    }
    return Summarize(std::move(times));
  }

  Status MeasureAlone() {
    LOCKSTEP_RETURN_IF_ERROR(Barrier(communicator_, options_.timeout));
    if (communicator_->rank() == 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(results_.alone, RunBySelf());
    }
    return Barrier(communicator_, options_.timeout);
  }

  Status MeasureBeside() {
    LOCKSTEP_ASSIGN_OR_RETURN(StepTimes mine, RunBySelf());
    for (double* value : {&mine.p50, &mine.p99, &mine.mean}) {
      LOCKSTEP_ASSIGN_OR_RETURN(*value, Largest(*value));
    }
    results_.beside = mine;
    return OkStatus();
  }

  Status MeasureTogether() {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto trainer,
        SyntheticTrainer::Make(communicator_, options_, compute_, gradients_));
    for (int i = 0; i < options_.warm_up; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(trainer->Step());
    }
    LOCKSTEP_RETURN_IF_ERROR(Barrier(communicator_, options_.timeout));
    const task::RankCounters before = trainer->Counters();
    std::vector<double> times;
    MonoTime last = MonotonicNow();
    for (int i = 0; i < options_.iterations; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(trainer->Step());
      const MonoTime now = MonotonicNow();
      times.push_back(ToSeconds(now - last));
      last = now;
    }
    const task::RankCounters after = trainer->Counters();
    results_.straggler = after.communication.straggler;
    const auto steps = static_cast<double>(options_.iterations);
    results_.bytes = (after.allreduce_bytes - before.allreduce_bytes) /
                     static_cast<uint64_t>(options_.iterations);
    results_.reductions =
        static_cast<double>(after.collectives - before.collectives) / steps;
    LOCKSTEP_ASSIGN_OR_RETURN(
        results_.by_rank,
        GatherFromAll(communicator_, OfRank(before, after, steps),
                      options_.timeout));
    LOCKSTEP_ASSIGN_OR_RETURN(results_.step, SlowestSteps(times));
    if (!options_.check) return OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(
        const int64_t wrong,
        trainer->CountWrong(communicator_->size(), communicator_->backend()));
    LOCKSTEP_ASSIGN_OR_RETURN(results_.wrong, SumOf(communicator_, scratch_,
                                                    wrong, options_.timeout));
    return OkStatus();
  }

  static StepOfRank OfRank(const task::RankCounters& before,
                           const task::RankCounters& after, double steps) {
    const auto phase = [&](task::RankPhase phase) {
      const auto at = static_cast<size_t>(phase);
      return (after.phase_seconds[at] - before.phase_seconds[at]) / steps;
    };
    return {
        phase(task::RankPhase::kCompute),
        (after.allreduce_busy_seconds - before.allreduce_busy_seconds) / steps,
        phase(task::RankPhase::kAllReduce),
        phase(task::RankPhase::kStragglerWait)};
  }

  // Returns the time of the slowest rank for each step.
  StatusOr<StepTimes> SlowestSteps(std::vector<double> times) {
    const size_t bytes = times.size() * sizeof(double);
    LOCKSTEP_ASSIGN_OR_RETURN(const collective::Buffer* all,
                              communicator_->Allocate(bytes));
    std::memcpy(all->data, times.data(), bytes);
    LOCKSTEP_RETURN_IF_ERROR(
        LargestOfEach(communicator_, all, times.size(), options_.timeout));
    std::memcpy(times.data(), all->data, bytes);
    return Summarize(std::move(times));
  }

  collective::Communicator* const communicator_;
  const BenchOptions& options_;
  const std::vector<float> gradients_;
  const collective::Buffer* scratch_ = nullptr;
  ComputeLoop loop_;
  ComputePart compute_;
  StepResults results_;
};

}  // namespace

StatusOr<StepResults> BenchSteps(collective::Communicator* communicator,
                                 const BenchOptions& options) {
  if (options.step.slow_rank >= communicator->size()) {
    return InvalidArgument("--slow {}: there are {} ranks",
                           options.step.slow_rank, communicator->size());
  }
  return StepBench(communicator, options).Run();
}

}  // namespace lockstep::worker::bench
