// Compares the model with runs: step_model_check PREFIX [SHAPE...]
//
// PREFIX names network namespaces PREFIX0, PREFIX1... that stand for hosts,
// with addresses 10.77.0.1, 10.77.0.2... on lines that are alike (the script
// check_in_namespaces makes them); "-" is none: all ranks on the loopback, by
// TCP. SHAPE is HOSTSxRANKS. The two lines are measured with two ranks, one
// figure each for latency and rate; all-reduces of all other shapes, and steps
// of all, are predicted from them.
//
// Exits with 1 where a prediction between namespaces is off by more than a
// quarter: a step's time, or an all-reduce from 1 MiB on. Of smaller ones,
// waking ranks that outnumber the processors takes most of the time, and on
// the loopback the ranks' copies do.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/model/measure.h"
#include "tests/bench/model/model.h"
#include "tests/bench/model/rank_runs.h"
#include "tests/bench/model/step_runs.h"
#include "worker/collective/testing.h"

namespace lockstep::model {
namespace {

constexpr size_t kSizes[] = {4,       64 << 10, 256 << 10,
                             1 << 20, 8 << 20,  25 << 20};
constexpr int kSizeCount = sizeof(kSizes) / sizeof(kSizes[0]);
// With the first, what a line is fitted to.
constexpr int kFitted = 4;
constexpr size_t kLeastJudged = 1 << 20;

struct Result {
  double seconds[kSizeCount];
  // Of kScatterBytes.
  double scatter;
  // Of kMany all-reduces of kManyBytes: each waited for before the next is
  // started, and all started at once.
  double apart;
  double together;
  char backend[32];
};
constexpr size_t kScatterBytes = 8 << 20;
constexpr int kMany = 6;
constexpr size_t kManyBytes = 1 << 20;

// The median of `times` runs of `fn` on this rank, which begin together.
template <typename Fn>
StatusOr<double> MedianOf(Communicator* communicator, int times, Fn fn) {
  std::vector<double> seconds;
  for (int i = 0; i <= times; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        Run(communicator, {.kind = CollectiveKind::kBarrier}, kPatience));
    const MonoTime start = MonotonicNow();
    LOCKSTEP_RETURN_IF_ERROR(fn());
    if (i > 0) seconds.push_back(ToSeconds(MonotonicNow() - start));
  }
  return Median(std::move(seconds));
}

Status MeasureMany(Communicator* communicator, Result* result) {
  constexpr int kTimes = 7;
  LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* buffer,
                            communicator->Allocate(kScatterBytes));
  const auto size = static_cast<size_t>(communicator->size());
  const Operation scatter = {
      .kind = CollectiveKind::kReduceScatter,
      .slice = {buffer, 0, kScatterBytes / 4 / size * size,
                DataType::kFloat32}};
  LOCKSTEP_ASSIGN_OR_RETURN(result->scatter,
                            MedianOf(communicator, kTimes, [&] {
                              return Run(communicator, scatter, kPatience);
                            }));
  const auto many = [&](bool waits) -> Status {
    std::vector<std::unique_ptr<Work>> works;
    for (int i = 0; i < kMany; ++i) {
      constexpr size_t kCount = kManyBytes / 4;
      LOCKSTEP_ASSIGN_OR_RETURN(
          auto work, communicator->Start({.slice = {buffer, i * kCount, kCount,
                                                    DataType::kFloat32}}));
      works.push_back(std::move(work));
      if (!waits) continue;
      LOCKSTEP_RETURN_IF_ERROR(works.back()->Wait(MonotonicNow() + kPatience));
    }
    for (const auto& work : works) {
      LOCKSTEP_RETURN_IF_ERROR(work->Wait(MonotonicNow() + kPatience));
    }
    return OkStatus();
  };
  LOCKSTEP_ASSIGN_OR_RETURN(result->apart, MedianOf(communicator, kTimes, [&] {
                              return many(true);
                            }));
  LOCKSTEP_ASSIGN_OR_RETURN(
      result->together,
      MedianOf(communicator, kTimes, [&] { return many(false); }));
  return OkStatus();
}

Status MeasureAll(Communicator* communicator, Result* result) {
  for (int i = 0; i < kSizeCount; ++i) {
    const int times = kSizes[i] <= (256 << 10) ? 50 : 5;
    LOCKSTEP_ASSIGN_OR_RETURN(result->seconds[i],
                              MedianAllReduce(communicator, kSizes[i], times));
  }
  LOCKSTEP_RETURN_IF_ERROR(MeasureMany(communicator, result));
  snprintf(result->backend, sizeof(result->backend), "%s",
           std::string(communicator->backend()).c_str());
  return OkStatus();
}

StatusOr<Result> Measure(const std::string& prefix, Shape shape) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto* const shared, MapShared<Result>());
  LOCKSTEP_RETURN_IF_ERROR(
      RunRanks(prefix, shape, [&](Communicator* communicator) -> Status {
        Result own = {};
        LOCKSTEP_RETURN_IF_ERROR(MeasureAll(communicator, &own));
        if (communicator->rank() == 0) *shared = own;
        return OkStatus();
      }));
  return *shared;
}

// Prints both. How many predictions are off.
int CompareAllReduces(const Cluster& cluster, const Result& result,
                      bool judged) {
  int off = 0;
  for (int i = 0; i < kSizeCount; ++i) {
    const double bytes = static_cast<double>(kSizes[i]);
    const double predicted =
        AllReduceSeconds(BestAlgorithm(cluster, bytes), cluster, bytes);
    const double ratio = result.seconds[i] / predicted;
    printf("%6d %6d %13s %9.3f %12.3f %13.3f %6.2f\n", cluster.hosts,
           cluster.ranks(), result.backend, bytes / 1024,
           result.seconds[i] * 1e3, predicted * 1e3, ratio);
    if (judged && kSizes[i] >= kLeastJudged &&
        (ratio < kLeastRatio || ratio > kMostRatio)) {
      ++off;
    }
  }
  printf(
      "       reduce-scatter of %zu MiB %.3f ms; %d all-reduces of %zu MiB "
      "%.3f ms, started together %.3f ms\n",
      kScatterBytes >> 20, result.scatter * 1e3, kMany, kManyBytes >> 20,
      result.apart * 1e3, result.together * 1e3);
  fflush(stdout);
  return off;
}

// The first two shapes give the links. How many predictions are off.
StatusOr<int> CompareAll(const std::string& prefix,
                         const std::vector<Shape>& shapes) {
  Cluster cluster;
  int off = 0;
  printf("%6s %6s %13s %9s %12s %13s %6s\n", "hosts", "ranks", "backend", "KiB",
         "measured ms", "predicted ms", "ratio");
  for (size_t s = 0; s < shapes.size(); ++s) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Result result, Measure(prefix, shapes[s]));
    if (s < 2) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          (s == 0 ? cluster.intra : cluster.inter),
          LinkOf(result.seconds[0], result.seconds[kFitted],
                 static_cast<double>(kSizes[kFitted])));
    }
    cluster.hosts = shapes[s].hosts;
    cluster.gpus_per_host = shapes[s].ranks;
    off +=
        CompareAllReduces(cluster, result, prefix != "-" && cluster.hosts > 1);
  }
  printf("within a host %.1f us, %.1f Gbit/s; between %.1f us, %.2f Gbit/s\n",
         cluster.intra.alpha * 1e6, 8e-9 / cluster.intra.beta,
         cluster.inter.alpha * 1e6, 8e-9 / cluster.inter.beta);
  LOCKSTEP_ASSIGN_OR_RETURN(const int steps_off,
                            CompareSteps(prefix, shapes, cluster));
  return off + steps_off;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: step_model_check PREFIX|- [HOSTSxRANKS...]\n");
    return 2;
  }
  std::vector<Shape> shapes = {{1, 2}, {2, 1}};
  for (int i = 2; i < argc; ++i) {
    Shape shape;
    if (sscanf(argv[i], "%dx%d", &shape.hosts, &shape.ranks) != 2 ||
        shape.hosts < 1 || shape.ranks < 1 || shape.hosts > 64) {
      fprintf(stderr, "%s is no shape such as 2x4\n", argv[i]);
      return 2;
    }
    shapes.push_back(shape);
  }
  const StatusOr<int> off = CompareAll(argv[1], shapes);
  if (!off.ok()) {
    fprintf(stderr, "%s\n", Message(off.status()).c_str());
    return 1;
  }
  if (*off == 0) return 0;
  fprintf(stderr,
          "%d predictions are off: measured / predicted must be %.2f to %.2f, "
          "of steps and of all-reduces from %zu MiB on\n",
          *off, kLeastRatio, kMostRatio, kLeastJudged >> 20);
  return 1;
}

}  // namespace
}  // namespace lockstep::model

int main(int argc, char** argv) { return lockstep::model::Main(argc, argv); }
