// Measures all-reduces, or steps, of ranks on hosts: what the model of
// docs/scale.md is compared with (harness/model_check.py).
//
//   model_probe PREFIX HOSTSxRANKS [COMPUTE_SECONDS:BUCKET_BYTES...]
//
// Host i is the network namespace PREFIX-i with the address 10.99.0.(i+1).
// Without steps it prints "BACKEND name" and "ALL_REDUCE bytes seconds" of each
// size; with steps "PLAN text" and for each "STEP seconds exposed stolen
// reductions": medians of rank 0's, the processors' time that other machines of
// the host took (a share of it), and how many reductions a step had.
//
// Steps are those of the reducer that jobs use, with 12 MiB of gradients.
// Computing is waiting, as for a device, so that ranks may outnumber the cores.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include "common/base/fd.h"
#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/testing.h"
#include "worker/runtime/reduction_planner.h"
#include "worker/runtime/stepped_reducer.h"

namespace lockstep {
namespace {

constexpr Duration kPatience = std::chrono::seconds(20);
constexpr Duration kLongestRun = std::chrono::minutes(10);

constexpr size_t kSizes[] = {4,       64 << 10, 256 << 10,
                             1 << 20, 8 << 20,  25 << 20};
// Small beside buckets, and divides each: the plan is the model's.
constexpr size_t kTensorBytes = 64 << 10;
constexpr size_t kTensors = 192;
constexpr int kStepWarmUps = 2;
constexpr int kSteps = 7;
struct Shape {
  int hosts = 1;
  int ranks = 1;  // of each
};

struct StepTimes {
  double seconds;
  double exposed;
};
// Of a step; forward before it.
constexpr double kBackwardShare = 2.0 / 3;

struct Training {
  double compute_seconds = 0;
  size_t bucket_bytes = 0;  // 0: as jobs begin
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

using RankMain = std::function<Status(Communicator* communicator)>;

Status RunRank(const std::string& prefix, Shape shape, int rank,
               const std::string& dir, const RankMain& fn) {
  signal(SIGPIPE, SIG_IGN);
  const int host = rank / shape.ranks;
  DirectoryRendezvousStore store(dir);
  CommunicatorOptions options =
      TestOptions(rank, shape.hosts * shape.ranks, &store);
  options.backend = "auto";
  const std::string name = fmt::format("/run/netns/{}-{}", prefix, host);
  const Fd fd(open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd || setns(fd.get(), CLONE_NEWNET) != 0) {
    return ErrnoStatus(errno, "entering " + name);
  }
  options.bind_address = fmt::format("10.99.0.{}", host + 1);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto communicator, FormCommunicator(options));
  LOCKSTEP_RETURN_IF_ERROR(fn(communicator.get()));
  // No rank leaves while others still measure.
  return Run(communicator.get(), {.kind = CollectiveKind::kBarrier}, kPatience);
}

// Runs `fn` on every rank of `shape` with the communicator of all, which
// backend "auto" formed. The first error, of any rank's.
Status RunRanks(const std::string& prefix, Shape shape, const RankMain& fn) {
  char dir[] = "/tmp/lockstep-model-XXXXXX";
  if (mkdtemp(dir) == nullptr) return ErrnoStatus(errno, "making a directory");
  Status result;
  const int count = shape.hosts * shape.ranks;
  {
    RankProcesses ranks(count, [&](int rank) {
      const Status status = RunRank(prefix, shape, rank, dir, fn);
      if (status.ok()) return 0;
      fmt::print(stderr, "rank {}: {}\n", rank, Message(status));
      return 1;
    });
    const MonoTime deadline = MonotonicNow() + kLongestRun;
    for (int rank = 0; rank < count; ++rank) {
      const int code = ranks.Join(rank, deadline);
      if (code != 0 && result.ok()) {
        result = Internal("rank {} of {}x{} ended with {}", rank, shape.hosts,
                          shape.ranks, code);
      }
    }
  }
  std::filesystem::remove_all(dir);
  return result;
}

// Rank 0 prints its own.
template <typename... Args>
void Print(Communicator* communicator, fmt::format_string<Args...> format,
           Args&&... args) {
  if (communicator->rank() != 0) return;
  fmt::print(format, std::forward<Args>(args)...);
  std::fflush(stdout);
}

Status MeasureAllReduces(Communicator* communicator) {
  constexpr int kWarmUps = 5;
  Print(communicator, "BACKEND {}\n", communicator->backend());
  for (const size_t bytes : kSizes) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* buffer,
                              communicator->Allocate(bytes));
    const int times = bytes <= (256 << 10) ? 50 : 5;
    std::vector<double> taken;
    for (int i = 0; i < times + kWarmUps; ++i) {
      const MonoTime start = MonotonicNow();
      LOCKSTEP_RETURN_IF_ERROR(
          Run(communicator,
              {.slice = {buffer, 0, bytes / sizeof(float), DataType::kFloat32}},
              kPatience));
      if (i >= kWarmUps) taken.push_back(ToSeconds(MonotonicNow() - start));
    }
    Print(communicator, "ALL_REDUCE {} {:.9g}\n", bytes,
          Median(std::move(taken)));
  }
  return OkStatus();
}

// The processors' time in jiffies: all of it, and what was stolen.
std::pair<double, double> ReadJiffies() {
  std::ifstream stat("/proc/stat");
  std::string name;
  stat >> name;
  double all = 0;
  double value = 0;
  // user, nice, system, idle, iowait, irq, softirq, steal.
  for (int i = 0; i < 8 && stat >> value; ++i) all += value;
  return {all, value};
}

class StepRun {
 public:
  StepRun(Communicator* communicator, const Training& training)
      : communicator_(communicator), training_(training) {}

  Status Run() {
    LOCKSTEP_RETURN_IF_ERROR(Make());
    std::vector<double> seconds;
    std::vector<double> exposed;
    const auto [all, stolen] = ReadJiffies();
    for (int i = 0; i < kStepWarmUps + kSteps; ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(const StepTimes times, Step());
      if (i < kStepWarmUps) continue;
      seconds.push_back(times.seconds);
      exposed.push_back(times.exposed);
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckSums());
    const auto [all_then, stolen_then] = ReadJiffies();
    Print(communicator_, "STEP {:.9g} {:.9g} {:.4g} {:g}\n", Median(seconds),
          Median(exposed),
          (stolen_then - stolen) / std::max(1.0, all_then - all),
          static_cast<double>(progress_->counters().collectives) /
              (kStepWarmUps + kSteps));
    return OkStatus();
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
    options.sizes = SizesFor("hierarchical", training_.bucket_bytes);
    LOCKSTEP_ASSIGN_OR_RETURN(
        reducer_, MakeSteppedReducer(parameters, std::move(options)));
    return OkStatus();
  }

  StatusOr<StepTimes> Step() {
    const MonoTime began = MonotonicNow();
    const double backward = training_.compute_seconds * kBackwardShare;
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
    return StepTimes{ToSeconds(ended - began), ToSeconds(ended - computed)};
  }

  // That all of the last step was reduced.
  Status CheckSums() {
    const int n = communicator_->size();
    const auto sum = static_cast<float>(n * (n + 1) / 2);
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

// As jobs do, the ranks first choose by measurement how to reduce.
Status MeasureSteps(Communicator* communicator,
                    const std::vector<Training>& trainings) {
  LOCKSTEP_RETURN_IF_ERROR(communicator->Tune(PlannerOptions().tune_budget,
                                              MonotonicNow() + kPatience));
  Print(communicator, "PLAN {}\n", communicator->ReductionPlan());
  for (const Training& training : trainings) {
    LOCKSTEP_RETURN_IF_ERROR(StepRun(communicator, training).Run());
  }
  return OkStatus();
}

int Main(int argc, char** argv) {
  Shape shape;
  bool good = argc > 2 &&
              sscanf(argv[2], "%dx%d", &shape.hosts, &shape.ranks) == 2 &&
              shape.hosts > 0 && shape.ranks > 0;
  std::vector<Training> trainings;
  for (int i = 3; i < argc; ++i) {
    Training& training = trainings.emplace_back();
    good = good && sscanf(argv[i], "%lf:%zu", &training.compute_seconds,
                          &training.bucket_bytes) == 2;
  }
  if (!good) {
    fmt::print(stderr,
               "usage: model_probe PREFIX HOSTSxRANKS "
               "[COMPUTE_SECONDS:BUCKET_BYTES...]\n");
    return 2;
  }
  const Status status =
      RunRanks(argv[1], shape, [&](Communicator* communicator) {
        return trainings.empty() ? MeasureAllReduces(communicator)
                                 : MeasureSteps(communicator, trainings);
      });
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", Message(status));
  return 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
