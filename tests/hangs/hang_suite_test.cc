// Hangs of real programs in PyTorch, TensorFlow, JAX and C++: each is seen
// within its limit, and the rank that the others wait for is named. A wrong
// rank is never named, and what a rank does is on disk by then.
//
// LOCKSTEP_HANGS is the number of hangs; tests/hangs/run N sets it. Needs the
// environments of tests/frameworks/setup, as its tests.
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

// Frameworks take seconds to be imported, by three ranks on two cores.
constexpr Duration kStartTime = std::chrono::seconds(180);
constexpr int kStallSeconds = 3;
// From the limit until the first word, and until the verdict, on a machine
// whose cores are all in use.
constexpr double kSpareSeconds = 2;

// What a stack, a session or the kernel can tell.
enum class Answer {
  // The odd rank, and no other.
  kRank,
  // The odd rank, or that it cannot be known.
  kRankOrUnknown,
  // The odd rank, when asked again at the latest: where the names of a library
  // of 350 MB come from a slow disk, the time may be over before.
  kRankOnceRead,
};

struct Hang {
  const char* framework;
  const char* how;
  int ranks;
  Answer answer;
};

// The first twelve have each framework and each kind of hang.
constexpr Hang kHangs[] = {
    {"cpp", "lock", 4, Answer::kRank},
    {"ddp", "lock", 2, Answer::kRank},
    {"torch", "stop", 3, Answer::kRank},
    {"torch", "loader", 2, Answer::kRank},
    {"torch", "spin", 2, Answer::kRank},
    {"torch", "skip", 2, Answer::kRankOrUnknown},
    {"cpp", "left", 3, Answer::kRank},
    {"joined", "lock", 2, Answer::kRank},
    {"joined", "stop", 2, Answer::kRank},
    {"tensorflow", "stop", 2, Answer::kRank},
    {"jax", "lock", 2, Answer::kRankOnceRead},
    {"cpp", "spin", 2, Answer::kRank},
    // The others by LOCKSTEP_HANGS. A collective that one rank leaves out is an
    // error of the backend "lockstep", which names both calls.
    {"cpp", "stop", 3, Answer::kRank},
    {"cpp", "lock", 2, Answer::kRank},
    {"cpp", "spin", 4, Answer::kRank},
    {"torch", "lock", 3, Answer::kRank},
    {"ddp", "loader", 3, Answer::kRank},
    {"ddp", "spin", 2, Answer::kRank},
    {"torch", "loader", 3, Answer::kRank},
    {"torch", "spin", 3, Answer::kRank},
    {"joined", "loader", 2, Answer::kRank},
    {"joined", "spin", 3, Answer::kRank},
    {"tensorflow", "lock", 2, Answer::kRankOrUnknown},
    {"tensorflow", "loader", 2, Answer::kRankOrUnknown},
    {"tensorflow", "spin", 2, Answer::kRankOrUnknown},
    {"jax", "stop", 2, Answer::kRank},
    {"jax", "loader", 2, Answer::kRankOnceRead},
    {"jax", "spin", 2, Answer::kRankOnceRead},
};

size_t CountOfHangs() {
  const char* const count = getenv("LOCKSTEP_HANGS");
  return count == nullptr ? 12 : std::strtoul(count, nullptr, 10);
}

double SecondsOf(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
}

// Seconds after the hang.
struct Told {
  double stalled = 0;
  double verdict = 0;
  bool named = false;
};

class HangSuite : public ClusterTest {
 protected:
  HangSuite() {
    manual_start_ = true;
    options_.cpus = 4;
  }
  void SetUp() override {
    ClusterTest::SetUp();
    const char* const frameworks = getenv("LOCKSTEP_FRAMEWORKS");
    if (frameworks == nullptr) {
      GTEST_SKIP() << "no frameworks: run tests/frameworks/setup DIR and set "
                      "LOCKSTEP_FRAMEWORKS=DIR";
    }
    frameworks_ = frameworks;
    for (const char* const worker : {"worker-0", "worker-1"}) {
      options_.extra_arguments[worker] = {
          "--py-spy", JoinPath(frameworks_, "client/bin/py-spy")};
    }
    StartCluster();
  }

  v1::JobSpec SpecOf(const Hang& hang, const std::string& name,
                     const std::string& directory, int odd) {
    v1::JobSpec spec;
    if (std::string_view(hang.framework) == "cpp") {
      spec = Shell(
          name, hang.ranks,
          fmt::format("for i in $(seq 20); do echo \"step $i/100\"; "
                      "sleep 0.05; done; exec {} {} {} {}",
                      TestBinary("hang_program"), directory, odd, hang.how));
    } else {
      const bool tensorflow =
          std::string_view(hang.framework) == "tensorflow" ||
          std::string_view(hang.framework) == "jax";
      spec = Program(
          name, hang.ranks,
          {fmt::format("{}/{}/bin/python", frameworks_,
                       tensorflow ? "tensorflow" : "torch"),
           std::string(getenv("LOCKSTEP_SOURCE")) + "/tests/hangs/hangs.py",
           directory, hang.framework, hang.how, std::to_string(odd)});
      auto& environment = *spec.mutable_environment();
      environment["PYTHONPATH"] = Binary("../python");
      environment["PYTHONDONTWRITEBYTECODE"] = "1";
      environment["OMP_NUM_THREADS"] = "1";
      environment["TF_CPP_MIN_LOG_LEVEL"] = "2";
      environment["JAX_PLATFORMS"] = "cpu";
    }
    for (v1::RoleSpec& role : *spec.mutable_roles()) {
      role.mutable_resources()->set_cpus(1);
    }
    spec.mutable_stall_after()->set_seconds(kStallSeconds);
    return spec;
  }

  // When rank `odd` said that it hangs; nullopt if it did not.
  std::optional<double> AwaitHang(const std::string& name,
                                  const std::string& directory, int odd,
                                  bool stop) {
    const std::string ready = fmt::format("{}/ready-{}", directory, odd);
    struct stat status {};
    if (!Eventually([&] { return stat(ready.c_str(), &status) == 0; },
                    kStartTime)) {
      return std::nullopt;
    }
    if (!stop) {
      return static_cast<double>(status.st_mtim.tv_sec) +
             static_cast<double>(status.st_mtim.tv_nsec) * 1e-9;
    }
    EXPECT_EQ(kill(static_cast<pid_t>(PidOf(Get(name), odd)), SIGSTOP), 0);
    return ToSeconds(SystemClock().Now().wall.time_since_epoch());
  }

  // The events of the stall and of the verdict about it.
  static std::vector<const v1::Event*> Notices(const v1::Job& job) {
    std::vector<const v1::Event*> found;
    for (const v1::Event& event : job.events()) {
      if (event.reason() == v1::REASON_NO_PROGRESS) found.push_back(&event);
    }
    return found;
  }

  std::optional<Told> Judge(const Hang& hang, int number) {
    const std::string name = fmt::format("hang-{}", number);
    const std::string directory = Path(name);
    EXPECT_TRUE(RealFileSystem()->MakeDirs(directory, 0755).ok());
    const int odd = number % hang.ranks;
    SCOPED_TRACE(fmt::format("{}: {} {}, rank {} of {}", name, hang.framework,
                             hang.how, odd, hang.ranks));
    Submit(SpecOf(hang, name, directory, odd));
    const auto hung =
        AwaitHang(name, directory, odd, std::string_view(hang.how) == "stop");
    EXPECT_TRUE(hung.has_value()) << "the rank never came so far";
    if (!hung) return std::nullopt;
    const v1::Job job = WaitUntil(name, "the verdict", [](const v1::Job& seen) {
      return Notices(seen).size() >= 2;
    });
    const auto notices = Notices(job);
    if (notices.size() < 2) return std::nullopt;
    Told told{SecondsOf(notices[0]->time()) - *hung,
              SecondsOf(notices[1]->time()) - *hung, false};
    // The evidence was on disk before: the verdict is read from there.
    auto evidence = client()->CollectEvidence(name, {});
    EXPECT_TRUE(evidence.ok()) << evidence.status();
    if (evidence.ok()) CheckVerdict(hang, odd, *notices[1], *evidence, &told);
    if (hang.answer == Answer::kRankOnceRead) {
      EXPECT_TRUE(Eventually([&] {
        evidence = client()->CollectEvidence(name, {});
        return evidence.ok() && evidence->cause_ranks_size() == 1 &&
               evidence->cause_ranks(0) == odd;
      })) << (evidence.ok() ? evidence->verdict()
                            : std::string(Message(evidence.status())));
    }
    std::cout << fmt::format(
        "{:>3} {:<10} {:<6} rank {} of {}: stalled after {:.2f} s, verdict "
        "after {:.2f} s: {}\n",
        number, hang.framework, hang.how, odd, hang.ranks, told.stalled,
        told.verdict, notices[1]->message());
    EXPECT_TRUE(client()->CancelJob(name).ok());
    WaitEnd(name, v1::JOB_STATE_CANCELLED);
    return told;
  }

  static void CheckVerdict(const Hang& hang, int odd, const v1::Event& verdict,
                           const v1::JobEvidence& now, Told* told) {
    const std::vector<int> cause(now.cause_ranks().begin(),
                                 now.cause_ranks().end());
    const std::string rank = fmt::format("rank {} ", odd);
    told->named = verdict.message().starts_with(rank);
    const bool unknown =
        verdict.message().find("cannot be known") != std::string::npos;
    EXPECT_TRUE(told->named || (unknown && hang.answer != Answer::kRank))
        << verdict.message();
    EXPECT_TRUE(cause.empty() || cause == std::vector<int>{odd})
        << "a wrong name: " << now.verdict();
  }

  std::string frameworks_;
};

double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share *
                                    static_cast<double>(values.size() - 1))];
}

TEST_F(HangSuite, TheRankIsNamedWithinItsLimit) {
  ASSERT_GT(CountOfHangs(), 0u) << "LOCKSTEP_HANGS is no number above 0";
  std::vector<double> stalled;
  std::vector<double> verdicts;
  size_t tellable = 0;
  size_t named = 0;
  for (size_t i = 0; i < CountOfHangs(); ++i) {
    const Hang& hang = kHangs[i % std::size(kHangs)];
    // Another rank is the odd one in each round.
    const auto told = Judge(hang, static_cast<int>(i + i / std::size(kHangs)));
    if (!told) continue;
    stalled.push_back(told->stalled);
    verdicts.push_back(told->verdict);
    if (hang.answer == Answer::kRank) {
      ++tellable;
      named += told->named ? 1 : 0;
    }
  }
  ASSERT_EQ(stalled.size(), CountOfHangs());
  std::cout << fmt::format(
      "{} hangs, limit {} s: stalled after {:.2f} s (p50), {:.2f} s (p99); "
      "verdict after {:.2f} s (p50), {:.2f} s (p99); {} of {} named where it "
      "can be told\n",
      stalled.size(), kStallSeconds, Quantile(stalled, 0.5),
      Quantile(stalled, 0.99), Quantile(verdicts, 0.5),
      Quantile(verdicts, 0.99), named, tellable);
  EXPECT_LE(Quantile(verdicts, 0.99), kStallSeconds + kSpareSeconds);
}

// Processes that use half of every core.
class StolenCpu {
 public:
  explicit StolenCpu(unsigned cores) {
    for (unsigned i = 0; i < cores; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        // Whatever ends the test.
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile uint64_t turns = 0;;) turns = turns + 1;
      }
      if (child > 0) children_.push_back(child);
    }
  }
  ~StolenCpu() {
    for (const pid_t child : children_) {
      (void)kill(child, SIGKILL);
      (void)waitpid(child, nullptr, 0);
    }
  }
  StolenCpu(const StolenCpu&) = delete;
  StolenCpu& operator=(const StolenCpu&) = delete;

 private:
  std::vector<pid_t> children_;
};

// Jobs that go on, with the limits that jobs have without a flag, on cores of
// which others take half. tests/hangs/run --quiet sets the minutes.
TEST_F(HangSuite, SlowProgramsAreNotCalledHung) {
  const char* const text = getenv("LOCKSTEP_QUIET_MINUTES");
  if (text == nullptr) {
    GTEST_SKIP() << "takes minutes: tests/hangs/run --quiet MINUTES";
  }
  const MonoTime end =
      MonotonicNow() + std::chrono::minutes(std::strtol(text, nullptr, 10));
  const StolenCpu stolen(2);
  // "none" is a kind of hang that never begins.
  std::vector<std::string> names;
  for (const char* const framework : {"torch", "joined", "tensorflow", "jax"}) {
    names.emplace_back(framework);
    v1::JobSpec spec =
        SpecOf({framework, "none", 2, Answer::kRank}, framework, root(), -1);
    spec.clear_stall_after();
    // All of them run at the same time.
    for (v1::RoleSpec& role : *spec.mutable_roles()) {
      role.mutable_resources()->set_cpus(0.5);
    }
    Submit(spec);
  }
  while (MonotonicNow() < end && !HasFailure()) {
    for (const std::string& name : names) {
      const v1::Job job = Get(name);
      EXPECT_TRUE(Notices(job).empty()) << Notices(job)[0]->message();
      EXPECT_LT(job.state(), v1::JOB_STATE_FINISHING) << job.cause().message();
    }
    (void)Eventually([&] { return MonotonicNow() >= end; },
                     std::chrono::seconds(5));
  }
  for (const std::string& name : names) {
    EXPECT_TRUE(client()->CancelJob(name).ok());
    WaitEnd(name, v1::JOB_STATE_CANCELLED);
    const std::vector<std::string> lines = Output(name, 0);
    ASSERT_FALSE(lines.empty()) << name << " did nothing";
    std::cout << name << ": " << lines.back() << "\n";
  }
}

}  // namespace
}  // namespace lockstep
