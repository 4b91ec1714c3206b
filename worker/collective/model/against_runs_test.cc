// Compares the model with runs: collective_model_check PREFIX [SHAPE...]
//
// PREFIX names network namespaces PREFIX0, PREFIX1... that stand for hosts,
// with addresses 10.77.0.1, 10.77.0.2... on lines that are alike (the script
// check_in_namespaces makes them); "-" is none: all ranks on the loopback, by
// TCP. SHAPE is HOSTSxRANKS. The two lines are measured with two ranks, one
// figure each for latency and rate; all other shapes are predicted from them.
//
// Exits with 1 where a prediction between namespaces is off by more than a
// quarter from 1 MiB on: below, waking ranks that outnumber the processors
// takes most of the time, and on the loopback their copies do.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "worker/collective/model/measure.h"
#include "worker/collective/model/model.h"
#include "worker/collective/testing.h"

namespace lockstep::model {
namespace {

constexpr size_t kSizes[] = {4, 64 << 10, 1 << 20, 8 << 20, 25 << 20};
constexpr int kSizeCount = sizeof(kSizes) / sizeof(kSizes[0]);
constexpr size_t kLeastJudged = 1 << 20;
constexpr double kLeastRatio = 0.8;
constexpr double kMostRatio = 1.25;

struct Shape {
  int hosts = 1;
  int ranks = 1;  // of each
};

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
constexpr Duration kPatience = std::chrono::seconds(20);

// The median of `times` runs of `fn` on this rank, which begin together.
template <typename Fn>
StatusOr<double> MedianOf(Communicator* communicator, int times, Fn fn) {
  std::vector<double> seconds;
  for (int i = 0; i <= times; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        Run(communicator, {.kind = CollectiveKind::kBarrier}, kPatience));
    const MonoTime start = Now();
    LOCKSTEP_RETURN_IF_ERROR(fn());
    if (i > 0) seconds.push_back(ToSeconds(Now() - start));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
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
      LOCKSTEP_RETURN_IF_ERROR(works.back()->Wait(Now() + kPatience));
    }
    for (const auto& work : works) {
      LOCKSTEP_RETURN_IF_ERROR(work->Wait(Now() + kPatience));
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

bool EnterHost(const std::string& prefix, int host) {
  if (prefix == "-") return true;
  const std::string path = "/run/netns/" + prefix + std::to_string(host);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  return fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
}

int Rank(const std::string& prefix, Shape shape, int rank,
         const std::string& dir, Result* result) {
  signal(SIGPIPE, SIG_IGN);
  const int host = rank / shape.ranks;
  if (!EnterHost(prefix, host)) {
    perror("entering a namespace");
    return 1;
  }
  DirectoryRendezvousStore store(dir);
  CommunicatorOptions options =
      TestOptions(rank, shape.hosts * shape.ranks, &store);
  options.backend = "auto";
  if (prefix == "-") {
    options.host = std::to_string(host);
  } else {
    options.bind_address = fmt::format("10.77.0.{}", host + 1);
  }
  const auto formed = FormCommunicator(options);
  if (!formed.ok()) {
    fprintf(stderr, "%s\n", Message(formed.status()).c_str());
    return 1;
  }
  for (int i = 0; i < kSizeCount; ++i) {
    const int times = kSizes[i] <= (64 << 10) ? 50 : 5;
    const auto seconds = MedianAllReduce(formed->get(), kSizes[i], times);
    if (!seconds.ok()) {
      fprintf(stderr, "%s\n", Message(seconds.status()).c_str());
      return 1;
    }
    if (rank == 0) result->seconds[i] = *seconds;
  }
  Result more = {};
  const Status many = MeasureMany(formed->get(), &more);
  if (!many.ok()) {
    fprintf(stderr, "%s\n", Message(many).c_str());
    return 1;
  }
  if (rank == 0) {
    result->scatter = more.scatter;
    result->apart = more.apart;
    result->together = more.together;
    snprintf(result->backend, sizeof(result->backend), "%s",
             std::string((*formed)->backend()).c_str());
  }
  const Status last = Run(formed->get(), {.kind = CollectiveKind::kBarrier},
                          std::chrono::seconds(20));
  return last.ok() ? 0 : 1;
}

// False where a rank failed.
bool Measure(const std::string& prefix, Shape shape, Result* result) {
  char dir[] = "/tmp/lockstep-model-XXXXXX";
  if (mkdtemp(dir) == nullptr) return false;
  bool good = true;
  {
    const int n = shape.hosts * shape.ranks;
    RankProcesses ranks(
        n, [&](int rank) { return Rank(prefix, shape, rank, dir, result); });
    for (int rank = 0; rank < n; ++rank) {
      if (ranks.Join(rank, Now() + std::chrono::seconds(60)) != 0) {
        good = false;
      }
    }
  }
  std::filesystem::remove_all(dir);
  return good;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr,
            "usage: collective_model_check PREFIX|- [HOSTSxRANKS...]\n");
    return 2;
  }
  const std::string prefix = argv[1];
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
  auto* const result =
      static_cast<Result*>(mmap(nullptr, sizeof(Result), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  Cluster cluster;
  int off = 0;
  printf("%6s %6s %13s %9s %12s %13s %6s\n", "hosts", "ranks", "backend", "KiB",
         "measured ms", "predicted ms", "ratio");
  for (size_t s = 0; s < shapes.size(); ++s) {
    *result = {};
    if (!Measure(prefix, shapes[s], result)) return 1;
    if (s < 2) {
      const auto link = LinkOf(result->seconds[0], result->seconds[3],
                               static_cast<double>(kSizes[3]));
      if (!link.ok()) {
        fprintf(stderr, "%s\n", Message(link.status()).c_str());
        return 1;
      }
      (s == 0 ? cluster.intra : cluster.inter) = *link;
    }
    cluster.hosts = shapes[s].hosts;
    cluster.gpus_per_host = shapes[s].ranks;
    for (int i = 0; i < kSizeCount; ++i) {
      const double bytes = static_cast<double>(kSizes[i]);
      const double predicted =
          AllReduceSeconds(BestAlgorithm(cluster, bytes), cluster, bytes);
      const double ratio = result->seconds[i] / predicted;
      printf("%6d %6d %13s %9.3f %12.3f %13.3f %6.2f\n", cluster.hosts,
             cluster.ranks(), result->backend, bytes / 1024,
             result->seconds[i] * 1e3, predicted * 1e3, ratio);
      if (prefix != "-" && cluster.hosts > 1 && kSizes[i] >= kLeastJudged &&
          (ratio < kLeastRatio || ratio > kMostRatio)) {
        ++off;
      }
    }
    printf(
        "       reduce-scatter of %zu MiB %.3f ms; %d all-reduces of %zu MiB "
        "%.3f ms, started together %.3f ms\n",
        kScatterBytes >> 20, result->scatter * 1e3, kMany, kManyBytes >> 20,
        result->apart * 1e3, result->together * 1e3);
    fflush(stdout);
  }
  printf("within a host %.1f us, %.1f Gbit/s; between %.1f us, %.2f Gbit/s\n",
         cluster.intra.alpha * 1e6, 8e-9 / cluster.intra.beta,
         cluster.inter.alpha * 1e6, 8e-9 / cluster.inter.beta);
  if (off == 0) return 0;
  fprintf(stderr,
          "%d predictions are off: measured / predicted must be %.2f to %.2f "
          "from %zu MiB on\n",
          off, kLeastRatio, kMostRatio, kLeastJudged >> 20);
  return 1;
}

}  // namespace
}  // namespace lockstep::model

int main(int argc, char** argv) { return lockstep::model::Main(argc, argv); }
