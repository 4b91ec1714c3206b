#include "tests/bench/model/step_runs.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "worker/collective/testing.h"
#include "worker/runtime/reduction_planner.h"
#include "worker/runtime/stepped_reducer.h"

namespace lockstep::model {
namespace {

struct Kind {
  const char* name;
  // As a multiple of all reductions one after the other.
  double computing;
  size_t bucket_bytes = 0;  // 0: as jobs begin
};
constexpr Kind kKinds[] = {{"compute-bound", 3},
                           {"balanced", 1},
                           {"communication-bound", 0.25},
                           {"balanced", 1, 256 << 10},
                           {"balanced", 1, 8 << 20}};

// Small beside buckets, and divides each: the plan is the model's.
constexpr size_t kTensorBytes = 64 << 10;
constexpr size_t kTensors = 192;
constexpr int kWarmUps = 2;
constexpr int kSteps = 7;

// A machine that takes more of the processors' time away is measured again.
constexpr double kMostStolen = 0.02;
constexpr int kMostTimes = 4;

struct StepTimes {
  double seconds;
  double exposed;
  double stolen;  // of the processors' time, by other machines of the host
};

// The processors' time in jiffies: all of it, and what was stolen.
struct Jiffies {
  double all = 0;
  double stolen = 0;
};
Jiffies ReadJiffies() {
  Jiffies jiffies;
  std::ifstream stat("/proc/stat");
  std::string name;
  stat >> name;
  double value = 0;
  // user, nice, system, idle, iowait, irq, softirq, steal.
  for (int i = 0; i < 8 && stat >> value; ++i) {
    jiffies.all += value;
    if (i == 7) jiffies.stolen = value;
  }
  return jiffies;
}

class StepRun {
 public:
  StepRun(Communicator* communicator, const Training& training)
      : communicator_(communicator), training_(training) {}

  // The medians of this rank's.
  StatusOr<StepTimes> Run() {
    LOCKSTEP_RETURN_IF_ERROR(Make());
    std::vector<double> seconds;
    std::vector<double> exposed;
    const Jiffies before = ReadJiffies();
    for (int i = 0; i < kWarmUps + kSteps; ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(const StepTimes times, Step());
      if (i < kWarmUps) continue;
      seconds.push_back(times.seconds);
      exposed.push_back(times.exposed);
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckSums());
    const uint64_t buckets = (kWarmUps + kSteps) * Buckets(training_).size();
    if (progress_->counters().collectives != buckets) {
      return Internal("{} buckets were reduced, the model has {}",
                      progress_->counters().collectives, buckets);
    }
    const Jiffies after = ReadJiffies();
    return StepTimes{
        Median(seconds), Median(exposed),
        (after.stolen - before.stolen) / std::max(1.0, after.all - before.all)};
  }

 private:
  Status Make() {
    LOCKSTEP_ASSIGN_OR_RETURN(progress_,
                              Progress::Create("", communicator_->rank(), 1));
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < kTensors; ++i) {
      parameters.push_back({std::to_string(i), kTensorBytes / sizeof(float)});
    }
    SteppedReducerOptions options;
    options.reducer.state_hash_interval = 0;
    options.operation_timeout = kPatience;
    options.communicator = communicator_;
    options.progress = progress_.get();
    options.sizes = training_.buckets;
    LOCKSTEP_ASSIGN_OR_RETURN(
        reducer_, MakeSteppedReducer(parameters, std::move(options)));
    return OkStatus();
  }

  StatusOr<StepTimes> Step() {
    const MonoTime began = MonotonicNow();
    const double backward =
        training_.compute_seconds * training_.backward_share;
    for (size_t i = kTensors; i-- > 0;) {
      const double left = backward * static_cast<double>(i) / kTensors;
      std::this_thread::sleep_until(began +
                                    Seconds(training_.compute_seconds - left));
      const std::span<float> gradient = reducer_->gradient(i);
      std::fill(gradient.begin(), gradient.end(),
                static_cast<float>(communicator_->rank() + 1));
      LOCKSTEP_RETURN_IF_ERROR(reducer_->Ready(i));
    }
    const MonoTime computed = MonotonicNow();
    LOCKSTEP_RETURN_IF_ERROR(reducer_->Finish({}).status());
    LOCKSTEP_RETURN_IF_ERROR(reducer_->Commit().status());
    const MonoTime ended = MonotonicNow();
    return StepTimes{ToSeconds(ended - began), ToSeconds(ended - computed), 0};
  }

  // That all of the last step was reduced.
  Status CheckSums() {
    const int n = communicator_->size();
    const float sum = static_cast<float>(n * (n + 1) / 2);
    for (size_t i = 0; i < kTensors; ++i) {
      const std::span<const float> gradient = reducer_->gradient(i);
      if (std::count(gradient.begin(), gradient.end(), sum) !=
          static_cast<ptrdiff_t>(gradient.size())) {
        return Internal("gradient {} of {} ranks is not {}", i, n, sum);
      }
    }
    return OkStatus();
  }

  Communicator* const communicator_;
  const Training training_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Reducer> reducer_;
};

Training TrainingOf(const Kind& kind, const Cluster& cluster) {
  Training training = {.gradient_bytes = kTensors * kTensorBytes,
                       .buckets = SizesFor("hierarchical", kind.bucket_bytes)};
  training.compute_seconds =
      kind.computing * PredictStep(cluster, training).busy;
  return training;
}

// As jobs do, they first choose by measurement how to reduce.
StatusOr<std::vector<StepTimes>> Measure(
    const std::string& prefix, Shape shape,
    const std::vector<Training>& trainings) {
  using Shared = std::array<StepTimes, std::size(kKinds)>;
  LOCKSTEP_ASSIGN_OR_RETURN(auto* const shared, MapShared<Shared>());
  LOCKSTEP_RETURN_IF_ERROR(
      RunRanks(prefix, shape, [&](Communicator* communicator) -> Status {
        LOCKSTEP_RETURN_IF_ERROR(communicator->Tune(
            PlannerOptions().tune_budget, MonotonicNow() + kPatience));
        if (communicator->rank() == 0) {
          printf("%3dx%-3d %s\n", shape.hosts, shape.ranks,
                 communicator->ReductionPlan().c_str());
          fflush(stdout);
        }
        for (size_t i = 0; i < trainings.size(); ++i) {
          LOCKSTEP_ASSIGN_OR_RETURN(const StepTimes own,
                                    StepRun(communicator, trainings[i]).Run());
          if (communicator->rank() == 0) shared->at(i) = own;
        }
        return OkStatus();
      }));
  return std::vector<StepTimes>(shared->begin(), shared->end());
}

// Again while others took the processors.
StatusOr<std::vector<StepTimes>> MeasureUndisturbed(
    const std::string& prefix, Shape shape,
    const std::vector<Training>& trainings) {
  for (int i = 1;; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<StepTimes> times,
                              Measure(prefix, shape, trainings));
    double stolen = 0;
    for (const StepTimes& one : times) stolen = std::max(stolen, one.stolen);
    if (stolen <= kMostStolen || i == kMostTimes) return times;
    printf("%3dx%-3d again: up to %.0f %% of the processors' time was stolen\n",
           shape.hosts, shape.ranks, stolen * 100);
    fflush(stdout);
  }
}

// Prints both. False where the step's time is off.
bool Compare(Shape shape, const Kind& kind, const Training& training,
             const Step& predicted, const StepTimes& measured) {
  const double ratio = measured.seconds / predicted.seconds();
  printf(
      "%3dx%-3d %-19s %4zu x %4.2f %10.1f %8.1f / %7.1f %6.2f %8.1f / %7.1f "
      "%7.1f / %5.1f %% %7.1f %%\n",
      shape.hosts, shape.ranks, kind.name, Buckets(training).size(),
      static_cast<double>(training.buckets.bucket) / (1 << 20),
      training.compute_seconds * 1e3, measured.seconds * 1e3,
      predicted.seconds() * 1e3, ratio, measured.exposed * 1e3,
      predicted.exposed * 1e3,
      100 * training.compute_seconds / measured.seconds,
      100 * predicted.efficiency(), 100 * measured.stolen);
  fflush(stdout);
  return ratio >= kLeastRatio && ratio <= kMostRatio;
}

}  // namespace

StatusOr<int> CompareSteps(const std::string& prefix,
                           const std::vector<Shape>& shapes,
                           const Cluster& measured) {
  int off = 0;
  printf(
      "\nSteps with %zu MiB of gradients; ranks wait where a device would "
      "compute. Measured / predicted.\n"
      "%-7s %-19s %11s %10s %18s %6s %18s %17s %9s\n",
      kTensors * kTensorBytes >> 20, "shape", "training", "buckets, MiB",
      "compute ms", "step ms", "ratio", "exposed ms", "efficiency", "stolen");
  for (const Shape shape : shapes) {
    if (shape.hosts == 1) continue;
    Cluster cluster = measured;
    cluster.hosts = shape.hosts;
    cluster.gpus_per_host = shape.ranks;
    std::vector<Training> trainings;
    for (const Kind& kind : kKinds) {
      trainings.push_back(TrainingOf(kind, cluster));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<StepTimes> times,
                              MeasureUndisturbed(prefix, shape, trainings));
    for (size_t i = 0; i < trainings.size(); ++i) {
      const Step predicted = PredictStep(cluster, trainings[i]);
      const bool good =
          Compare(shape, kKinds[i], trainings[i], predicted, times[i]);
      if (!good && prefix != "-") ++off;
    }
  }
  return off;
}

}  // namespace lockstep::model
