// Warm starts with a real interpreter: the shim, its daemon's side, and
// worker/warm/warm_start.py.
#include "worker/shim/warm.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>

#include "worker/agent/warm/warm_spec.h"
#include "worker/shim/shim_fixture.h"
#include "worker/shim/warm_client.h"

namespace lockstep::worker::shim {
namespace {

using std::chrono_literals::operator""s;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class WarmTest : public ShimTest {
 protected:
  // A rank that runs this Python program.
  task::ShimSpec Python(const std::string& program) {
    std::ofstream(Path("train.py")) << program;
    task::ShimSpec spec = Spec("");
    spec.argv = {"python3", Path("train.py"), "--lr", "1"};
    spec.env.push_back("RANK=1");
    return spec;
  }
  WarmShim StartWarm(task::ShimSpec spec) {
    EXPECT_TRUE(agent::MakeWarm(&spec));
    auto warm = StartWarmShim(program_, spec);
    EXPECT_TRUE(warm.ok()) << warm.status();
    return *std::move(warm);
  }
  static std::string Words(const WarmShim& warm) {
    std::string words;
    EXPECT_TRUE(Eventually([&] {
      const auto taken = TakeWords(warm);
      if (taken.ok() && *taken) words = **taken;
      return !taken.ok() || !words.empty();
    }));
    return words;
  }
  // Hands `rank` over. Its shim is then the last one of shims_.
  void Become(WarmShim warm, const task::ShimSpec& rank) {
    const Status handed = HandOver(warm, rank, Path("shim.err"), {});
    ASSERT_TRUE(handed.ok()) << handed;
    shims_.push_back(std::move(warm.shim));
  }
  task::ExitRecord Ended(const task::ShimSpec& rank) {
    EXPECT_EQ(ShimCode(shims_.size() - 1), 0);
    const auto record = ReadExitRecord(rank.exit_record_path);
    EXPECT_TRUE(record.ok()) << record.status();
    return record.value_or(task::ExitRecord());
  }
};

TEST_F(WarmTest, TheInterpreterBecomesTheRankThatItIsGiven) {
  task::ShimSpec spec = Python(
      "import json, os, sys\n"
      "print(os.environ['RANK'], os.getcwd(), sys.argv[1:], __name__)\n"
      "sys.exit(7)\n");
  WarmShim warm = StartWarm(spec);
  EXPECT_THAT(Words(warm), HasSubstr("json"));
  EXPECT_FALSE(ReadTaskRecord(spec.task_record_path).ok()) << "it is no rank";
  spec.env.back() = "RANK=5";
  spec.cwd = "/";
  Become(std::move(warm), spec);
  const task::ExitRecord record = Ended(spec);
  EXPECT_EQ(record.kind, task::ExitKind::kExited);
  EXPECT_EQ(ExitCode(record), 7);
  EXPECT_THAT(Texts(), Contains("5 / ['--lr', '1'] __main__"));
}

TEST_F(WarmTest, ItIsKilledWithItsTreeLikeAnyRank) {
  const task::ShimSpec spec = Python(
      "import subprocess, time\n"
      "child = subprocess.Popen(['sleep', '1000'])\n"
      "print('child', child.pid, flush=True)\n"
      "time.sleep(1000)\n");
  WarmShim warm = StartWarm(spec);
  Words(warm);
  Become(std::move(warm), spec);
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(Eventually([&] { return !Texts().empty(); }));
  ASSERT_TRUE(client->KillTree(Duration(0), In(5s)).ok());
  const auto ended =
      WaitForPhase(client.get(), task::ShimReply::Phase::kExited, In(10s));
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->exit_record.kind, task::ExitKind::kSignaled);
  EXPECT_EQ(ended->exit_record.tree_killed, 1u);
}

TEST_F(WarmTest, WithoutADaemonItEnds) {
  WarmShim warm = StartWarm(Python("import time\n"));
  Words(warm);
  warm.control.Reset();
  const auto exit = WaitExit(warm.shim, In(10s));
  ASSERT_TRUE(exit.ok()) << exit.status();
}

TEST_F(WarmTest, ASignalDoesNotEndIt) {
  WarmShim warm = StartWarm(Python("import time\n"));
  Words(warm);
  ASSERT_TRUE(SendSignal(warm.shim, SIGTERM).ok());
  const task::ShimSpec spec = Python("import time\nprint('here')\n");
  Become(std::move(warm), spec);
  EXPECT_EQ(ExitCode(Ended(spec)), 0);
  EXPECT_THAT(Texts(), ElementsAre("here"));
}

TEST_F(WarmTest, OneWhoseInterpreterHasEndedSaysSo) {
  task::ShimSpec spec = Python("import time\n");
  spec.argv[0] = "/nonexistent/python3";
  WarmShim warm = StartWarm(spec);
  EXPECT_TRUE(Eventually([&] { return !TakeWords(warm).ok(); }));
  ASSERT_TRUE(WaitExit(warm.shim, In(10s)).ok());
  EXPECT_FALSE(HandOver(warm, spec, Path("shim.err"), {}).ok());
}

}  // namespace
}  // namespace lockstep::worker::shim
