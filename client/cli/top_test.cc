// `lockstep top`: what it shows, and that it leaves the terminal as it was.
#include "client/cli/top.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "client/cli/terminal.h"
#include "client/cli/top_test_util.h"
#include "client/lib/fake_coordinator.h"
#include "common/base/fd.h"

namespace lockstep::cli {
namespace {

using std::chrono_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PhaseBarTest, IsAsWideAsItShouldBe) {
  v1::PhaseSeconds p;
  EXPECT_EQ(PhaseBar(p, 5), "     ");
  p.set_compute(6);
  p.set_allreduce(3);
  p.set_straggler_wait(1);
  EXPECT_EQ(PhaseBar(p, 10), "ccccccrrrw");
  for (int width = 1; width < 60; ++width) {
    EXPECT_EQ(PhaseBar(p, width).size(), static_cast<size_t>(width));
  }
}

TEST(GaugeTest, IsClamped) {
  EXPECT_EQ(Gauge(0.5, 4), "[##  ]");
  EXPECT_EQ(Gauge(7, 4), "[####]");
  EXPECT_EQ(Gauge(-1, 4), "[    ]");
  EXPECT_EQ(Gauge(std::nan(""), 4), "[    ]");
}

TEST(ClipTest, KeepsEscapesAndCharactersWhole) {
  EXPECT_EQ(Clip("abc", 5), "abc");
  EXPECT_EQ(Clip("abcdef", 3), "abc");
  EXPECT_EQ(Clip("\x1b[31mabcdef\x1b[0m", 3), "\x1b[31mabc\x1b[0m");
  EXPECT_EQ(Clip("\xc3\xa4\xc3\xb6\xc3\xbc", 2), "\xc3\xa4\xc3\xb6");
  EXPECT_EQ(Clip("abc\x1b[", 9), "abc\x1b[");
}

TEST(TopTest, JobsWithTheirPhases) {
  const TopState state = StateOf({Training("fashion", 9, 1)}, {Host("a")});
  TopView view;
  view.address = "c:7443";
  const auto lines = RenderTop(state, &view, 120, 10, kTopNow, Style{});
  ASSERT_EQ(lines.size(), 10u);
  const std::string text = JoinedLines(lines);
  EXPECT_THAT(lines[0], HasSubstr("c:7443"));
  EXPECT_THAT(lines[0], HasSubstr("jobs: 1 running  nodes: 1 ready"));
  EXPECT_THAT(lines[1], HasSubstr("CPU 2/4 taken, 50 % busy"));
  EXPECT_THAT(lines[1], HasSubstr("GPU 1/1 taken, 87 % busy, 65 W"));
  EXPECT_THAT(text,
              HasSubstr("fashion  ann    RUNNING  2      100s  500/1,000"));
  EXPECT_THAT(text, HasSubstr("1,234      0.25"));
  EXPECT_THAT(text, testing::ContainsRegex("c{9,}w"));
  EXPECT_THAT(lines.back(), HasSubstr("q quit  n nodes"));
}

TEST(TopTest, AProblemOfARunningJobIsBesideItsPhases) {
  v1::Job job = Training("fashion", 9, 1);
  job.mutable_cause()->set_reason(v1::REASON_RUNNING);
  job.mutable_cause()->set_message("3 of 4 ranks train; rank 1 is away");
  TopView view;
  const std::string text = JoinedLines(
      RenderTop(StateOf({job}, {}), &view, 160, 10, kTopNow, Style{}));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "c{9,}w.*  3 of 4 ranks train; rank 1 is away"));
}

TEST(TopTest, TimeIsThatInWhichItRan) {
  v1::Job again = Training("again", 9, 1);
  v1::PhaseDuration* const ran = again.add_phases();
  ran->set_phase("running");
  ran->mutable_duration()->set_seconds(11);
  v1::Job never = Training("never", 0, 0);
  never.clear_start_time();
  never.set_state(v1::JOB_STATE_CANCELLED);
  v1::Job waits = never;
  waits.set_name("waits");
  waits.set_state(v1::JOB_STATE_QUEUED);
  TopView view;
  const std::string text = JoinedLines(RenderTop(
      StateOf({again, never, waits}, {}), &view, 120, 10, kTopNow, Style{}));
  EXPECT_THAT(text, testing::ContainsRegex("again +ann +RUNNING +2 +111s "));
  EXPECT_THAT(text, testing::ContainsRegex("never +ann +CANCELLED +2 +- "));
  EXPECT_THAT(text, testing::ContainsRegex("waits +ann +QUEUED +2 +100s "));
}

TEST(TopTest, PhasesAreThoseSinceTheLastSample) {
  TopState state = StateOf({Training("a", 100, 0)}, {});
  EXPECT_EQ(PhaseBar(state.PhasesOf(state.sample().jobs[0]), 4), "cccc");
  state.Take({kTopNow, {Training("a", 100, 5)}, {}});
  EXPECT_EQ(PhaseBar(state.PhasesOf(state.sample().jobs[0]), 4), "wwww");
  // The same page again says nothing new.
  state.Take({kTopNow, {Training("a", 100, 5)}, {}});
  EXPECT_EQ(PhaseBar(state.PhasesOf(state.sample().jobs[0]), 4), "wwww");
  // A new generation begins to count at 0.
  v1::Job next = Training("a", 1, 0);
  next.mutable_progress()->set_generation(2);
  state.Take({kTopNow, {next}, {}});
  EXPECT_EQ(PhaseBar(state.PhasesOf(next), 4), "cccc");
}

TEST(TopTest, NodesWithTheirGpus) {
  const TopState state = StateOf({}, {Host("b"), Host("a")});
  TopView view;
  view.screen = TopScreen::kNodes;
  const auto lines = RenderTop(state, &view, 120, 12, kTopNow, Style{});
  EXPECT_THAT(lines[4], HasSubstr("a "));
  EXPECT_THAT(lines[4], HasSubstr("[####    ]  50 %"));
  EXPECT_THAT(lines[4], HasSubstr("6 GiB free"));
  EXPECT_THAT(lines[5], HasSubstr("gpu 0  Tesla T4"));
  EXPECT_THAT(lines[5], HasSubstr("87 %"));
  EXPECT_THAT(lines[5], HasSubstr("4 GiB/16 GiB"));
  EXPECT_THAT(lines[5], HasSubstr("fashion, memory access 45 %, 65 W"));
  EXPECT_THAT(lines[6], HasSubstr("b "));
  view.reverse = true;
  EXPECT_THAT(RenderTop(state, &view, 120, 12, kTopNow, Style{})[4],
              HasSubstr("b "));
}

TEST(TopTest, EachGpuHasItsOwnJob) {
  v1::Node node = Host("a");
  v1::Gpu* const second = node.add_gpus();
  second->set_index(1);
  second->set_job("other");
  v1::Gpu* const third = node.add_gpus();
  third->set_index(2);
  const TopState state = StateOf({}, {node});
  TopView view;
  view.screen = TopScreen::kNodes;
  const auto lines = RenderTop(state, &view, 120, 12, kTopNow, Style{});
  EXPECT_THAT(lines[5], HasSubstr("fashion"));
  EXPECT_THAT(lines[6], HasSubstr("other"));
  EXPECT_THAT(lines[7],
              ::testing::AllOf(HasSubstr("gpu 2"), Not(HasSubstr("fashion"))));
}

TEST(TopTest, AFaultyGpuIsRed) {
  v1::Node node = Host("a");
  node.mutable_gpus(0)->set_fault("Xid 79 at 12:00");
  const TopState state = StateOf({}, {node});
  TopView view;
  view.screen = TopScreen::kNodes;
  const Style colored{true};
  EXPECT_THAT(JoinedLines(RenderTop(state, &view, 120, 12, kTopNow, colored)),
              HasSubstr(colored.Red("Xid 79 at 12:00")));
}

TEST(TopTest, NoLineIsTooWideAndNoScreenTooHigh) {
  std::vector<v1::Job> jobs;
  for (int i = 0; i < 50; ++i) {
    jobs.push_back(Training("job-" + std::to_string(i), 1, 1));
  }
  const TopState state = StateOf(jobs, {Host("a")});
  for (const int width : {1, 10, 40, 79, 200}) {
    for (const int height : {0, 1, 3, 5, 24}) {
      TopView view;
      const auto lines =
          RenderTop(state, &view, width, height, kTopNow, Style{true});
      EXPECT_LE(lines.size(), static_cast<size_t>(height));
      for (const std::string& line : lines) {
        EXPECT_LE(VisibleWidth(line), static_cast<size_t>(width)) << line;
      }
    }
  }
}

TEST(TopTest, ScrollsWithinTheTable) {
  std::vector<v1::Job> jobs;
  for (int i = 0; i < 30; ++i) {
    jobs.push_back(Training("job-" + std::to_string(10 + i), 1, 1));
  }
  const TopState state = StateOf(jobs, {});
  TopView view;
  view.sort = 1;
  view.scroll = 1000;
  view.selected = 29;
  const auto lines = RenderTop(state, &view, 200, 15, kTopNow, Style{});
  EXPECT_EQ(view.scroll, 20);
  EXPECT_THAT(lines[13], HasSubstr("job-39"));
  EXPECT_THAT(lines[14], HasSubstr("(20 above, 0 below)"));
  view.scroll = -5;
  view.selected = 0;
  EXPECT_THAT(RenderTop(state, &view, 200, 15, kTopNow, Style{})[4],
              HasSubstr("job-10"));
  EXPECT_EQ(view.scroll, 0);
}

TEST(TopTest, AtEightyColumnsTheBarAndTheStateAreThere) {
  v1::Job job = Training("a-name-of-a-usual-length", 9, 1);
  job.mutable_progress()->mutable_eta()->set_seconds(3600);
  const TopState state = StateOf({job}, {});
  TopView view;
  const auto lines = RenderTop(state, &view, 80, 10, kTopNow, Style{});
  EXPECT_THAT(lines[4],
              testing::ContainsRegex(
                  "a-usual-length  ann    RUNNING .*500/1,000.*c{8,}w"));
  EXPECT_THAT(lines[3], Not(HasSubstr("SAVED")));
  EXPECT_THAT(RenderTop(state, &view, 200, 10, kTopNow, Style{})[3],
              HasSubstr("SAVED"));
}

TEST(TopTest, EndedJobsAreDim) {
  v1::Job job = Training("old", 1, 1);
  job.set_state(v1::JOB_STATE_SUCCEEDED);
  const TopState state = StateOf({job, Training("new", 1, 1)}, {});
  TopView view;
  const Style colored{true};
  const std::string text =
      JoinedLines(RenderTop(state, &view, 120, 10, kTopNow, colored));
  EXPECT_THAT(text, HasSubstr(colored.Dim("old")));
  EXPECT_THAT(text, Not(HasSubstr(colored.Dim("new"))));
}

TEST(TopTest, SaysThatWhatItShowsIsOld) {
  TopState state;
  TopView view;
  EXPECT_THAT(JoinedLines(RenderTop(state, &view, 80, 5, kTopNow, Style{})),
              HasSubstr("contacting the coordinator"));
  state.Take({kTopNow, {Training("a", 1, 1)}, {}});
  state.Fail("cannot reach it\x1b[2J");
  EXPECT_THAT(
      JoinedLines(RenderTop(state, &view, 80, 9, kTopNow + 12s, Style{})),
      HasSubstr("as of 12s ago: cannot reach it\\x1b[2J"));
}

TEST(TopTest, BatchHasAllAndJsonIsTheApis) {
  const TopState state = StateOf({Training("fashion", 1, 1)}, {Host("a")});
  const std::string text = RenderTopBatch(state, {}, 120, kTopNow);
  EXPECT_THAT(text, HasSubstr("JOB "));
  EXPECT_THAT(text, HasSubstr("NODE "));
  EXPECT_THAT(text, HasSubstr("gpu 0"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  const auto json = nlohmann::json::parse(TopJson(state.sample()));
  EXPECT_EQ(json["jobs"][0]["name"], "fashion");
  EXPECT_EQ(json["nodes"][0]["gpuUsage"][0]["memoryAccess"], 0.45);
}

TEST(KeyParserTest, SequencesMayComeInPieces) {
  KeyParser parser;
  EXPECT_THAT(parser.Feed("q\x1b[A"),
              ElementsAre(KeyPress{Key::kChar, 'q'}, KeyPress{Key::kUp, 0}));
  EXPECT_TRUE(parser.Feed("\x1b").empty());
  EXPECT_TRUE(parser.Feed("[6").empty());
  EXPECT_THAT(parser.Feed("~j"), ElementsAre(KeyPress{Key::kPageDown, 0},
                                             KeyPress{Key::kChar, 'j'}));
  // Unknown ones are left out, and nothing after them is lost.
  EXPECT_THAT(parser.Feed("\x1b[15~\x1bxn"),
              ElementsAre(KeyPress{Key::kChar, 'n'}));
}

// The program itself behind a terminal.
class TopTerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* const bin = getenv("LOCKSTEP_BIN");
    program_ = std::string(bin ? bin : ".") + "/lockstep";
    ASSERT_EQ(access(program_.c_str(), X_OK), 0) << program_;
    auto server = FakeCoordinator::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->Update([](FakeAnswers* a) {
      a->jobs = {Training("fashion", 1, 1)};
      a->nodes = {Host("host-a")};
    });
    int primary = -1;
    int secondary = -1;
    ASSERT_EQ(openpty(&primary, &secondary, nullptr, nullptr, nullptr), 0);
    primary_.Reset(primary);
    secondary_.Reset(secondary);
    const winsize size{24, 100, 0, 0};
    ioctl(secondary, TIOCSWINSZ, &size);
    tcgetattr(secondary, &before_);
  }
  void TearDown() override {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
  }

  void Start() { StartUnder(nullptr); }
  // `parent`: what a parent in its session does with its pid, and returns.
  void StartUnder(const std::function<int(pid_t)>& parent) {
    const std::string address = "LOCKSTEP_ADDRESS=" + server_->address();
    const char* const env[] = {"TERM=xterm", "LOCKSTEP_INSECURE_LOOPBACK=1",
                               "HOME=/nonexistent", address.c_str(), nullptr};
    const char* const argv[] = {program_.c_str(), "top", "-d", "200ms",
                                nullptr};
    const int tty = secondary_.get();
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ > 0) return;
    setsid();
    ioctl(tty, TIOCSCTTY, 0);
    if (parent) {
      signal(SIGTTOU, SIG_IGN);
      const pid_t top = fork();
      if (top > 0) _exit(parent(top));
      setpgid(0, 0);
      tcsetpgrp(tty, getpid());
      signal(SIGTTOU, SIG_DFL);
    }
    for (int fd = 0; fd < 3; ++fd) dup2(tty, fd);
    execve(argv[0], const_cast<char* const*>(argv),
           const_cast<char* const*>(env));
    _exit(127);
  }
  // Reads until `text` has come; false after 10 s.
  bool Sees(const std::string& text) {
    const MonoTime end = MonotonicNow() + 30s;
    while (MonotonicNow() < end) {
      const size_t at = screen_.find(text);
      if (at != std::string::npos) {
        screen_.erase(0, at + text.size());
        return true;
      }
      pollfd fd{primary_.get(), POLLIN, 0};
      if (poll(&fd, 1, 200) <= 0) continue;
      char bytes[4096];
      const ssize_t n = read(primary_.get(), bytes, sizeof(bytes));
      if (n > 0) screen_.append(bytes, static_cast<size_t>(n));
    }
    ADD_FAILURE() << "no " << text << " in " << screen_;
    return false;
  }
  void Type(const std::string& keys) {
    ASSERT_EQ(write(primary_.get(), keys.data(), keys.size()),
              static_cast<ssize_t>(keys.size()));
  }
  int WaitForExit() {
    int status = 0;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    child_ = -1;
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
  }
  // As it was before, by its settings and by what was written to it.
  void ExpectRestored() {
    EXPECT_TRUE(Sees("\x1b[?25h\x1b[?1049l"));
    if (child_ > 0) return;  // It may still be at it.
    termios now{};
    tcgetattr(secondary_.get(), &now);
    EXPECT_EQ(now.c_lflag, before_.c_lflag);
    EXPECT_EQ(now.c_iflag, before_.c_iflag);
  }

  std::string program_;
  std::unique_ptr<FakeCoordinator> server_;
  Fd primary_;
  Fd secondary_;
  termios before_{};
  pid_t child_ = -1;
  std::string screen_;
};

TEST_F(TopTerminalTest, KeysSwitchScreensAndQuit) {
  Start();
  ASSERT_TRUE(Sees("\x1b[?1049h"));
  ASSERT_TRUE(Sees("fashion"));
  Type("n");
  ASSERT_TRUE(Sees("host-a"));
  ASSERT_TRUE(Sees("Tesla T4"));
  Type("q");
  EXPECT_EQ(WaitForExit(), 0);
  ExpectRestored();
}

TEST_F(TopTerminalTest, EnterAsksForTheRanks) {
  v1::Job job = Training("fashion", 1, 1);
  v1::TaskStatus* const task = job.add_tasks();
  task->set_node("host-of-the-rank");
  task->add_ranks()->set_state(v1::RANK_STATE_JOINED);
  server_->Update([&](FakeAnswers* a) { a->jobs = {job}; });
  Start();
  ASSERT_TRUE(Sees("fashion"));
  Type("\r");
  ASSERT_TRUE(Sees("host-of-the-rank"));
  Type("q");
  EXPECT_EQ(WaitForExit(), 0);
}

TEST_F(TopTerminalTest, EverySignalLeavesTheTerminalAsItWas) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    Start();
    ASSERT_TRUE(Sees("fashion"));
    kill(child_, signal);
    EXPECT_EQ(WaitForExit(), 128 + signal);
    ExpectRestored();
    screen_.clear();
  }
}

// Under something like a shell: the kernel stops nobody for SIGTSTP whom no
// parent in the session could let go on.
TEST_F(TopTerminalTest, StopsAndGoesOn) {
  int stopped[2];
  int go[2];
  ASSERT_EQ(pipe(stopped), 0);
  ASSERT_EQ(pipe(go), 0);
  StartUnder([&](pid_t top) {
    int status = 0;
    while (waitpid(top, &status, WUNTRACED) == top && WIFSTOPPED(status)) {
      char c = 's';
      if (write(stopped[1], &c, 1) != 1 || read(go[0], &c, 1) != 1) return 1;
      kill(top, SIGCONT);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  });
  ASSERT_TRUE(Sees("fashion"));
  Type("\x1a");
  ExpectRestored();
  pollfd fd{stopped[0], POLLIN, 0};
  ASSERT_EQ(poll(&fd, 1, 10'000), 1);
  termios now{};
  tcgetattr(secondary_.get(), &now);
  EXPECT_EQ(now.c_lflag, before_.c_lflag);
  ASSERT_EQ(write(go[1], "g", 1), 1);
  ASSERT_TRUE(Sees("\x1b[?1049h"));
  ASSERT_TRUE(Sees("fashion"));
  Type("q");
  EXPECT_EQ(WaitForExit(), 0);
  for (const int fd : {stopped[0], stopped[1], go[0], go[1]}) close(fd);
}

TEST_F(TopTerminalTest, FollowsTheWindowsSize) {
  Start();
  ASSERT_TRUE(Sees("fashion"));
  const winsize size{10, 60, 0, 0};
  ioctl(secondary_.get(), TIOCSWINSZ, &size);
  kill(child_, SIGWINCH);
  // A heading as wide as the screen now is.
  ASSERT_TRUE(Sees("\x1b[7m" + PadRight("JOB", 7)));
  kill(child_, SIGTERM);
  EXPECT_EQ(WaitForExit(), 128 + SIGTERM);
}

TEST_F(TopTerminalTest, SaysWhenNobodyAnswers) {
  Start();
  ASSERT_TRUE(Sees("fashion"));
  server_.reset();
  ASSERT_TRUE(Sees("ago: "));
  Type("q");
  EXPECT_EQ(WaitForExit(), 0);
  ExpectRestored();
}

}  // namespace
}  // namespace lockstep::cli
