#include "client/cli/live_output.h"

#include <gtest/gtest.h>

#include <optional>
#include <sstream>

#include "client/cli/log_text.h"

namespace lockstep::cli {
namespace {

using std::chrono_literals::operator""ms;

class FakeClock final : public Clock {
 public:
  Time Now() const override { return now; }
  Time now;
};

// stdout and stderr are one terminal, or two files.
class LiveOutputTest : public testing::Test {
 protected:
  void UseTerminal() {
    env_.out = env_.err = &screen_;
    env_.out_is_tty = env_.err_is_tty = true;
    env_.columns = 12;
  }
  void UseFiles() {
    env_.out = &out_;
    env_.err = &err_;
  }
  void Write(int32_t rank, const std::string& text, bool partial,
             bool to_err = false) {
    v1::LogLine line;
    line.set_rank(rank);
    line.set_stream(to_err ? "stderr" : "stdout");
    line.set_text(text);
    line.set_partial(partial);
    EXPECT_TRUE(output_->Write(line, FormatLogLine(line, {}, {}), to_err));
  }
  // What came since the last call.
  std::string Screen() {
    std::string text = screen_.str();
    screen_.str("");
    return text;
  }
  void SetUp() override { env_.clock = &clock_; }

  FakeClock clock_;
  std::ostringstream screen_;
  std::ostringstream out_;
  std::ostringstream err_;
  CliEnvironment env_;
  std::optional<LiveOutput> output_{&env_};
};

TEST_F(LiveOutputTest, OnATerminalABarIsRedrawnInPlace) {
  UseTerminal();
  Write(0, "begin", false);
  Write(0, "10%", true);
  Write(0, "20%", true);
  EXPECT_EQ(Screen(), "begin\n\r\x1b[K10%\r\x1b[K20%");
  Write(0, "100%", false);
  EXPECT_EQ(Screen(), "\r\x1b[K100%\n");
  Write(0, "end", false);
  EXPECT_EQ(Screen(), "end\n");
}

TEST_F(LiveOutputTest, OnATerminalALineShowsItselfAndDoesNothing) {
  UseTerminal();
  Write(0, "\x1b]0;title\x07\x1b[2J\u202eevil", false);
  EXPECT_EQ(Screen(), "\\x1b]0;title\\x07\\x1b[2J\\u202eevil\n");
  Write(0, "\x1b[1;31mred", false);
  EXPECT_EQ(Screen(), "\x1b[1;31mred\x1b[0m\n")
      << "a colour ends with its line";
  Write(0, "\x1b[32mok\x1b[0m\tend\r", false);
  EXPECT_EQ(Screen(), "\x1b[32mok\x1b[0m\tend\n");
  // A file has it byte for byte.
  output_.emplace(&env_);
  UseFiles();
  env_.out_is_tty = env_.err_is_tty = false;
  Write(0, "\x1b[2J\r", false);
  EXPECT_EQ(out_.str(), "\x1b[2J\r\n");
}

TEST_F(LiveOutputTest, LinesOfOthersComeAboveTheBar) {
  UseTerminal();
  Write(0, "10%", true);
  Screen();
  Write(1, "a line", false);
  EXPECT_EQ(Screen(), "\r\x1b[Ka line\n10%");
  Write(0, "on stderr", false, /*to_err=*/true);
  EXPECT_EQ(Screen(), "\r\x1b[Kon stderr\n10%");
  output_->PrintNote("lockstep: a note\n");
  EXPECT_EQ(Screen(), "\r\x1b[Klockstep: a note\n10%");
  // The newest bar is the one that is redrawn.
  Write(1, "50%", true);
  EXPECT_EQ(Screen(), "\r\x1b[K50%");
  Write(0, "done", false);
  EXPECT_EQ(Screen(), "\r\x1b[Kdone\n50%");
  output_->Finish();
  EXPECT_EQ(Screen(), "\n");
  output_.reset();
  EXPECT_EQ(Screen(), "");
}

TEST_F(LiveOutputTest, ABarIsClippedToTheTerminalAndMovesNoCursor) {
  UseTerminal();
  Write(0, "0123456789abcdef", true);
  EXPECT_EQ(Screen(), "\r\x1b[K0123456789a");
  Write(0, "\x1b[32mok\x1b[0m\x1b[A\x1b[2K\tx\b", true);
  EXPECT_EQ(Screen(), "\r\x1b[K\x1b[32mok\x1b[0m x");
  Write(0, "\x1b[", true);
  EXPECT_EQ(Screen(), "\r\x1b[K");
}

TEST_F(LiveOutputTest, ElsewhereAStateIsALineAtMostOnceASecond) {
  UseFiles();
  Write(0, "10%", true);
  clock_.now.mono += 500ms;
  Write(0, "20%", true);
  Write(1, "other rank", true);
  Write(0, "other stream", true, /*to_err=*/true);
  clock_.now.mono += 500ms;
  Write(0, "30%", true);
  clock_.now.mono += 2000ms;
  Write(0, "30%", true);
  EXPECT_EQ(out_.str(), "10%\nother rank\n30%\n");
  EXPECT_EQ(err_.str(), "other stream\n");
  out_.str("");
  // What was shown already is not shown again, and the next line is a new one.
  Write(0, "30%", false);
  Write(0, "30%", false);
  EXPECT_EQ(out_.str(), "30%\n");
  Write(0, "0%", true);
  Write(0, "100%", false);
  output_->Finish();
  EXPECT_EQ(out_.str(), "30%\n0%\n100%\n");
}

TEST_F(LiveOutputTest, OfARedirectedStdoutOnlyTheTerminalIsRedrawn) {
  env_.out = &out_;
  env_.err = &screen_;
  env_.err_is_tty = true;
  Write(0, "10%", true, /*to_err=*/true);
  Write(0, "a line", false);
  EXPECT_EQ(Screen(), "\r\x1b[K10%");
  EXPECT_EQ(out_.str(), "a line\n");
}

}  // namespace
}  // namespace lockstep::cli
