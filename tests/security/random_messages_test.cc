// Random and damaged messages at every method: nothing crashes, hangs, grows
// or changes, and every error has a code that says something.
//
// LOCKSTEP_SEED repeats a run; LOCKSTEP_CALLS makes it longer.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "lockstep/v1/options.pb.h"
#include "tests/security/random_message.h"
#include "tests/security/raw_call.h"
#include "tests/service/fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_SLOW_BUILD 1
#else
#define LOCKSTEP_SLOW_BUILD 0
#endif

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;

constexpr int kCalls = LOCKSTEP_SLOW_BUILD ? 10'000 : 100'000;
constexpr std::chrono::seconds kBudget(LOCKSTEP_SLOW_BUILD ? 60 : 20);
// Whatever the machine: fewer test nothing.
constexpr int kFewestCalls = 2'000;
constexpr int64_t kMaxGrowthBytes = int64_t{256} << 20;
constexpr int kThreads = 4;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class RandomMessagesTest : public server::ServiceTest {
 protected:
  void SetUp() override {
    // Not what is tested here.
    server_options_.limits.calls_per_second = 1e9;
    server_options_.limits.burst = 1e9;
    server::ServiceTest::SetUp();
  }

  // What the coordinator may answer to nonsense.
  static bool IsFit(const Status& status, bool parses) {
    switch (status.code()) {
      case StatusCode::kOk:
      case StatusCode::kInvalidArgument:
      case StatusCode::kNotFound:
      case StatusCode::kAlreadyExists:
      case StatusCode::kFailedPrecondition:
      case StatusCode::kOutOfRange:
      case StatusCode::kResourceExhausted:
      // A job that can never fit; a gang of another node.
      case StatusCode::kPermissionDenied:
      // Of a stream that was cut off after its first answer.
      case StatusCode::kCancelled:
      case StatusCode::kAborted:
        return true;
      // gRPC's answers to bytes that are no message: of a stream in and out,
      // and of the other methods, whose reactor then has no request to be made
      // with.
      case StatusCode::kInternal:
      case StatusCode::kUnimplemented:
        return !parses;
      default:
        return false;
    }
  }

  // Returns the calls that were made. Counts those that may have changed
  // something in `*answered`.
  int Attack(uint64_t seed, int calls, MonoTime deadline,
             std::atomic<int>* answered);
};

int RandomMessagesTest::Attack(uint64_t seed, int calls, MonoTime deadline,
                               std::atomic<int>* answered) {
  RandomMessages random(seed);
  const auto admin = User("adam", pki::UserRole::kAdmin);
  const auto worker = Worker("node-a");
  const auto methods = AllMethods();
  for (int i = 0; i < calls; ++i) {
    if (MonotonicNow() > deadline) return i;
    const auto* method = methods[random.Draw(methods.size())];
    const bool stream = method->client_streaming();
    std::vector<std::string> requests;
    for (size_t n = stream ? 1 + random.Draw(3) : 1; n > 0; --n) {
      requests.push_back(random.Bytes(*method->input_type()));
    }
    const bool parses =
        NewMessage(*method->input_type())->ParseFromString(requests[0]);
    // A watch that is right by chance waits for what happens.
    const bool waits = method->server_streaming() && !stream;
    const RawAnswer answer = Call(
        method->options().GetExtension(v1::role) == v1::ROLE_WORKER ? worker
                                                                    : admin,
        PathOf(*method), requests, true,
        waits ? Duration(200ms) : Duration(server::kPatience));
    EXPECT_TRUE(
        IsFit(answer.status, parses) ||
        (waits && answer.status.code() == StatusCode::kDeadlineExceeded))
        << PathOf(*method) << " seed " << seed << " call " << i << ": "
        << answer.status;
    if (answer.responses > 0) ++*answered;
    if (HasFailure()) return i;
  }
  return calls;
}

TEST_F(RandomMessagesTest, HurtNobody) {
  const uint64_t seed =
      FromEnvironment("LOCKSTEP_SEED", std::random_device()());
  const auto calls =
      static_cast<int>(FromEnvironment("LOCKSTEP_CALLS", kCalls));
  printf("LOCKSTEP_SEED=%llu\n", static_cast<unsigned long long>(seed));
  // Each refusal is a line.
  spdlog::set_level(spdlog::level::err);
  MustSubmit("witness");
  const auto before = coordinator_->queries()->GetJob("witness");
  ASSERT_TRUE(before.ok());
  const int64_t commits = store_.commits();
  // A first round grows what is grown once.
  std::atomic<int> answered = 0;
  const MonoTime deadline = MonotonicNow() + kBudget;
  int made = Attack(seed, 500, deadline, &answered);
  const int64_t resident = ResidentBytes();
  std::atomic<int> total = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      total += Attack(seed + 1 + static_cast<uint64_t>(i), calls / kThreads,
                      deadline, &answered);
    });
  }
  for (std::thread& thread : threads) thread.join();
  made += total;
  printf("%d calls, %d answered, %lld KiB more memory\n", made, answered.load(),
         static_cast<long long>((ResidentBytes() - resident) >> 10));
  EXPECT_GE(made, std::min(calls, kFewestCalls));
  if (!LOCKSTEP_SLOW_BUILD) {
    EXPECT_LT(ResidentBytes() - resident, kMaxGrowthBytes);
  }
  // A random message that is right by chance may change something; nothing
  // else does.
  EXPECT_LE(store_.commits() - commits, answered);
  const auto after = coordinator_->queries()->GetJob("witness");
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->job->resource_version, before->job->resource_version);
  // And everybody is served as before.
  MustSubmit("later");
  server::DaemonStream daemon(Worker("node-b"));
  EXPECT_TRUE(daemon.Register("node-b"));
}

}  // namespace
}  // namespace lockstep
