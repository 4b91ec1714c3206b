// Operations that overlap: the next one begins in the hosts while the last one
// is between them. Hosts are only numbers: all ranks run here.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "worker/collective/hierarchical/hierarchical_communicator.h"
#include "worker/collective/hierarchical/stage_plan.h"
#include "worker/collective/periodic_test_util.h"
#include "worker/collective/shm/shm_communicator.h"
#include "worker/collective/tcp/tcp_communicator.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

using std::chrono::seconds;

constexpr Duration kOverlapTimeout = seconds(30);

using Hosts = std::vector<int>;

// Ranks as threads.
void WithOverlappingHosts(const Hosts& hosts,
                          const std::function<void(Communicator*)>& fn) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  const int n = static_cast<int>(hosts.size());
  SpawnRanks(n, [&](int rank) {
    auto formed = FormHierarchical(TestOptions(rank, n, &store), hosts);
    ASSERT_TRUE(formed.ok()) << formed.status();
    fn(formed->get());
  });
}

// What goes between the hosts on one rank: its first operation begins there
// only when `gate` says so, and it counts how many are there at most.
class WatchedCommunicator final : public ForwardingCommunicator {
 public:
  struct Watch {
    std::function<void()> gate;
    std::atomic<int> most{0};
  };

  WatchedCommunicator(std::unique_ptr<Communicator> inner, Watch* watch)
      : ForwardingCommunicator(std::move(inner)), watch_(watch) {}
  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override {
    if (!opened_) watch_->gate();
    opened_ = true;
    LOCKSTEP_ASSIGN_OR_RETURN(auto work,
                              ForwardingCommunicator::Start(operation, stream));
    watch_->most = std::max(watch_->most.load(), ++under_way_);
    return std::make_unique<Counted>(std::move(work), &under_way_);
  }

 private:
  // By one thread at a time: that in Execute.
  class Counted final : public Work {
   public:
    Counted(std::unique_ptr<Work> inner, int* under_way)
        : inner_(std::move(inner)), under_way_(under_way) {}
    ~Counted() override { --*under_way_; }
    Status Wait(MonoTime deadline) override { return inner_->Wait(deadline); }
    bool Poll() override { return inner_->Poll(); }

   private:
    const std::unique_ptr<Work> inner_;
    int* const under_way_;
  };

  Watch* const watch_;
  bool opened_ = false;
  int under_way_ = 0;
};

// What a rank reduces within its host: begins only when `gate` says so. A rank
// that has no part between the hosts is held back here.
class GatedWithin final : public ForwardingCommunicator {
 public:
  GatedWithin(std::unique_ptr<Communicator> inner, std::function<void()> gate)
      : ForwardingCommunicator(std::move(inner)), gate_(std::move(gate)) {}
  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override {
    gate_();
    return ForwardingCommunicator::Start(operation, stream);
  }

 private:
  const std::function<void()> gate_;
};

// Forms over `form`, with a Communicator of type T around what comes of it.
template <typename T, typename Form, typename... Arguments>
FormFunction Wrapped(Form form, Arguments... arguments) {
  return [=](const CommunicatorOptions& part, const BrokenFunction& broken)
             -> StatusOr<std::unique_ptr<Communicator>> {
    LOCKSTEP_ASSIGN_OR_RETURN(auto formed, form(part, broken));
    return std::make_unique<T>(std::move(formed), arguments...);
  };
}

// Two all-reduces, the second one started before the first is between the
// hosts; the second begins `apart` elements behind the first. How many are
// between the hosts at once, by rank.
std::vector<int> MostAcross(const Hosts& hosts, size_t count, size_t apart) {
  signal(SIGPIPE, SIG_IGN);
  const int n = static_cast<int>(hosts.size());
  std::vector<WatchedCommunicator::Watch> watches(hosts.size());
  std::atomic<int> started{0};
  MapRendezvousStore store;
  SpawnRanks(n, [&](int rank) {
    auto options = TestOptions(rank, n, &store);
    std::atomic<bool> has_formed{false};
    // Every rank of a host must have the second operation queued when it is
    // asked whether it does.
    const std::function<void()> gate = [&] {
      const MonoTime limit = MonotonicNow() + kOverlapTimeout;
      while (has_formed && started < n && MonotonicNow() < limit)
        std::this_thread::yield();
    };
    watches[rank].gate = gate;
    HierarchicalParts parts;
    parts.within = Wrapped<GatedWithin>(shm::FormShm, gate);
    parts.between = Wrapped<WatchedCommunicator>(tcp::FormTcp, &watches[rank]);
    auto formed = FormHierarchical(options, hosts, parts);
    ASSERT_TRUE(formed.ok()) << formed.status();
    has_formed = true;
    Communicator* const c = formed->get();
    auto buffer = c->Allocate((apart + count) * 4);
    ASSERT_TRUE(buffer.ok());
    auto* const data = static_cast<float*>((*buffer)->data);
    std::fill(data, data + apart + count, 1.0f);
    std::vector<std::unique_ptr<Work>> works;
    for (const size_t offset : {size_t{0}, apart}) {
      auto work =
          c->Start({.slice = {*buffer, offset, count, DataType::kFloat32}});
      ASSERT_TRUE(work.ok());
      works.push_back(std::move(*work));
    }
    ++started;
    for (auto& work : works)
      ASSERT_TRUE(work->Wait(MonotonicNow() + kOverlapTimeout).ok());
    const float want = static_cast<float>(n);
    for (size_t i = 0; i < apart + count; ++i) {
      // What is in both slices was reduced twice.
      const bool twice = i >= apart && i < count;
      ASSERT_EQ(data[i], twice ? want * want : want) << i;
    }
  });
  std::vector<int> most;
  for (const auto& watch : watches) most.push_back(watch.most);
  return most;
}

TEST(OverlapTest, TheNextOperationBeginsWhileTheLastIsBetweenTheHosts) {
  // One chunk each.
  constexpr size_t kCount = kOverlapBytes / 4;
  for (const Hosts& hosts :
       {Hosts{0, 0, 1, 1}, Hosts{0, 1, 0, 1}, Hosts{0, 0, 0, 0, 1, 1, 1, 1}}) {
    for (const int most : MostAcross(hosts, kCount, kCount)) {
      EXPECT_EQ(most, 2);
    }
  }
  // Only the leaders go between the hosts; who is alone in its host has nobody
  // to agree with.
  const auto leaders = MostAcross({0, 0, 0, 1}, kCount, kCount);
  EXPECT_EQ(leaders[0], 2);
  EXPECT_EQ(leaders[1], 0);
  EXPECT_GE(leaders[3], 1);
}

TEST(OverlapTest, NothingOverlapsThatMustNot) {
  // Too small to be worth it (only the leaders go); the same memory.
  for (const int most : MostAcross({0, 0, 1, 1}, 1000, 1000)) {
    EXPECT_LE(most, 1);
  }
  constexpr size_t kCount = kOverlapBytes / 4;
  for (const int most : MostAcross({0, 0, 1, 1}, kCount, kCount / 2)) {
    EXPECT_EQ(most, 1);
  }
}

// `operations` all-reduces of `count` elements; `together`: some ranks start
// all before they wait, others wait for each.
std::vector<std::string> BitsOfMany(const Hosts& hosts, bool together) {
  constexpr size_t kCount = 300'001;
  constexpr size_t kOperations = 5;
  std::vector<std::string> bits(hosts.size());
  WithOverlappingHosts(hosts, [&](Communicator* c) {
    auto buffer = c->Allocate(kOperations * kCount * 4);
    ASSERT_TRUE(buffer.ok());
    auto* const data = static_cast<float*>((*buffer)->data);
    // In no two operations alike.
    FillPeriodic(data, 4, kOperations * kCount, 7001, [&](size_t i) {
      data[i] = std::sin(static_cast<float>(i * 13 + c->rank()));
    });
    std::vector<std::unique_ptr<Work>> works;
    for (size_t i = 0; i < kOperations; ++i) {
      auto work =
          c->Start({.slice = {*buffer, i * kCount, kCount, DataType::kFloat32},
                    .op = i == 2 ? ReduceOp::kMean : ReduceOp::kSum});
      ASSERT_TRUE(work.ok());
      works.push_back(std::move(*work));
      if (together && c->rank() % 3 != 1) continue;
      ASSERT_TRUE(works.back()->Wait(MonotonicNow() + kOverlapTimeout).ok());
    }
    for (auto& work : works)
      ASSERT_TRUE(work->Wait(MonotonicNow() + kOverlapTimeout).ok());
    bits[c->rank()].assign(reinterpret_cast<const char*>(data),
                           kOperations * kCount * 4);
  });
  return bits;
}

TEST(OverlapTest, OverlapChangesNoBit) {
  for (const Hosts& hosts :
       {Hosts{0, 0, 1, 1}, Hosts{0, 0, 0, 1}, Hosts{0, 0, 0, 0, 1, 1, 1, 1}}) {
    const auto apart = BitsOfMany(hosts, false);
    const auto together = BitsOfMany(hosts, true);
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      EXPECT_TRUE(apart[rank] == apart[0]) << rank;
      EXPECT_TRUE(together[rank] == apart[0]) << rank;
    }
  }
}

TEST(OverlapTest, AbortEndsWhatHasBegunAhead) {
  std::atomic<int> ready{0};
  WithOverlappingHosts({0, 0, 1, 1}, [&](Communicator* c) {
    constexpr size_t kCount = 1 << 20;
    auto buffer = c->Allocate(4 * kCount * 4);
    ASSERT_TRUE(buffer.ok());
    std::vector<std::unique_ptr<Work>> works;
    for (size_t i = 0; i < 4; ++i) {
      // The last host never comes to the end of it.
      if (c->rank() == 3 && i == 3) break;
      auto work = c->Start(
          {.slice = {*buffer, i * kCount, kCount, DataType::kFloat32}});
      if (!work.ok()) break;
      works.push_back(std::move(*work));
    }
    ++ready;
    while (ready < 4) std::this_thread::yield();
    if (c->rank() == 3) c->Abort("asked to");
    const MonoTime start = MonotonicNow();
    bool failed = false;
    for (auto& work : works)
      failed |= !work->Wait(MonotonicNow() + kOverlapTimeout).ok();
    works.clear();
    EXPECT_TRUE(failed || c->rank() == 3);
    EXPECT_LT(MonotonicNow() - start, seconds(5));
    // Nothing touches it any more.
    std::memset((*buffer)->data, 1, 4 * kCount * 4);
  });
}

// An abort that comes while the ranks of a host agree to begin with the next
// operation, as one of them sees it.
struct LateAbort {
  std::function<void()> abort;  // By another thread.
  // It has ended what was only queued. What it does next, to cut both sides
  // off, is held up until the transport has gone on with something or given up.
  std::atomic<bool> queue_ended{false};
  std::atomic<bool> decided{false};
  // It went on in its host.
  std::atomic<bool> went_on{false};
};

class LateAbortWithin final : public ForwardingCommunicator {
 public:
  LateAbortWithin(std::unique_ptr<Communicator> inner, LateAbort* late)
      : ForwardingCommunicator(std::move(inner)), late_(late) {}
  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override {
    if (late_->queue_ended) late_->decided = late_->went_on = true;
    LOCKSTEP_ASSIGN_OR_RETURN(auto work,
                              ForwardingCommunicator::Start(operation, stream));
    // Only by one word do they agree.
    if (operation.slice.count != 1) return work;
    LOCKSTEP_RETURN_IF_ERROR(work->Wait(MonotonicNow() + kOverlapTimeout));
    late_->abort();
    EXPECT_TRUE(AwaitTrue([&] { return late_->queue_ended.load(); }));
    return work;
  }

 private:
  LateAbort* const late_;
};

class LateAbortBetween final : public ForwardingCommunicator {
 public:
  LateAbortBetween(std::unique_ptr<Communicator> inner, LateAbort* late)
      : ForwardingCommunicator(std::move(inner)), late_(late) {}
  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override {
    LOCKSTEP_ASSIGN_OR_RETURN(auto work,
                              ForwardingCommunicator::Start(operation, stream));
    return std::make_unique<Deciding>(std::move(work), late_);
  }
  // The first to be cut off.
  void Abort(std::string_view reason) override {
    late_->queue_ended = true;
    EXPECT_TRUE(AwaitTrue([&] { return late_->decided.load(); }));
    ForwardingCommunicator::Abort(reason);
  }

 private:
  class Deciding final : public Work {
   public:
    Deciding(std::unique_ptr<Work> inner, LateAbort* late)
        : inner_(std::move(inner)), late_(late) {}
    ~Deciding() override { late_->decided = true; }
    Status Wait(MonoTime deadline) override {
      late_->decided = true;
      return inner_->Wait(deadline);
    }
    bool Poll() override { return inner_->Poll(); }

   private:
    const std::unique_ptr<Work> inner_;
    LateAbort* const late_;
  };

  LateAbort* const late_;
};

TEST(OverlapTest, WhatAnAbortHasEndedIsNotBegunAhead) {
  signal(SIGPIPE, SIG_IGN);
  constexpr size_t kCount = kOverlapBytes / 4;
  std::atomic<int> started{0};
  MapRendezvousStore store;
  LateAbort late;
  SpawnRanks(4, [&](int rank) {
    // The first operation goes between the hosts when all have queued both.
    WatchedCommunicator::Watch watch;
    watch.gate = [&] { EXPECT_TRUE(AwaitTrue([&] { return started == 4; })); };
    HierarchicalParts parts;
    parts.between = Wrapped<WatchedCommunicator>(tcp::FormTcp, &watch);
    if (rank == 0) {
      parts.within = Wrapped<LateAbortWithin>(shm::FormShm, &late);
      parts.between = Wrapped<LateAbortBetween>(parts.between, &late);
    }
    auto formed =
        FormHierarchical(TestOptions(rank, 4, &store), {0, 0, 1, 1}, parts);
    ASSERT_TRUE(formed.ok()) << formed.status();
    Communicator* const c = formed->get();
    std::thread aborter;
    if (rank == 0) {
      late.abort = [&] {
        aborter = std::thread([c] { c->Abort("asked to"); });
      };
    }
    auto buffer = c->Allocate(2 * kCount * 4);
    ASSERT_TRUE(buffer.ok());
    std::vector<std::unique_ptr<Work>> works;
    for (const size_t offset : {size_t{0}, kCount}) {
      auto work =
          c->Start({.slice = {*buffer, offset, kCount, DataType::kFloat32}});
      ASSERT_TRUE(work.ok());
      works.push_back(std::move(*work));
    }
    ++started;
    const Status first = works[0]->Wait(MonotonicNow() + kOverlapTimeout);
    const Status second = works[1]->Wait(MonotonicNow() + kOverlapTimeout);
    if (rank != 0) return;
    EXPECT_EQ(first.code(), StatusCode::kAborted) << first;
    EXPECT_EQ(second.code(), StatusCode::kAborted) << second;
    EXPECT_TRUE(late.queue_ended);
    EXPECT_FALSE(late.went_on);
    if (aborter.joinable()) aborter.join();
  });
}

// Finds calls that meet in a communicator, which is made for one thread. The
// flag orders nothing, so that the thread sanitizer sees what it would without.
class OneCallAtATime final : public ForwardingCommunicator {
 public:
  struct Watch {
    std::atomic<bool> allocating{false};  // The user is about to.
    std::atomic<bool> met{false};
  };

  OneCallAtATime(std::unique_ptr<Communicator> inner, Watch* watch)
      : ForwardingCommunicator(std::move(inner)), watch_(watch) {}
  StatusOr<const Buffer*> Allocate(size_t bytes) override {
    const Call call(this);
    return ForwardingCommunicator::Allocate(bytes);
  }
  StatusOr<const Buffer*> Register(void* data, size_t bytes) override {
    const Call call(this);
    return ForwardingCommunicator::Register(data, bytes);
  }
  StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                        Stream stream) override {
    EXPECT_TRUE(AwaitTrue([&] { return watch_->allocating.load(); }));
    const Call call(this);
    return ForwardingCommunicator::Start(operation, stream);
  }

 private:
  class Call {
   public:
    explicit Call(OneCallAtATime* in) : in_(in) {
      if (in_->called_.exchange(true, std::memory_order_relaxed)) {
        in_->watch_->met.store(true, std::memory_order_relaxed);
      }
      // Lets others in, if they can come.
      for (int i = 0; i < 20; ++i) std::this_thread::yield();
    }
    ~Call() { in_->called_.store(false, std::memory_order_relaxed); }

   private:
    OneCallAtATime* const in_;
  };

  Watch* const watch_;
  std::atomic<bool> called_{false};
};

TEST(OverlapTest, TheUserMayAllocateMeanwhile) {
  signal(SIGPIPE, SIG_IGN);
  MapRendezvousStore store;
  SpawnRanks(4, [&](int rank) {
    OneCallAtATime::Watch watch;
    auto formed = FormHierarchical(
        TestOptions(rank, 4, &store), {0, 0, 1, 1},
        {.within = Wrapped<OneCallAtATime>(shm::FormShm, &watch),
         .between = Wrapped<OneCallAtATime>(tcp::FormTcp, &watch)});
    ASSERT_TRUE(formed.ok()) << formed.status();
    Communicator* const c = formed->get();
    constexpr size_t kCount = size_t{8} << 18;  // 8 MiB
    auto buffer = c->Allocate(kCount * 4);
    ASSERT_TRUE(buffer.ok());
    for (int round = 0; round < 3; ++round) {
      auto work = c->Start({.slice = {*buffer, 0, kCount, DataType::kFloat32}});
      ASSERT_TRUE(work.ok());
      watch.allocating = true;
      for (int i = 0; i < 200; ++i) ASSERT_TRUE(c->Allocate(64).ok());
      const Status status = (*work)->Wait(MonotonicNow() + kOverlapTimeout);
      ASSERT_TRUE(status.ok()) << status;
    }
    EXPECT_FALSE(watch.met);
  });
}

}  // namespace
}  // namespace lockstep::worker::collective::hierarchical
