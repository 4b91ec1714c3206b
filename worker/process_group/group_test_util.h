// Groups for tests: ranks are threads.
#ifndef LOCKSTEP_WORKER_PROCESS_GROUP_GROUP_TEST_UTIL_H_
#define LOCKSTEP_WORKER_PROCESS_GROUP_GROUP_TEST_UTIL_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/collective/testing.h"
#include "worker/process_group/process_group.h"

namespace lockstep::worker::process_group {

// The first half of the ranks of "hierarchical" is on one host.
inline GroupOptions TestGroupOptions(
    const std::string& backend, int rank, int size,
    const std::shared_ptr<collective::RendezvousStore>& store) {
  const auto plain =
      collective::TestOptionsOf(backend, rank, size, store.get());
  GroupOptions options;
  options.rank = rank;
  options.size = size;
  options.label = "group test";
  options.backend = backend;
  options.host = plain.host;
  options.key = "the key of these ranks";
  options.operation_timeout = std::chrono::seconds(60);
  options.store = store;
  return options;
}

// Forms `n` ranks on threads of their own and runs fn(group) on each.
inline void WithGroup(const std::string& backend, int n,
                      const std::function<void(ProcessGroup*)>& fn) {
  signal(SIGPIPE, SIG_IGN);
  auto store = std::make_shared<collective::MapRendezvousStore>();
  collective::SpawnRanks(n, [&](int rank) {
    auto group = ProcessGroup::Form(TestGroupOptions(backend, rank, n, store));
    ASSERT_TRUE(group.ok()) << group.status();
    fn(group->get());
  });
}

// Formed by threads, then used by one.
class FormedGroup {
 public:
  FormedGroup(const std::string& backend, int n) : groups_(n) {
    signal(SIGPIPE, SIG_IGN);
    auto store = std::make_shared<collective::MapRendezvousStore>();
    collective::SpawnRanks(n, [&](int rank) {
      auto group =
          ProcessGroup::Form(TestGroupOptions(backend, rank, n, store));
      ASSERT_TRUE(group.ok()) << group.status();
      groups_[rank] = *std::move(group);
    });
  }
  ProcessGroup* operator[](int rank) { return groups_[rank].get(); }
  void Free(int rank) { groups_[rank].reset(); }

 private:
  std::vector<std::unique_ptr<ProcessGroup>> groups_;
};

// Elements of any type as numbers.
class Array {
 public:
  // With memory around it that must not change.
  Array(Type type, size_t count);
  static size_t SizeOf(Type type);

  size_t count() const { return count_; }
  double Get(size_t i) const;
  void Set(size_t i, double value);
  void Fill(const std::function<double(size_t)>& value) {
    for (size_t i = 0; i < count_; ++i) Set(i, value(i));
  }
  // All of it as one span, or cut into `pieces` spans that are not side by
  // side in memory; those borrow other memory, which Join copies back.
  std::vector<Span> Whole();
  std::vector<Span> Cut(size_t pieces);
  void Join();
  // Nothing around the elements has changed.
  bool Intact() const;

 private:
  static constexpr size_t kGuard = 64;
  static constexpr unsigned char kMark = 0xa5;
  char* data() { return reinterpret_cast<char*>(bytes_.data()) + kGuard; }
  const char* data() const {
    return reinterpret_cast<const char*>(bytes_.data()) + kGuard;
  }

  Type type_;
  size_t count_;
  std::vector<unsigned char> bytes_;
  std::vector<std::vector<unsigned char>> pieces_;
};

}  // namespace lockstep::worker::process_group

#endif  // LOCKSTEP_WORKER_PROCESS_GROUP_GROUP_TEST_UTIL_H_
