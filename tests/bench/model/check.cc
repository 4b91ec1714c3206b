// Compares the model with runs: step_model_check PREFIX|- [HOSTSxRANKS...]
//
// PREFIX names network namespaces PREFIX-0, PREFIX-1... that stand for hosts,
// with addresses 10.99.0.1, 10.99.0.2... on lines that are alike (the script
// check_in_namespaces makes them); "-" is none: all ranks on the loopback, by
// TCP. The two lines are measured with two ranks, one figure each for latency
// and rate; all-reduces of all other shapes, and steps of all, are predicted
// from them.
//
// Steps are those of the reducer that jobs use: trainings that compute for much
// longer than they reduce, for as long, and much shorter, and in buckets of
// other sizes. Computing is waiting, as for a device, so that ranks may
// outnumber the cores. Within a host memory is too quick to be hidden behind
// waits, which are of 50 us or more.
//
// Exits with 1 where a prediction between namespaces is off by more than a
// quarter: a step's time, or an all-reduce from 1 MiB on. Of smaller ones,
// waking ranks that outnumber the processors takes most of the time, and on the
// loopback the ranks' copies do.
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
#include "tests/bench/model/model.h"
#include "worker/collective/testing.h"
#include "worker/runtime/reduction_planner.h"
#include "worker/runtime/stepped_reducer.h"

namespace lockstep::model {
namespace {

// Of measured / predicted: outside them a prediction is off.
constexpr double kLeastRatio = 0.8;
constexpr double kMostRatio = 1.25;
constexpr Duration kPatience = std::chrono::seconds(20);
constexpr Duration kLongestRun = std::chrono::minutes(10);

constexpr size_t kSizes[] = {4,       64 << 10, 256 << 10,
                             1 << 20, 8 << 20,  25 << 20};
// With the first, what a line is fitted to.
constexpr size_t kFitted = 4;
constexpr size_t kLeastJudged = 1 << 20;

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
constexpr int kStepWarmUps = 2;
constexpr int kSteps = 7;
// A machine that takes more of the processors' time away is measured again.
constexpr double kMostStolen = 0.02;
constexpr int kMostTimes = 4;

struct Shape {
  int hosts = 1;
  int ranks = 1;  // of each
};

struct StepTimes {
  double seconds;
  double exposed;
  double stolen;  // of the processors' time, by other machines of the host
};

// What rank 0 measured, in memory that all ranks share.
struct Measured {
  double all_reduces[std::size(kSizes)];
  StepTimes steps[std::size(kKinds)];
  char backend[32];
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool IsNear(double ratio) {
  return ratio >= kLeastRatio && ratio <= kMostRatio;
}

// Ranks as processes on hosts. ---------------------------------------------

using RankMain = std::function<Status(Communicator* communicator)>;

Status RunRank(const std::string& prefix, Shape shape, int rank,
               const std::string& dir, const RankMain& fn) {
  signal(SIGPIPE, SIG_IGN);
  const int host = rank / shape.ranks;
  DirectoryRendezvousStore store(dir);
  CommunicatorOptions options =
      TestOptions(rank, shape.hosts * shape.ranks, &store);
  options.backend = "auto";
  if (prefix == "-") {
    options.host = std::to_string(host);
  } else {
    const std::string name = fmt::format("/run/netns/{}-{}", prefix, host);
    const Fd fd(open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd || setns(fd.get(), CLONE_NEWNET) != 0) {
      return ErrnoStatus(errno, "entering " + name);
    }
    options.bind_address = fmt::format("10.99.0.{}", host + 1);
  }
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

StatusOr<Measured> MeasureRanks(
    const std::string& prefix, Shape shape,
    const std::function<Status(Communicator*, Measured*)>& fn) {
  void* const memory = mmap(nullptr, sizeof(Measured), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "mapping memory");
  auto* const shared = new (memory) Measured{};
  const Status status =
      RunRanks(prefix, shape, [&](Communicator* communicator) {
        Measured own = {};
        const Status measured = fn(communicator, &own);
        if (communicator->rank() == 0) *shared = own;
        return measured;
      });
  const Measured result = *shared;
  munmap(memory, sizeof(Measured));
  if (!status.ok()) return status;
  return result;
}

// All-reduces. ---------------------------------------------------------------

Status MeasureAllReduces(Communicator* communicator, Measured* measured) {
  constexpr int kWarmUps = 5;
  for (size_t s = 0; s < std::size(kSizes); ++s) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* buffer,
                              communicator->Allocate(kSizes[s]));
    const int times = kSizes[s] <= (256 << 10) ? 50 : 5;
    std::vector<double> taken;
    for (int i = 0; i < times + kWarmUps; ++i) {
      const MonoTime start = MonotonicNow();
      LOCKSTEP_RETURN_IF_ERROR(Run(
          communicator,
          {.slice = {buffer, 0, kSizes[s] / sizeof(float), DataType::kFloat32}},
          kPatience));
      if (i >= kWarmUps) taken.push_back(ToSeconds(MonotonicNow() - start));
    }
    measured->all_reduces[s] = Median(std::move(taken));
  }
  communicator->backend().copy(measured->backend,
                               sizeof(measured->backend) - 1);
  return OkStatus();
}

// Prints both. How many predictions are off.
int CompareAllReduces(const Cluster& cluster, const Measured& measured,
                      bool judged) {
  int off = 0;
  for (size_t s = 0; s < std::size(kSizes); ++s) {
    const auto bytes = static_cast<double>(kSizes[s]);
    const double predicted =
        AllReduceSeconds(BestAlgorithm(cluster, bytes), cluster, bytes);
    const double ratio = measured.all_reduces[s] / predicted;
    fmt::print("{:6} {:6} {:>13} {:9.3f} {:12.3f} {:13.3f} {:6.2f}\n",
               cluster.hosts, cluster.ranks(), measured.backend, bytes / 1024,
               measured.all_reduces[s] * 1e3, predicted * 1e3, ratio);
    if (judged && kSizes[s] >= kLeastJudged && !IsNear(ratio)) ++off;
  }
  std::fflush(stdout);
  return off;
}

// Steps. ---------------------------------------------------------------------

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

  // The medians of this rank's.
  StatusOr<StepTimes> Run() {
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
    return StepTimes{Median(seconds), Median(exposed),
                     (stolen_then - stolen) / std::max(1.0, all_then - all)};
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

  // That all of the last step was reduced, in the model's buckets.
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
    const uint64_t reduced = progress_->counters().collectives;
    if (reduced == (kStepWarmUps + kSteps) * Buckets(training_).size()) {
      return OkStatus();
    }
    return Internal("{} buckets were reduced, the model has {} a step", reduced,
                    Buckets(training_).size());
  }

  Communicator* const communicator_;
  const Training training_;
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Reducer> reducer_;
};

// As jobs do, the ranks first choose by measurement how to reduce. Again while
// others took the processors.
StatusOr<Measured> MeasureSteps(const std::string& prefix, Shape shape,
                                const std::vector<Training>& trainings) {
  for (int i = 1;; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Measured measured,
        MeasureRanks(
            prefix, shape,
            [&](Communicator* communicator, Measured* own) -> Status {
              LOCKSTEP_RETURN_IF_ERROR(communicator->Tune(
                  PlannerOptions().tune_budget, MonotonicNow() + kPatience));
              if (communicator->rank() == 0) {
                fmt::print("{:3}x{:<3} {}\n", shape.hosts, shape.ranks,
                           communicator->ReductionPlan());
                std::fflush(stdout);
              }
              for (size_t t = 0; t < trainings.size(); ++t) {
                LOCKSTEP_ASSIGN_OR_RETURN(
                    own->steps[t], StepRun(communicator, trainings[t]).Run());
              }
              return OkStatus();
            }));
    double stolen = 0;
    for (const StepTimes& one : measured.steps) {
      stolen = std::max(stolen, one.stolen);
    }
    if (stolen <= kMostStolen || i == kMostTimes) return measured;
    fmt::print(
        "{:3}x{:<3} again: up to {:.0f} % of the processors' time was "
        "stolen\n",
        shape.hosts, shape.ranks, stolen * 100);
    std::fflush(stdout);
  }
}

// Prints both. False where the step's time is off.
bool CompareStep(Shape shape, const Kind& kind, const Training& training,
                 const Step& predicted, const StepTimes& measured) {
  const double ratio = measured.seconds / predicted.seconds();
  fmt::print(
      "{:3}x{:<3} {:<19} {:4} x {:4.2f} {:10.1f} {:8.1f} / {:7.1f} {:6.2f} "
      "{:8.1f} / {:7.1f} {:7.1f} / {:5.1f} % {:7.1f} %\n",
      shape.hosts, shape.ranks, kind.name, Buckets(training).size(),
      static_cast<double>(training.buckets.bucket) / (1 << 20),
      training.compute_seconds * 1e3, measured.seconds * 1e3,
      predicted.seconds() * 1e3, ratio, measured.exposed * 1e3,
      predicted.exposed * 1e3,
      100 * training.compute_seconds / measured.seconds,
      100 * predicted.efficiency(), 100 * measured.stolen);
  std::fflush(stdout);
  return IsNear(ratio);
}

// How many step times are off, of a shape over the lines of `cluster`.
StatusOr<int> CompareSteps(const std::string& prefix, Shape shape,
                           const Cluster& cluster) {
  std::vector<Training> trainings;
  for (const Kind& kind : kKinds) {
    Training& training = trainings.emplace_back(
        Training{.gradient_bytes = kTensors * kTensorBytes,
                 .buckets = SizesFor("hierarchical", kind.bucket_bytes)});
    training.compute_seconds =
        kind.computing * PredictStep(cluster, training).busy;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const Measured measured,
                            MeasureSteps(prefix, shape, trainings));
  int off = 0;
  for (size_t i = 0; i < trainings.size(); ++i) {
    if (!CompareStep(shape, kKinds[i], trainings[i],
                     PredictStep(cluster, trainings[i]), measured.steps[i])) {
      ++off;
    }
  }
  return off;
}

Cluster WithShape(Cluster cluster, Shape shape) {
  cluster.hosts = shape.hosts;
  cluster.gpus_per_host = shape.ranks;
  return cluster;
}

// The first two shapes give the lines. How many predictions between namespaces
// are off.
StatusOr<int> CompareAll(const std::string& prefix,
                         const std::vector<Shape>& shapes) {
  Cluster lines;
  int off = 0;
  fmt::print("{:>6} {:>6} {:>13} {:>9} {:>12} {:>13} {:>6}\n", "hosts", "ranks",
             "backend", "KiB", "measured ms", "predicted ms", "ratio");
  for (size_t s = 0; s < shapes.size(); ++s) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Measured measured,
        MeasureRanks(prefix, shapes[s], MeasureAllReduces));
    if (s < 2) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          (s == 0 ? lines.intra : lines.inter),
          LinkOf(measured.all_reduces[0], measured.all_reduces[kFitted],
                 static_cast<double>(kSizes[kFitted])));
    }
    off += CompareAllReduces(WithShape(lines, shapes[s]), measured,
                             prefix != "-" && shapes[s].hosts > 1);
  }
  fmt::print(
      "within a host {:.1f} us, {:.1f} Gbit/s; between {:.1f} us, {:.2f} "
      "Gbit/s\n\nSteps with {} MiB of gradients. Measured / predicted.\n"
      "{:<7} {:<19} {:>11} {:>10} {:>18} {:>6} {:>18} {:>17} {:>9}\n",
      lines.intra.alpha * 1e6, 8e-9 / lines.intra.beta, lines.inter.alpha * 1e6,
      8e-9 / lines.inter.beta, kTensors * kTensorBytes >> 20, "shape",
      "training", "buckets, MiB", "compute ms", "step ms", "ratio",
      "exposed ms", "efficiency", "stolen");
  for (const Shape shape : shapes) {
    if (shape.hosts == 1) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const int of_shape,
        CompareSteps(prefix, shape, WithShape(lines, shape)));
    if (prefix != "-") off += of_shape;
  }
  return off;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: step_model_check PREFIX|- [HOSTSxRANKS...]\n");
    return 2;
  }
  std::vector<Shape> shapes = {{1, 2}, {2, 1}};
  for (int i = 2; i < argc; ++i) {
    Shape shape;
    if (sscanf(argv[i], "%dx%d", &shape.hosts, &shape.ranks) != 2 ||
        shape.hosts < 1 || shape.ranks < 1 || shape.hosts > 64) {
      fmt::print(stderr, "{} is no shape such as 2x4\n", argv[i]);
      return 2;
    }
    shapes.push_back(shape);
  }
  const StatusOr<int> off = CompareAll(argv[1], shapes);
  if (!off.ok()) {
    fmt::print(stderr, "{}\n", Message(off.status()));
    return 1;
  }
  if (*off == 0) return 0;
  fmt::print(stderr,
             "{} predictions are off: measured / predicted must be {:.2f} to "
             "{:.2f}, of steps and of all-reduces from {} MiB on\n",
             *off, kLeastRatio, kMostRatio, kLeastJudged >> 20);
  return 1;
}

}  // namespace
}  // namespace lockstep::model

int main(int argc, char** argv) { return lockstep::model::Main(argc, argv); }
