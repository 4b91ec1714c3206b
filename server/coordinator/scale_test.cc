// One job on many nodes, from registration to its end, through a real
// coordinator: what that costs must grow with the number of nodes, not with
// its square. Work is counted, not timed: memory blocks that are asked for,
// commits, tasks written, messages.
//
// LOCKSTEP_SCALE=64x1,512x1,64x8 makes it print times as well, with SQLite on
// the disk: docs/scale.md.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "common/base/logging.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/scale_fixture.h"
#include "server/core/testing.h"
#include "server/store/sqlite_store.h"
#include "tests/support/fake_clock.h"

namespace {

std::atomic<int64_t> allocations{0};

void* Allocate(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* const block = std::malloc(size == 0 ? 1 : size);
  if (block == nullptr) std::abort();
  return block;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
// Sanitizers have these of their own otherwise, and see them freed by ours.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return Allocate(size);
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete[](void* block) noexcept { std::free(block); }
void operator delete(void* block, size_t) noexcept { std::free(block); }
void operator delete[](void* block, size_t) noexcept { std::free(block); }

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;

// What the coordinator did in one phase of the job.
struct Work {
  // Within its calls: all, and the longest.
  double seconds = 0;
  double longest = 0;
  int64_t calls = 0;
  int64_t allocations = 0;
  int64_t assignments = 0;
  // Of them with a cluster spec, and how many of these were encoded.
  int64_t specs = 0;
  int64_t encoded_specs = 0;
  int64_t commits = 0;
  double store_seconds = 0;
  double longest_commit = 0;
  // Tasks whose values a commit changed.
  int64_t tasks_written = 0;
  size_t bytes_sent = 0;
};

class WideGang {
 public:
  // With a store all is encoded, also assignments; without, only the
  // coordinator's work is seen.
  WideGang(int nodes, int ranks_per_node, Store* store) : store_(store) {
    // A line of each node is of no use here.
    InitLogging("server_scale_test", "error");
    for (int i = 0; i < nodes; ++i) {
      nodes_.push_back(std::make_shared<WideNode>(i, ranks_per_node));
      nodes_.back()->encodes = store != nullptr;
    }
    spec_ = NativeSpec("wide", 1);
    const Resources cores{static_cast<double>(ranks_per_node), 0, 0, ""};
    spec_.roles = {Role(TaskType::kChief, 1, cores, ranks_per_node)};
    if (nodes > 1) {
      spec_.roles.push_back(
          Role(TaskType::kWorker, nodes - 1, cores, ranks_per_node));
    }
    Start();
  }

  // In order: register (all nodes, then the job comes), prepare, launch, join,
  // beat (ten steps), restart (a rank fails, the gang is stopped and formed
  // again), return (the coordinator dies, all register again), end.
  std::vector<std::pair<std::string, Work>> Run() {
    std::vector<std::pair<std::string, Work>> phases;
    const auto done = [&](const char* name) {
      phases.emplace_back(name, Take());
    };
    Register();
    Submit();
    done("register");
    Reach([](const Job& job) { return job.cluster.has_value(); });
    done("prepare");
    Reach([&](const Job&) {
      return AllOf([](const WideNode& node) {
        return node.gang && node.gang->ranks[0].state == RankState::kStarted;
      });
    });
    done("launch");
    join_ = true;
    Reach([](const Job& job) { return job.state == JobState::kRunning; });
    done("join");
    for (int step = 1; step <= 10; ++step) Beat(step);
    done("beat");
    nodes_.back()->fails = true;
    Reach([](const Job& job) {
      return job.generation == 2 && job.state == JobState::kRunning;
    });
    done("restart");
    coordinator_.reset();
    Start();
    Register();
    Tick();
    EXPECT_EQ(Get().state, JobState::kRunning);
    done("return");
    end_ = true;
    Reach([](const Job& job) { return IsFinal(job.state); });
    EXPECT_EQ(Get().state, JobState::kSucceeded);
    EXPECT_TRUE(AllOf([](const WideNode& node) { return !node.gang; }));
    done("end");
    return phases;
  }

 private:
  void Start() {
    hub_ = std::make_unique<WatchHub>();
    CoordinatorOptions options;
    options.new_uid = [] { return "uid"; };
    options.new_key = [] { return std::string(32, 'k'); };
    coordinator_ =
        std::make_unique<Coordinator>(options, &store_, &clock_, hub_.get());
    Do([&] { return coordinator_->Load(); });
  }
  void Register() {
    for (const auto& node : nodes_) {
      std::vector<GangStatus> gangs;
      if (node->gang) gangs.push_back(*node->gang);
      Do([&]() -> Status {
        LOCKSTEP_ASSIGN_OR_RETURN(
            node->session,
            coordinator_->sessions()->Register(node->info, gangs, node));
        return OkStatus();
      });
    }
  }
  void Submit() {
    Do([&] {
      return coordinator_->jobs()
          ->Submit({"user/ann", "id", "SubmitJob", "wide"}, spec_, "user/ann",
                   [](const JobSnapshot&) { return std::string(); })
          .status();
    });
    Tick();
  }
  void Tick() {
    clock_.Advance(100ms);
    Do([&] {
      coordinator_->Tick();
      return OkStatus();
    });
  }
  void Beat(int64_t step) {
    for (const auto& node : nodes_) {
      for (RankStatus& rank : node->gang->ranks) {
        rank.progress.step = step + 1;
        rank.progress.committed_step = step;
      }
      Do([&] {
        return coordinator_->sessions()->OnHeartbeat(
            node->session, ++node->beats, {0.5, 1 << 30, {}, {}, {}},
            {{node->gang->job, node->gang->generation, node->gang->ranks}});
      });
    }
    Tick();
  }
  // Everybody moves and reports until `there`.
  template <typename There>
  void Reach(There there) {
    for (int round = 0; round < 20; ++round) {
      for (const auto& node : nodes_) {
        if (!node->Move(join_, end_)) continue;
        Do([&] {
          return coordinator_->sessions()->OnGangStatus(node->session,
                                                        *node->gang);
        });
      }
      if (there(Get())) return;
      Tick();
      if (there(Get())) return;
    }
    ADD_FAILURE() << "it stays " << Name(Get().state);
  }
  template <typename Rule>
  bool AllOf(Rule rule) const {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [&](const auto& node) { return rule(*node); });
  }
  Job Get() {
    const auto job = coordinator_->queries()->GetJob("wide");
    EXPECT_TRUE(job.ok()) << Message(job.status());
    return job.ok() ? *job->job : Job();
  }

  template <typename Call>
  void Do(Call call) {
    const auto began = std::chrono::steady_clock::now();
    const int64_t allocated = allocations.load();
    const Status status = call();
    work_.allocations += allocations.load() - allocated;
    const double took =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began)
            .count();
    work_.seconds += took;
    work_.longest = std::max(work_.longest, took);
    ++work_.calls;
    EXPECT_TRUE(status.ok()) << Message(status);
  }
  Work Take() {
    Work work = std::exchange(work_, {});
    work.commits = std::exchange(store_.commits, 0);
    work.tasks_written = std::exchange(store_.tasks_written, 0);
    work.store_seconds = std::exchange(store_.seconds, 0);
    work.longest_commit = std::exchange(store_.longest, 0);
    work.encoded_specs = std::exchange(encoded_specs, 0);
    for (const auto& node : nodes_) {
      work.specs += std::exchange(node->specs, 0);
      work.assignments += std::exchange(node->assignments, 0);
      work.bytes_sent += std::exchange(node->bytes, 0);
    }
    return work;
  }

  CountingStore store_;
  FakeClock clock_;
  JobSpec spec_;
  std::vector<std::shared_ptr<WideNode>> nodes_;
  std::unique_ptr<WatchHub> hub_;
  std::unique_ptr<Coordinator> coordinator_;
  bool join_ = false;
  bool end_ = false;
  Work work_;
};

void Print(const std::string& shape,
           const std::vector<std::pair<std::string, Work>>& phases) {
  Work all;
  for (const auto& [name, work] : phases) {
    std::printf(
        "%8s %-8s %8.3f s, longest call %7.2f ms, %6ld calls, %9ld blocks, "
        "%5ld commits of %8ld tasks in %7.3f s, longest %7.2f ms, "
        "%6ld assignments of %9zu bytes\n",
        shape.c_str(), name.c_str(), work.seconds, 1e3 * work.longest,
        work.calls, work.allocations, work.commits, work.tasks_written,
        work.store_seconds, 1e3 * work.longest_commit, work.assignments,
        work.bytes_sent);
    all.seconds += work.seconds;
  }
  std::printf("%8s all      %8.3f s\n", shape.c_str(), all.seconds);
  std::fflush(stdout);
}

// Twice the nodes: twice the work of each phase, and a little for logarithms.
void ExpectLinear(int nodes, int ranks_per_node) {
  const auto small = WideGang(nodes, ranks_per_node, nullptr).Run();
  const auto large = WideGang(2 * nodes, ranks_per_node, nullptr).Run();
  ASSERT_EQ(small.size(), large.size());
  for (size_t i = 0; i < small.size(); ++i) {
    const Work& one = small[i].second;
    const Work& two = large[i].second;
    const auto at_most_twice = [&](int64_t a, int64_t b, const char* what) {
      EXPECT_LE(static_cast<double>(b), 2.5 * static_cast<double>(a) + 100)
          << what << " of " << small[i].first << ": " << a << " for " << nodes
          << " nodes, " << b << " for twice as many";
    };
    at_most_twice(one.allocations, two.allocations, "blocks of memory");
    at_most_twice(one.tasks_written, two.tasks_written, "tasks written");
    at_most_twice(one.assignments, two.assignments, "assignments");
  }
}

TEST(ScaleTest, WorkIsLinearInNodes) { ExpectLinear(128, 1); }
TEST(ScaleTest, WorkIsLinearInNodesOfManyRanks) { ExpectLinear(64, 8); }

TEST(ScaleTest, FewCommitsAndOneAssignmentAGoal) {
  constexpr int kNodes = 256;
  for (const auto& [phase, work] : WideGang(kNodes, 1, nullptr).Run()) {
    // A record of each node that registers, and what the ticks of a phase, or
    // the pace of reports, make of the job.
    const bool registers = phase == "register" || phase == "return";
    const int phases = phase == "restart" ? 3 : 1;
    EXPECT_LE(work.commits, (registers ? kNodes : 0) + 60 * phases) << phase;
    // A node hears PREPARE; LAUNCH; GO; after its return what holds; at the
    // end STOP, where it did not end by itself, and FORGET.
    EXPECT_LE(work.assignments, (2 * kNodes + 2) * phases) << phase;
  }
}

TEST(ScaleTest, ASpecIsEncodedOnceForAllNodes) {
  constexpr int kNodes = 32;
  // Nodes that are told it, and encodings for them: of the first generation,
  // of the second, and of the coordinator that comes back.
  const std::map<std::string, std::pair<int64_t, int64_t>> expected = {
      {"prepare", {kNodes, 1}},
      {"join", {kNodes, 0}},
      {"restart", {2 * kNodes, 1}},
      {"return", {kNodes, 1}}};
  for (const auto& [phase, work] : WideGang(kNodes, 1, nullptr).Run()) {
    const auto it = expected.find(phase);
    const auto [specs, encoded] =
        it == expected.end() ? std::pair<int64_t, int64_t>() : it->second;
    EXPECT_EQ(work.specs, specs) << phase;
    EXPECT_EQ(work.encoded_specs, encoded) << phase;
  }
}

TEST(ScaleTest, Times) {
  const char* const shapes = std::getenv("LOCKSTEP_SCALE");
  if (shapes == nullptr) GTEST_SKIP() << "LOCKSTEP_SCALE=64x1,512x1 prints";
  for (const char* at = shapes; *at != '\0';) {
    int nodes = 0, ranks = 0, length = 0;
    ASSERT_EQ(std::sscanf(at, "%dx%d%n", &nodes, &ranks, &length), 2) << at;
    at += length;
    if (*at == ',') ++at;
    char dir[] = "/tmp/lockstep-scale-XXXXXX";
    ASSERT_NE(::mkdtemp(dir), nullptr);
    {
      auto store = OpenSqliteStore(JoinPath(dir, "coordinator.db"));
      ASSERT_TRUE(store.ok()) << Message(store.status());
      Print(fmt::format("{}x{}", nodes, ranks),
            WideGang(nodes, ranks, store->get()).Run());
      if (std::getenv("LOCKSTEP_SCALE_MEMORY") != nullptr) {
        Print(fmt::format("{}x{} mem", nodes, ranks),
              WideGang(nodes, ranks, nullptr).Run());
      }
    }
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir).ok());
  }
}

}  // namespace
}  // namespace lockstep::server
