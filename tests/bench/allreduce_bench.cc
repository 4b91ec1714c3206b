// A0-gloo: all-reduce through Communicator against raw Gloo, in one run.
//
// Per round two fresh processes; each forms both sides over the loopback and
// runs them by turns, A B A B, on buffers that are filled anew before each
// operation. Processes are not pinned: Gloo's loop thread spins while another
// thread of its process holds a connection, and on one core with that thread
// it spins until the next tick (1 KiB then takes 4 ms on either side). A sample
// is the time from the first rank's start to the last rank's end. The first
// round is dropped. Every round's last result of each side is compared with the
// sum in float64. Raw Gloo runs as its own benchmark does: gloo::allreduce,
// default ring, asynchronous TCP.
#include <gloo/allreduce.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "common/base/version.h"
#include "tests/bench/report.h"
#include "worker/collective/communicator.h"
#include "worker/collective/testing.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

constexpr int kRanks = 2;
constexpr int kMaxIterations = 1000;
constexpr Duration kRoundLimit = seconds(120);
constexpr char kPeer[] =
    "gloo::allreduce, ring, tcp transport on 127.0.0.1, gloo::sum<float>";

struct Size {
  size_t bytes;
  int iterations;
};
constexpr Size kSizes[] = {{1 << 10, 200}, {64 << 10, 200}, {1 << 20, 60},
                           {4 << 20, 40},  {25 << 20, 30},  {100 << 20, 6}};
constexpr int kSizeCount = std::size(kSizes);

struct Sample {
  int64_t start;
  int64_t end;
};

// Shared by the processes of one round.
struct Board {
  pthread_barrier_t everyone;
  std::atomic<int> arrived{0};
  std::atomic<int> wrong{0};
  // [side][size][iteration][rank]; side 0 is ours.
  Sample samples[2][kSizeCount][kMaxIterations][kRanks];
};

// Blocks until all have come: who spins here takes the core from the threads
// that still send the last operation's bytes. Then spins, for all to leave
// within a microsecond.
void Barrier(Board* board, int* passed) {
  pthread_barrier_wait(&board->everyone);
  const int target = ++*passed * kRanks;
  board->arrived.fetch_add(1);
  while (board->arrived.load() < target) {
  }
}

int64_t Nanos() { return MonotonicNow().time_since_epoch().count(); }

// Deterministic inputs: every rank can compute every other's.
class Input {
 public:
  explicit Input(int rank) : noise_(kPeriod) {
    std::mt19937_64 random(100 + rank);
    std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
    for (float& value : noise_) {
      value = static_cast<float>(rank + 1) + uniform(random);
    }
  }
  float At(size_t i, int iteration) const {
    return noise_[i % kPeriod] + static_cast<float>(iteration);
  }
  void Fill(float* data, size_t count, int iteration) const {
    for (size_t i = 0; i < count; i += kPeriod) {
      const size_t n = std::min(kPeriod, count - i);
      for (size_t k = 0; k < n; ++k) {
        data[i + k] = noise_[k] + static_cast<float>(iteration);
      }
    }
  }

 private:
  static constexpr size_t kPeriod = 1 << 14;
  std::vector<float> noise_;
};

bool IsSum(const float* data, size_t count, int iteration,
           const std::vector<Input>& inputs) {
  for (size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (const Input& input : inputs) sum += input.At(i, iteration);
    if (!(std::abs(data[i] - sum) <= 1.2e-7 * std::abs(sum))) return false;
  }
  return true;
}

// Two ways to add up `count` floats in place.
class Side {
 public:
  virtual ~Side() = default;
  virtual float* data() = 0;
  virtual Status Reduce(size_t count) = 0;
};

class Ours final : public Side {
 public:
  static StatusOr<std::unique_ptr<Side>> Form(const std::string& dir, int rank,
                                              size_t bytes) {
    DirectoryRendezvousStore store(dir);
    LOCKSTEP_ASSIGN_OR_RETURN(
        auto communicator, FormCommunicator(TestOptions(rank, kRanks, &store)));
    LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* buffer,
                              communicator->Allocate(bytes));
    return std::make_unique<Ours>(std::move(communicator), buffer);
  }
  Ours(std::unique_ptr<Communicator> communicator, const Buffer* buffer)
      : communicator_(std::move(communicator)), buffer_(buffer) {}

  float* data() override { return static_cast<float*>(buffer_->data); }
  Status Reduce(size_t count) override {
    return Run(communicator_.get(),
               {.slice = {buffer_, 0, count, DataType::kFloat32}}, seconds(30));
  }

 private:
  const std::unique_ptr<Communicator> communicator_;
  const Buffer* const buffer_;
};

class RawGloo final : public Side {
 public:
  RawGloo(const std::string& dir, int rank, size_t bytes) : bytes_(bytes) {
    gloo::rendezvous::FileStore store(dir);
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice("127.0.0.1");
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, kRanks);
    context->connectFullMesh(store, device);
    context_ = std::move(context);
    // The same kind of memory as ours.
    data_ = static_cast<float*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~RawGloo() override { munmap(data_, bytes_); }

  float* data() override { return data_; }
  Status Reduce(size_t count) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(data_, count);
    using Function = void (*)(void*, const void*, const void*, size_t);
    options.setReduceFunction(static_cast<Function>(&gloo::sum<float>));
    gloo::allreduce(options);
    return OkStatus();
  }

 private:
  const size_t bytes_;
  float* data_;
  std::shared_ptr<gloo::Context> context_;
};

// One rank of one round. Which side goes first changes with the round.
Status RunRank(int rank, int round, const std::string& dir, Board* board) {
  const size_t most = kSizes[kSizeCount - 1].bytes;
  std::vector<Input> inputs;
  for (int r = 0; r < kRanks; ++r) inputs.emplace_back(r);
  LOCKSTEP_ASSIGN_OR_RETURN(auto ours, Ours::Form(dir + "/ours", rank, most));
  auto raw = std::make_unique<RawGloo>(dir + "/raw", rank, most);
  Side* const sides[2] = {ours.get(), raw.get()};
  int passed = 0;
  for (int s = 0; s < kSizeCount; ++s) {
    const size_t count = kSizes[s].bytes / sizeof(float);
    const int warm_up = kSizes[s].iterations / 10 + 2;
    for (int i = -warm_up; i < kSizes[s].iterations; ++i) {
      for (int turn = 0; turn < 2; ++turn) {
        const int side = (turn + round) % 2;
        inputs[rank].Fill(sides[side]->data(), count, i);
        Barrier(board, &passed);
        const int64_t start = Nanos();
        LOCKSTEP_RETURN_IF_ERROR(sides[side]->Reduce(count));
        const int64_t end = Nanos();
        if (i >= 0) board->samples[side][s][i][rank] = {start, end};
      }
    }
    for (Side* side : sides) {
      if (!IsSum(side->data(), count, kSizes[s].iterations - 1, inputs)) {
        board->wrong.fetch_or(1 << s);
      }
    }
  }
  return OkStatus();
}

int RankMain(int rank, int round, const std::string& dir, Board* board) {
  signal(SIGPIPE, SIG_IGN);
  Status status;
  try {
    status = RunRank(rank, round, dir, board);
  } catch (const std::exception& e) {
    status = Internal("raw gloo: {}", e.what());
  }
  if (status.ok()) return 0;
  fmt::print(stderr, "rank {}: {}\n", rank, Message(status));
  return 1;
}

Status RunRound(int round, std::vector<BenchResult>* results, bool keep) {
  char name[] = "/tmp/lockstep-bench-XXXXXX";
  if (mkdtemp(name) == nullptr) return ErrnoStatus(errno, name);
  const std::string dir = name;
  std::filesystem::create_directory(dir + "/ours");
  std::filesystem::create_directory(dir + "/raw");
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ResourceExhausted("no shared memory");
  Board* const board = new (memory) Board;
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&board->everyone, &shared, kRanks);
  Status status;
  {
    RankProcesses ranks(
        kRanks, [&](int rank) { return RankMain(rank, round, dir, board); });
    const MonoTime deadline = MonotonicNow() + kRoundLimit;
    for (int rank = 0; rank < kRanks; ++rank) {
      const int code = ranks.Join(rank, deadline);
      if (code != 0) {
        status =
            Internal("rank {} ended with {} in round {}", rank, code, round);
      }
    }
  }
  for (int s = 0; status.ok() && s < kSizeCount; ++s) {
    BenchResult& result = (*results)[s];
    if ((board->wrong.load() & (1 << s)) != 0) result.verified = false;
    if (!keep) continue;
    std::vector<double> seconds[2];
    for (int side = 0; side < 2; ++side) {
      for (int i = 0; i < kSizes[s].iterations; ++i) {
        const Sample* ranks = board->samples[side][s][i];
        seconds[side].push_back((std::max(ranks[0].end, ranks[1].end) -
                                 std::min(ranks[0].start, ranks[1].start)) *
                                1e-9);
      }
    }
    result.ours_seconds.push_back(seconds[0]);
    result.peer_seconds.push_back(seconds[1]);
  }
  munmap(memory, sizeof(Board));
  std::filesystem::remove_all(dir);
  return status;
}

Status RunAll(int rounds, const std::string& json_path) {
  std::vector<BenchResult> results;
  for (const Size& size : kSizes) {
    BenchResult result;
    result.id = "A0-gloo";
    result.bytes = size.bytes;
    result.ranks = kRanks;
    result.peer = kPeer;
    result.verified = true;
    results.push_back(std::move(result));
  }
  for (const auto& [key, value] : DescribeMachine()) {
    fmt::print("{}: {}\n", key, value);
  }
  fmt::print("peer: {}\n{} rounds of 2 processes, the first one dropped\n",
             kPeer, rounds);
  for (int round = 0; round < rounds; ++round) {
    LOCKSTEP_RETURN_IF_ERROR(RunRound(round, &results, round > 0));
  }
  PrintResults(results);
  if (!json_path.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(AddToJson(
        json_path,
        {{"lockstep", kVersion},
         {"gloo", fmt::format("{}.{}.{}", GLOO_VERSION_MAJOR,
                              GLOO_VERSION_MINOR, GLOO_VERSION_PATCH)},
         {"compiler", __VERSION__}},
        results));
  }
  for (const BenchResult& result : results) {
    if (result.verified) continue;
    return DataLoss("all-reduce of {} bytes gave a wrong sum", result.bytes);
  }
  return OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  int rounds = 11;
  std::string json;
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (has_value && std::strcmp(argv[i], "--json") == 0) {
      json = argv[++i];
    } else if (has_value && std::strcmp(argv[i], "--rounds") == 0) {
      rounds = std::atoi(argv[++i]);
    } else {
      rounds = 0;
    }
  }
  if (rounds < 2) {
    fmt::print(stderr,
               "usage: allreduce_bench [--rounds N] [--json FILE]; N >= 2\n");
    return 2;
  }
  const lockstep::Status status = lockstep::RunAll(rounds, json);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", lockstep::Message(status));
  return 1;
}
