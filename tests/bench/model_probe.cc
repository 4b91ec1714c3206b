// A rank that measures all-reduces, or steps: what the model of docs/scale.md
// is compared with. harness/model_check.py starts the ranks of each host in a
// network namespace.
//
//   model_probe [--step COMPUTE_SECONDS:BUCKET_BYTES]... and what probe_rank.h
//     says
//
// Rank 0 prints its own figures. Without steps "BACKEND name" and "ALL_REDUCE
// bytes seconds" of each size; with steps "PLAN text" and for each "STEP
// seconds exposed stolen reductions": medians, the processors' time that other
// machines of the host took (a share of it), and how many reductions a step
// had.
//
// Steps are those of `lockstep-bench step`, with 12 MiB of gradients. Computing
// is waiting, as for a device, so that ranks may outnumber the cores.
#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "common/os/procfs.h"
#include "tests/bench/probe_rank.h"
#include "worker/bench/step_report.h"
#include "worker/bench/synthetic.h"
#include "worker/runtime/reduction_planner.h"

namespace lockstep::worker {
namespace {

using collective::Run;

constexpr Duration kPatience = std::chrono::seconds(20);
constexpr size_t kSizes[] = {4,       64 << 10, 256 << 10,
                             1 << 20, 8 << 20,  25 << 20};
// Small beside buckets, and divides each: the plan is the model's.
constexpr size_t kTensorBytes = 64 << 10;
constexpr int kTensors = 192;
constexpr int kStepWarmUps = 2;
constexpr int kSteps = 7;

template <typename... Args>
void Print(collective::Communicator* communicator,
           fmt::format_string<Args...> format, Args&&... args) {
  if (communicator->rank() != 0) return;
  fmt::print(format, std::forward<Args>(args)...);
  std::fflush(stdout);
}

Status MeasureAllReduces(collective::Communicator* communicator) {
  constexpr int kWarmUps = 5;
  Print(communicator, "BACKEND {}\n", communicator->backend());
  for (const size_t bytes : kSizes) {
    LOCKSTEP_ASSIGN_OR_RETURN(const collective::Buffer* buffer,
                              communicator->Allocate(bytes));
    const int times = bytes <= (256 << 10) ? 50 : 5;
    std::vector<double> taken;
    for (int i = 0; i < times + kWarmUps; ++i) {
      const MonoTime start = MonotonicNow();
      LOCKSTEP_RETURN_IF_ERROR(Run(communicator,
                                   {.slice = {buffer, 0, bytes / sizeof(float),
                                              collective::DataType::kFloat32}},
                                   kPatience));
      if (i >= kWarmUps) taken.push_back(ToSeconds(MonotonicNow() - start));
    }
    Print(communicator, "ALL_REDUCE {} {:.9g}\n", bytes,
          bench::Summarize(std::move(taken)).p50);
  }
  return OkStatus();
}

// `training`: "COMPUTE_SECONDS:BUCKET_BYTES"; 0 bytes: as jobs begin.
Status MeasureStep(collective::Communicator* communicator,
                   const char* training) {
  double seconds = 0;
  bench::BenchOptions options;
  if (sscanf(training, "%lf:%zu", &seconds, &options.step.bucket_bytes) != 2) {
    return InvalidArgument("{} is not as SECONDS:BYTES", training);
  }
  options.timeout = kPatience;
  options.step.parameters = kTensors * kTensorBytes / sizeof(float);
  options.step.tensors = kTensors;
  const std::vector<float> gradients =
      SyntheticGradients(options.step, communicator->rank());
  MonoTime began;
  MonoTime computed;
  const bench::ComputePart wait = [&](double, double to) {
    std::this_thread::sleep_until(began + Seconds(seconds * to));
    computed = MonotonicNow();
  };
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto trainer,
      bench::SyntheticTrainer::Make(communicator, options, wait, gradients));
  std::vector<double> taken;
  std::vector<double> exposed;
  LOCKSTEP_ASSIGN_OR_RETURN(const HostMetrics before, ReadHostMetrics());
  for (int i = 0; i < kStepWarmUps + kSteps; ++i) {
    began = MonotonicNow();
    LOCKSTEP_RETURN_IF_ERROR(trainer->Step());
    if (i < kStepWarmUps) continue;
    const MonoTime ended = MonotonicNow();
    taken.push_back(ToSeconds(ended - began));
    exposed.push_back(ToSeconds(ended - computed));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const HostMetrics after, ReadHostMetrics());
  const auto reductions = static_cast<double>(trainer->Counters().collectives);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const int64_t wrong,
      trainer->CountWrong(communicator->size(), communicator->backend()));
  if (wrong > 0) return DataLoss("{} gradients are no sums", wrong);
  Print(communicator, "STEP {:.9g} {:.9g} {:.4g} {:g}\n",
        bench::Summarize(std::move(taken)).p50,
        bench::Summarize(std::move(exposed)).p50,
        (after.cpu.steal - before.cpu.steal) /
            std::max(0.01, after.cpu.Total() - before.cpu.Total()),
        reductions / (kStepWarmUps + kSteps));
  return OkStatus();
}

Status Measure(int argc, char** argv) {
  const ProbeRank rank(argc, argv);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto communicator,
                            rank.Form(rank.store, kPatience));
  bool steps = false;
  for (int i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], "--step") != 0) continue;
    if (!steps) {
      // As jobs do, the ranks first choose by measurement how to reduce.
      LOCKSTEP_RETURN_IF_ERROR(communicator->Tune(
          runtime::PlannerOptions().tune_budget, MonotonicNow() + kPatience));
      Print(communicator.get(), "PLAN {}\n", communicator->ReductionPlan());
    }
    steps = true;
    LOCKSTEP_RETURN_IF_ERROR(MeasureStep(communicator.get(), argv[i + 1]));
  }
  if (!steps) LOCKSTEP_RETURN_IF_ERROR(MeasureAllReduces(communicator.get()));
  // No rank leaves while others still measure.
  return Run(communicator.get(), {.kind = collective::CollectiveKind::kBarrier},
             kPatience);
}

}  // namespace
}  // namespace lockstep::worker

int main(int argc, char** argv) {
  return lockstep::RunProbe(lockstep::worker::Measure, argc, argv);
}
