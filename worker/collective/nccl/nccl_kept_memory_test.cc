// Memory that one communicator hands to the next, and copies of a state that
// lies on the device: what a recovery in place needs. Over a GPU in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/collective/address_range.h"
#include "worker/collective/leveling.h"
#include "worker/collective/nccl/nccl_test_util.h"

namespace lockstep::worker::collective::nccl {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Communicators = std::vector<std::unique_ptr<Communicator>>;

// Ranks that form one communicator after the other, each with a range of its
// own.
class Generations {
 public:
  explicit Generations(int ranks, const FakeGpuFaults& faults = {})
      : api_(ResetFakeGpu(faults)) {
    for (int r = 0; r < ranks; ++r) {
      ranges_.push_back(AddressRange::Reserve(4 << 20).value());
    }
  }
  ~Generations() {
    ranges_.clear();
    EXPECT_EQ(FakeBytesInUse(), 0u);
    EXPECT_EQ(FakeCommunicatorsInUse(), 0);
    EXPECT_EQ(FakeWrongThreads(), 0);
  }

  Communicators Form() {
    Communicators formed(ranges_.size());
    MapRendezvousStore store;
    SpawnRanks(static_cast<int>(ranges_.size()), [&](int rank) {
      auto made = FormRank(rank, &store);
      EXPECT_TRUE(made.ok()) << made.status();
      if (made.ok()) formed[rank] = *std::move(made);
    });
    return formed;
  }
  AddressRange* range(int rank) { return ranges_[rank].get(); }
  StatusOr<std::unique_ptr<Communicator>> FormRank(int rank,
                                                   RendezvousStore* store) {
    CommunicatorOptions options =
        NcclOptions(rank, static_cast<int>(ranges_.size()), store);
    options.addresses = ranges_[rank].get();
    return FormNccl(options, api_);
  }

 private:
  const GpuApi& api_;
  std::vector<std::unique_ptr<AddressRange>> ranges_;
};

void AbortAll(Communicators* all) {
  for (const auto& each : *all) each->Abort("a rank is lost");
  all->clear();
}

TEST(NcclKeptMemoryTest, StaysWhereItIsFromOneCommunicatorToTheNext) {
  Generations generations(2);
  Communicators formed = generations.Form();
  std::vector<std::array<Buffer, 2>> kept;
  for (const auto& c : formed) {
    const Buffer* const host = *c->Allocate(400);
    const Buffer* const device = *c->AllocateOnDevice(400);
    EXPECT_TRUE(c->Allocate(1 << 20).ok());  // This one is not kept.
    c->Keep(host);
    c->Keep(device);
    std::fill_n(Floats(host), 100, 3.0f);
    std::fill_n(Floats(device), 100, static_cast<float>(c->rank() + 1));
    kept.push_back({*host, *device});
  }
  AbortAll(&formed);
  // A page for each buffer, and one for the mirror of the host's.
  EXPECT_EQ(FakeBytesInUse(), 2u * 3 * 4096);
  EXPECT_EQ(Floats(&kept[1][1])[99], 2);  // The program may still write there.

  formed = generations.Form();
  SpawnRanks(2, [&](int r) {
    Communicator* const c = formed[r].get();
    const Buffer* const device = c->AllocateAgain(kept[r][1]).value();
    const Buffer* const host = c->AllocateAgain(kept[r][0]).value();
    EXPECT_EQ(device->data, kept[r][1].data);
    EXPECT_EQ(host->data, kept[r][0].data);
    EXPECT_THAT(std::vector(Floats(host), Floats(host) + 100), Each(0.0f));
    // It is memory of this communicator.
    for (const Buffer* buffer : {device, host}) {
      std::fill_n(Floats(buffer), 100, static_cast<float>(r + 1));
      EXPECT_TRUE(collective::Run(
                      c, {.slice = {buffer, 0, 100, DataType::kFloat32}}, kLong)
                      .ok());
      EXPECT_EQ(Floats(buffer)[99], 3);
    }
  });
  // And of the one after it.
  AbortAll(&formed);
  formed = generations.Form();
  EXPECT_EQ(formed[0]->AllocateAgain(kept[0][1]).value()->data,
            kept[0][1].data);
  AbortAll(&formed);
}

TEST(NcclKeptMemoryTest, WaitsForACommunicatorThatAsksForIt) {
  Generations generations(1);
  Communicators formed = generations.Form();
  const Buffer* const device = *formed[0]->AllocateOnDevice(400);
  const Buffer* const forgotten = *formed[0]->AllocateOnDevice(400);
  formed[0]->Keep(device);
  const Buffer before = *device;
  const Buffer other = *forgotten;
  AbortAll(&formed);
  EXPECT_TRUE(generations.range(0)->kept()->AwaitFree(MonotonicNow()));
  formed = generations.Form();  // This recovery fails before it asks.
  AbortAll(&formed);
  formed = generations.Form();
  EXPECT_TRUE(formed[0]->AllocateAgain(before).ok());
  for (const Buffer& buffer : {before, other}) {
    const Status status = formed[0]->AllocateAgain(buffer).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr("elsewhere"));
  }
}

TEST(NcclKeptMemoryTest, WithoutARangeNothingIsKept) {
  {
    NcclRanks ranks(1);
    const Buffer* const device = *ranks[0]->AllocateOnDevice(400);
    ranks[0]->Keep(device);
    EXPECT_FALSE(ranks[0]->AllocateAgain(*device).ok());
    ranks.Leave();
  }
  EXPECT_EQ(FakeBytesInUse(), 0u);
}

// Its memory may still be written to. Only a new process helps.
TEST(NcclKeptMemoryTest, AGpuThatDoesNotStopGetsNoNextCommunicator) {
  auto range = AddressRange::Reserve(4 << 20).value();
  const GpuApi& api = ResetFakeGpu({.kernels_never_stop = true});
  MapRendezvousStore store;
  CommunicatorOptions options = NcclOptions(0, 1, &store);
  options.addresses = range.get();
  auto formed = FormNccl(options, api).value();
  const Buffer* const device = *formed->AllocateOnDevice(400);
  formed->Keep(device);
  auto work = *formed->Start({.slice = {device, 0, 100, DataType::kFloat32}});
  EXPECT_TRUE(AwaitTrue([] { return FakeLaunches() > 0; }));
  formed->Abort("a rank is lost");
  work.reset();
  formed.reset();
  EXPECT_FALSE(range->kept()->AwaitFree(MonotonicNow()));
  const Status status = FormNccl(options, api).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(Message(status), HasSubstr("has not stopped"));
  // A range that goes frees nothing that the GPU may use.
  range.reset();
  EXPECT_GT(FakeBytesInUse(), 0u);
}

TEST(NcclKeptMemoryTest, AFormingThatFailsLeavesItToTheNextOne) {
  Generations generations(2);
  Communicators formed = generations.Form();
  const Buffer* const device = *formed[1]->AllocateOnDevice(400);
  formed[1]->Keep(device);
  const Buffer before = *device;
  AbortAll(&formed);
  class BadId final : public RendezvousStore {
    Status Put(const std::string&, std::string_view) override { return {}; }
    StatusOr<std::string> Get(const std::string&, MonoTime) override {
      return std::string("no id");
    }
  };
  BadId store;
  EXPECT_FALSE(generations.FormRank(1, &store).ok());
  formed = generations.Form();
  EXPECT_TRUE(formed[1]->AllocateAgain(before).ok());
  AbortAll(&formed);
}

// ---- Forming ---------------------------------------------------------------

// NCCL waits for a peer that has died meanwhile, and no store tells it.
TEST(NcclFormingTest, EndsWhenItIsCancelled) {
  const GpuApi& api = ResetFakeGpu({});
  MapRendezvousStore store;
  CommunicatorOptions options = NcclOptions(0, 2, &store);
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  options.cancelled = cancelled;
  options.forming_deadline = MonotonicNow() + kLong;
  std::thread other([&] {
    EXPECT_TRUE(AwaitTrue([] { return FakeCommunicatorsInUse() > 0; }));
    cancelled->store(true);
  });
  const Status status = FormNccl(options, api).status();
  other.join();
  EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
  EXPECT_LT(MonotonicNow(), options.forming_deadline);
  EXPECT_EQ(FakeBytesInUse(), 0u);
  EXPECT_EQ(FakeCommunicatorsInUse(), 0);
}

TEST(NcclFormingTest, OneThatIsFormedGoesOn) {
  const GpuApi& api = ResetFakeGpu({});
  MapRendezvousStore store;
  CommunicatorOptions options = NcclOptions(0, 1, &store);
  const auto cancelled = std::make_shared<std::atomic<bool>>(false);
  options.cancelled = cancelled;
  auto formed = FormNccl(options, api).value();
  cancelled->store(true);
  EXPECT_TRUE(
      collective::Run(formed.get(), {.kind = CollectiveKind::kBarrier}, kLong)
          .ok());
}

// ---- Copies ----------------------------------------------------------------

TEST(NcclCopyTest, IsInTurnWithTheStream) {
  NcclRanks ranks(1);
  Communicator* const c = ranks[0];
  const Buffer* const staging = *c->Allocate(64);
  std::vector<unsigned char> state(64, 1);  // On the device.
  const cudaStream_t stream = MakeFakeStream();
  FakeSlowFill(stream, state.data(), 7, 64);
  std::atomic<bool> copied = false;
  std::thread copier([&] {
    EXPECT_TRUE(
        c->device_memory()
            ->CopyToHost(staging->data, state.data(), state.size(), stream)
            .ok());
    copied = true;
  });
  // As long as a copy that did not wait would take many times over; what it
  // copied tells, too.
  for (int look = 0; look < 5000; ++look) {
    EXPECT_FALSE(copied);
    std::this_thread::yield();
  }
  ReleaseFakeFills();
  copier.join();
  const auto* const bytes = static_cast<unsigned char*>(staging->data);
  EXPECT_THAT(std::vector(bytes, bytes + 64), Each(7));
  std::memset(staging->data, 9, 64);
  EXPECT_TRUE(c->device_memory()
                  ->CopyToDevice(state.data(), staging->data, 64, stream)
                  .ok());
  EXPECT_THAT(state, Each(9));
  ranks.Leave();
}

TEST(NcclCopyTest, AnAbortEndsItWithinTheTimeOfAnAbort) {
  NcclRanks ranks(1);
  Communicator* const c = ranks[0];
  const Buffer* const staging = *c->Allocate(64);
  const cudaStream_t stream = MakeFakeStream();
  char state[8];
  FakeSlowFill(stream, state, 7, sizeof(state));
  std::thread aborter([&] { c->Abort("a rank is lost"); });
  const MonoTime began = MonotonicNow();
  const Status status =
      c->device_memory()->CopyToHost(staging->data, state, 8, stream);
  aborter.join();
  EXPECT_FALSE(status.ok());
  EXPECT_LT(MonotonicNow() - began, kSoon);
}

TEST(NcclCopyTest, AStreamThatDoesNotGetThereIsThisRanksFault) {
  NcclRanks ranks(1, {}, std::chrono::milliseconds(10));
  const cudaStream_t stream = MakeFakeStream();
  char state[8];
  FakeSlowFill(stream, state, 7, sizeof(state));
  const Buffer* const staging = *ranks[0]->Allocate(64);
  DeviceMemory* const device = ranks[0]->device_memory();
  Status status = device->CopyToHost(staging->data, state, 8, stream);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(Message(status), HasSubstr("did not come so far"));
  CaptureFakeStream(stream);
  status = device->CopyToHost(staging->data, state, 8, stream);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  ranks[0]->Abort("stop");
  status = device->CopyToHost(staging->data, state, 8, MakeFakeStream());
  EXPECT_EQ(status.code(), StatusCode::kAborted);
}

// ---- Leveling --------------------------------------------------------------

// A state of two parts, one of which lies on the device.
struct State {
  explicit State(unsigned char seed) : host(70'001), device(9 << 20) {
    for (std::vector<std::byte>* part : {&host, &device}) {
      for (size_t i = 0; i < part->size(); ++i) {
        (*part)[i] = std::byte{static_cast<unsigned char>(seed + i * 7)};
      }
    }
  }
  bool operator==(const State& other) const {
    return host == other.host && device == other.device;
  }
  StateMemory memory() { return {host}; }
  DeviceState on_device() { return {{device}, stream}; }

  std::vector<std::byte> host;
  std::vector<std::byte> device;
  cudaStream_t stream = MakeFakeStream();
};

LevelInput InputOf(State* state) {
  LevelInput input;
  input.memory = state->memory();
  input.device = state->on_device();
  return input;
}

TEST(NcclLevelTest, EveryRankGetsTheStateOnTheDevice) {
  NcclRanks ranks(3);
  std::vector<State> states = {State(3), State(9), State(3)};
  std::vector<char> written(3, 0);
  ranks.ForEach([&](int r, Communicator* c) {
    LevelInput input = InputOf(&states[r]);
    if (r != 1) {
      input.digest = DigestOf(c, input.memory, input.device).value();
      input.record = {
          .has_state = true, .committed = 12, .digest = input.digest.hash};
    }
    bool changed = false;
    const auto result = Level(c, std::move(input), kLong, &changed);
    ASSERT_TRUE(result.ok()) << result.status();
    written[r] = changed ? 1 : 0;
    EXPECT_EQ(result->bytes, 70'001 + (9 << 20));
    EXPECT_EQ(result->plan.step, 12);
  });
  EXPECT_THAT(written, ElementsAre(0, 1, 0));
  for (const State& state : states) EXPECT_TRUE(state == State(3));
  ranks.Leave();
}

TEST(NcclLevelTest, TheDigestHasTheBytesOfTheDevice) {
  NcclRanks ranks(1);
  State state(3);
  const auto digest = [&] {
    return DigestOf(ranks[0], state.memory(), state.on_device()).value();
  };
  const StateDigest before = digest();
  EXPECT_EQ(before.chunks.size(), 4u);
  state.device.back() ^= std::byte{1};
  EXPECT_NE(digest().hash, before.hash);
  // What lies where belongs to it.
  EXPECT_NE(DigestOf({state.host, state.device}).hash, digest().hash);
  ranks.Leave();
}

TEST(NcclLevelTest, AllFindWhatDoesNotMatch) {
  NcclRanks ranks(2);
  std::vector<State> states = {State(3), State(5)};
  ranks.ForEach([&](int r, Communicator* c) {
    LevelInput input = InputOf(&states[r]);
    if (r == 0) {
      input.digest = DigestOf(c, input.memory, input.device).value();
      input.record = {
          .has_state = true, .committed = 4, .digest = input.digest.hash};
      states[0].device[5 << 20] ^= std::byte{4};
    }
    EXPECT_EQ(ReasonOf(Level(c, std::move(input), kLong).status()),
              "LEVEL_CRC");
  });
  ranks.Leave();
}

TEST(NcclLevelTest, AStateOnTheDeviceNeedsAStream) {
  NcclRanks ranks(1);
  State state(3);
  LevelInput input = InputOf(&state);
  input.device.stream = nullptr;
  EXPECT_EQ(DigestOf(ranks[0], input.memory, input.device).status().code(),
            StatusCode::kInvalidArgument);
  const Status status = Level(ranks[0], std::move(input), kLong).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("name the stream"));
  ranks.Leave();
}

}  // namespace
}  // namespace lockstep::worker::collective::nccl
