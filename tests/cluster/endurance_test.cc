// The same faults again and again, at moments that a seed draws: what is
// acknowledged stays, what runs goes on, and nothing piles up.
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "common/base/host_port.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/os/procfs.h"
#include "tests/cluster/fixture.h"

namespace lockstep::cli {
namespace {

using std::chrono::seconds;

class EnduranceTest : public ClusterTest {
 protected:
  EnduranceTest() {
    // Room for a job beside the one that steps.
    options_.cpus = 4;
    const uint64_t seed = std::random_device()();
    random_.seed(seed);
    RecordProperty("seed", static_cast<int64_t>(seed));
    fmt::print("seed {}\n", seed);
  }

  int Draw(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }

  // Its tasks on two nodes, with half a core left beside each of them.
  static v1::JobSpec Apart(v1::JobSpec spec) {
    for (v1::RoleSpec& role : *spec.mutable_roles()) {
      role.mutable_resources()->set_cpus(1.5);
    }
    return spec;
  }

  // Steps of some 5 ms each until `go` is there.
  v1::Job StartSteps(const std::string& name, int steps) {
    steps_ = steps;
    Submit(Apart(Steps(
        name, 2,
        {"--steps", std::to_string(steps), "--step_ms", "5", "--hold_step",
         std::to_string(steps - 1), "--hold_file", Path("go")})));
    return WaitUntil(name, "step 10", [](const v1::Job& job) {
      return job.progress().chief().committed_step() >= 10;
    });
  }

  void ExpectSteps(const v1::Job& job, int64_t more) {
    const int64_t before = CommittedOnPage(job, 0);
    const int64_t wanted = std::min<int64_t>(before + more, steps_ - 2);
    EXPECT_GE(before, 0);
    EXPECT_TRUE(Eventually([&] { return CommittedOnPage(job, 0) >= wanted; }))
        << "no steps since " << before;
  }

  // It ends as the generation it was, its processes the same.
  void ExpectUndisturbed(const v1::Job& before) {
    WriteFile(Path("go"), "");
    const v1::Job job = WaitEnd(before.name(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(job.generation(), before.generation());
    EXPECT_EQ(job.restarts(), 0);
    ASSERT_EQ(job.attempts_size(), 1);
    for (int rank = 0; rank < 2; ++rank) {
      const v1::RankStatus& ended = job.attempts(0).tasks(rank).ranks(0);
      EXPECT_EQ(ended.pid(), PidOf(before, rank));
      EXPECT_EQ(ended.exit().code(), 0) << ended.exit().DebugString();
    }
  }

  // A daemon's open descriptors and memory.
  struct Size {
    int64_t descriptors = 0;
    int64_t bytes = 0;
  };
  Size SizeOf(const std::string& daemon) {
    const pid_t pid = cluster()->Pid(daemon);
    Size size;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(
             fmt::format("/proc/{}/fd", pid), error)) {
      (void)entry;
      ++size.descriptors;
    }
    const auto stat = ReadProcessStat(pid);
    EXPECT_TRUE(stat.ok()) << stat.status();
    if (stat.ok()) size.bytes = static_cast<int64_t>(stat->resident_bytes);
    return size;
  }

  int steps_ = 0;
  std::mt19937_64 random_;
};

TEST_F(EnduranceTest, AWorkerDaemonKilledTenTimesCostsNoRank) {
  const v1::Job job = StartSteps("steady", 1000);
  for (int round = 0; round < 10; ++round) {
    ExpectSteps(job, Draw(1, 20));
    KillDaemon("worker-1");
    ExpectSteps(job, Draw(1, 20));
    StartDaemon("worker-1");
    EXPECT_EQ(Get("steady").state(), v1::JOB_STATE_RUNNING);
  }
  ExpectUndisturbed(job);
}

TEST_F(EnduranceTest, AWorkerDaemonKilledWhileItLaunchesStartsNobodyTwice) {
  for (int round = 0; round < 10; ++round) {
    const std::string name = "launch" + std::to_string(round);
    // Two live copies of a rank would not both get the lock, and 2 is final.
    // The chief waits for the other: its success alone would end the job.
    Submit(Apart(Shell(
        name, 2,
        fmt::format("cd {}; exec 9>>{}-$RANK; flock -n 9 || exit 2; "
                    "sleep 0.05; echo ran >> {}-$RANK.ran; [ $RANK = 1 ] || "
                    "while [ ! -e {}-1.ran ]; do sleep 0.02; done",
                    root(), name, name, name))));
    const int looks = Draw(0, 12);
    for (int i = 0; i < looks; ++i) Get(name);
    KillDaemon("worker-1");
    StartDaemon("worker-1");
    const v1::Job job = WaitEnd(name, v1::JOB_STATE_SUCCEEDED);
    for (int rank = 0; rank < 2; ++rank) {
      const std::string path = fmt::format("{}/{}-{}.ran", root(), name, rank);
      const auto ran = RealFileSystem()->Read(path);
      ASSERT_TRUE(ran.ok()) << ran.status();
      EXPECT_LE(ran->size(), 4u * job.attempts_size()) << job.DebugString();
    }
  }
}

TEST_F(EnduranceTest, ACoordinatorKilledFiveTimesIsNotMissed) {
  const v1::Job job = StartSteps("unaware", 3000);
  for (int round = 0; round < 5; ++round) {
    KillDaemon("coordinator");
    // The last time for more than three leases of 3 s.
    const MonoTime away_until =
        MonotonicNow() + (round == 4 ? seconds(10) : seconds(0));
    ExpectSteps(job, Draw(5, 40));
    while (MonotonicNow() < away_until) ExpectSteps(job, 20);
    ASSERT_TRUE(cluster()->StartDaemon("coordinator").ok());
    // Nobody is lost before the workers had the time to come back.
    EXPECT_TRUE(Eventually([&] {
      const auto nodes = client()->ListNodes();
      if (!nodes.ok() || nodes->size() != 2) return false;
      int ready = 0;
      for (const v1::Node& node : *nodes) {
        EXPECT_NE(node.state(), v1::NODE_STATE_LOST) << node.DebugString();
        ready += node.state() == v1::NODE_STATE_READY;
      }
      return ready == 2;
    }));
    const v1::Job now = Get("unaware");
    EXPECT_EQ(now.state(), v1::JOB_STATE_RUNNING) << now.cause().message();
    EXPECT_EQ(now.generation(), 1u);
  }
  ExpectUndisturbed(job);
}

TEST_F(EnduranceTest, WhatIsAcknowledgedIsThereAfterEveryCrashOfTheStore) {
  constexpr int kClients = 4;
  constexpr int kCrashes = 6;
  struct Promise {
    v1::JobSpec spec;
    SubmitOptions options;
    std::string uid;
  };
  Mutex mu;
  std::vector<Promise> promises;
  // Submit, one job after another, until it was enough.
  std::atomic<bool> enough{false};
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      auto mine = Client::Connect(cluster()->client_options());
      if (!mine.ok()) return;
      for (int i = 0; !enough; ++i) {
        Promise promise;
        promise.spec = Shell(fmt::format("c{}-{}", c, i), 1, "true");
        promise.options.request_id = RandomUuid();
        while (!enough) {
          const auto answer = (*mine)->SubmitJob(promise.spec, promise.options);
          if (answer.ok()) {
            promise.uid = answer->job().uid();
            MutexLock lock(&mu);
            promises.push_back(promise);
            break;
          }
          // Its first answer may have been lost on the way: only these.
          const StatusCode code = answer.status().code();
          EXPECT_TRUE(code == StatusCode::kUnavailable ||
                      code == StatusCode::kDeadlineExceeded)
              << answer.status();
        }
      }
    });
  }
  StopDaemon("coordinator");
  for (int crash = 0; crash < kCrashes && !HasFailure(); ++crash) {
    const std::string fault =
        fmt::format("store.{}_commit=crash@{}", Draw(0, 1) ? "before" : "after",
                    Draw(1, 12));
    cluster()->set_extra_arguments(
        {{"coordinator", {"--allow-faults", fault}}});
    const Status started = cluster()->StartDaemon("coordinator");
    EXPECT_TRUE(started.ok()) << started;
    EXPECT_TRUE(Eventually([&] { return FaultStruck("coordinator"); }))
        << "no crash with " << fault;
  }
  cluster()->set_extra_arguments({});
  StartAll();
  EXPECT_TRUE(Eventually([&] {
    MutexLock lock(&mu);
    return promises.size() >= 2 * kClients;
  }));
  enough = true;
  for (std::thread& thread : clients) thread.join();
  for (const Promise& promise : promises) {
    const auto again = client()->SubmitJob(promise.spec, promise.options);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->job().uid(), promise.uid);
    const v1::Job job = WaitEnd(promise.spec.name(), v1::JOB_STATE_SUCCEEDED);
    EXPECT_EQ(job.uid(), promise.uid);
  }
  // Of each client at most the one whose answer it did not wait for.
  const auto all = client()->ListJobs();
  ASSERT_TRUE(all.ok());
  EXPECT_GE(all->size(), promises.size());
  EXPECT_LE(all->size(), promises.size() + kClients);
}

TEST_F(EnduranceTest, FiftyRoundsOfSubmitAndCancelLeaveNothing) {
  std::map<std::string, Size> before;
  for (int round = 0; round < 55; ++round) {
    const std::string name = "round" + std::to_string(round);
    if (round == 5) {  // Pools and caches are there now.
      for (const char* daemon : {"coordinator", "worker-0", "worker-1"}) {
        before[daemon] = SizeOf(daemon);
      }
    }
    // At any phase: while it prepares, launches, forms or steps.
    Submit(
        Apart(round % 2 == 0
                  ? Shell(name, 2, "sleep 100 & sleep 100")
                  : Steps(name, 2, {"--steps", "100000", "--step_ms", "1"})));
    const int looks = Draw(0, 40);
    for (int i = 0; i < looks; ++i) Get(name);
    ASSERT_TRUE(client()->CancelJob(name).ok());
    WaitEnd(name, v1::JOB_STATE_CANCELLED);
  }
  for (const auto& [daemon, first] : before) {
    // Connections of clients come and go.
    Size now;
    EXPECT_TRUE(Eventually([&] {
      now = SizeOf(daemon);
      return now.descriptors <= first.descriptors + 3;
    })) << daemon
        << ": " << first.descriptors << " descriptors, then "
        << now.descriptors;
    EXPECT_LE(now.bytes, first.bytes + (int64_t{16} << 20)) << daemon;
  }
  // The fixture looks for processes, sockets and files.
}

TEST_F(EnduranceTest, AGigabyteOfOutputHarmsNobody) {
  const v1::Job job = StartSteps("beside", 3000);
  v1::JobSpec noise = Shell("loud", 1,
                            "yes 0123456789012345678901234567890123456789 | "
                            "head -c 1000000000; echo; echo the end");
  noise.mutable_roles(0)->mutable_resources()->set_cpus(0.5);
  Submit(noise);
  int64_t most = 0;
  v1::Job loud;
  EXPECT_TRUE(Eventually(
      [&] {
        loud = Get("loud");
        const auto nodes = client()->ListNodes();
        EXPECT_TRUE(nodes.ok()) << nodes.status();
        for (const v1::Node& node : *nodes) {
          EXPECT_EQ(node.state(), v1::NODE_STATE_READY) << node.DebugString();
        }
        for (const char* daemon : {"coordinator", "worker-0", "worker-1"}) {
          most = std::max(most, SizeOf(daemon).bytes);
        }
        return IsFinalState(loud.state());
      },
      std::chrono::seconds(240)));
  EXPECT_EQ(loud.state(), v1::JOB_STATE_SUCCEEDED) << loud.DebugString();
  EXPECT_LT(most, int64_t{400} << 20);
  // The last line is there, whatever was left out in the middle is said.
  LogOptions tail;
  tail.name = "loud";
  tail.tail = 1;
  std::vector<std::string> lines;
  ASSERT_TRUE(client()
                  ->StreamLogs(
                      tail,
                      [&](const v1::LogLine& line) {
                        lines.push_back(line.text());
                        return true;
                      },
                      nullptr)
                  .ok());
  EXPECT_THAT(lines, testing::ElementsAre("the end"));
  ExpectUndisturbed(job);
}

TEST_F(EnduranceTest, SigtermEndsTheCoordinatorWhateverIsConnected) {
  const v1::Job job = StartSteps("left", 1000);
  // Somebody who watches, somebody who follows, and two who say nothing.
  StopToken stop_watch;  // A token is for one call at a time.
  StopToken stop_follow;
  WatchOptions watch;
  watch.patience = seconds(60);
  std::atomic<bool> watching{false};
  std::thread watcher([&] {
    (void)client()->WatchJobs(
        watch,
        [&](const v1::WatchJobsResponse&) {
          watching = true;
          return true;
        },
        &stop_watch);
  });
  LogOptions follow;
  follow.name = "left";
  follow.follow = true;
  std::thread follower([&] {
    (void)client()->StreamLogs(
        follow, [](const v1::LogLine&) { return true; }, &stop_follow);
  });
  std::vector<Fd> silent;
  const auto http = cluster()->http_address("coordinator");
  ASSERT_TRUE(http.ok());
  for (const std::string& address : {cluster()->grpc_address(), *http}) {
    const auto at = ParseHostPort(address);
    ASSERT_TRUE(at.ok()) << at.status();
    sockaddr_in target{};
    target.sin_family = AF_INET;
    target.sin_port = htons(static_cast<uint16_t>(at->port));
    target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(
        connect(fd.get(), reinterpret_cast<sockaddr*>(&target), sizeof(target)),
        0);
    ASSERT_EQ(write(fd.get(), "G", 1), 1);
    silent.push_back(std::move(fd));
  }
  EXPECT_TRUE(Eventually([&] { return watching.load(); }));
  ASSERT_TRUE(cluster()->Kill("coordinator", SIGTERM).ok());
  const auto ended = cluster()->WaitEnded("coordinator", seconds(10));
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_TRUE(ended->ok()) << ended->Describe();
  StartDaemon("coordinator");
  stop_watch.Stop();
  stop_follow.Stop();
  watcher.join();
  follower.join();
  ExpectUndisturbed(job);
}

}  // namespace
}  // namespace lockstep::cli
