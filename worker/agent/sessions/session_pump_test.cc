#include "worker/agent/sessions/session_pump.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "worker/agent/sessions/profile.h"

namespace lockstep::worker::agent {
namespace {

using shim::SessionReport;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

// A coordinator that takes a message when it is told to.
class FakeCall final : public SessionCall {
 public:
  explicit FakeCall(Bell* bell) : bell_(bell) {}

  bool CanWrite() const override {
    MutexLock lock(&mu_);
    return !waiting_ && !ended_;
  }
  void Write(v1::SessionOutput message) override {
    MutexLock lock(&mu_);
    EXPECT_FALSE(waiting_);
    waiting_ = true;
    written_.push_back(std::move(message));
    changed_.NotifyAll();
  }
  std::optional<v1::SessionInput> Take() override {
    MutexLock lock(&mu_);
    if (!wants_next_ || input_.empty()) return std::nullopt;
    wants_next_ = false;
    v1::SessionInput input = std::move(input_.front());
    input_.pop_front();
    return input;
  }
  void Next() override {
    MutexLock lock(&mu_);
    wants_next_ = true;
  }
  void Cancel() override { End(); }
  void FinishWrites() override { End(); }
  bool ended() const override {
    MutexLock lock(&mu_);
    return ended_;
  }

  // ---- The coordinator's side ----
  // Waits for the next message and takes it.
  v1::SessionOutput TakeOutput() {
    MutexLock lock(&mu_);
    const MonoTime until = MonotonicNow() + std::chrono::seconds(30);
    while (written_.empty() && changed_.WaitUntil(&mu_, until)) {
    }
    if (written_.empty()) {
      ADD_FAILURE() << "no message";
      return {};
    }
    v1::SessionOutput output = std::move(written_.front());
    written_.pop_front();
    waiting_ = false;
    bell_->Ring();
    return output;
  }
  void Send(const v1::SessionInput& input) {
    MutexLock lock(&mu_);
    input_.push_back(input);
    bell_->Ring();
  }
  size_t inputs_left() const {
    MutexLock lock(&mu_);
    return input_.size();
  }
  void End() {
    MutexLock lock(&mu_);
    ended_ = true;
    bell_->Ring();
  }

 private:
  Bell* const bell_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<v1::SessionOutput> written_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::SessionInput> input_ ABSL_GUARDED_BY(mu_);
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
  bool wants_next_ ABSL_GUARDED_BY(mu_) = true;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

class SessionPumpTest : public testing::Test {
 protected:
  SessionPumpTest() : call_(&bell_) {
    auto streams = MakeSessionStreams(std::nullopt, std::nullopt, &theirs_);
    EXPECT_TRUE(streams.ok()) << streams.status();
    v1::SessionStarted started;
    started.set_node("a");
    pump_ =
        std::thread([this, started, streams = std::move(*streams)]() mutable {
          SessionPump(std::move(streams), started, &call_, &bell_).Run();
        });
  }
  ~SessionPumpTest() override {
    call_.End();
    pump_.join();
  }

  void Report(SessionReport::Kind kind, int value,
              const std::string& message = "") {
    SessionReport report;
    report.kind = kind;
    report.value = value;
    report.SetMessage(message);
    EXPECT_EQ(send(theirs_[3].get(), &report, sizeof(report), 0),
              static_cast<ssize_t>(sizeof(report)));
  }

  Bell bell_;
  FakeCall call_;
  // Input, output, error output and control of the command.
  std::vector<Fd> theirs_;
  std::thread pump_;
};

TEST_F(SessionPumpTest, TheStartComesFirstAndTheEndLast) {
  ASSERT_EQ(write(theirs_[1].get(), "out", 3), 3);
  Report(SessionReport::Kind::kStarted, 0);
  Report(SessionReport::Kind::kEnded, 7 << 8);
  std::vector<v1::SessionOutput> got;
  // The end waits for output that is still to come.
  do {
    got.push_back(call_.TakeOutput());
    if (got.back().data() == "out") {
      ASSERT_EQ(write(theirs_[1].get(), "late", 4), 4);
      theirs_[1].Reset();
      theirs_[2].Reset();
    }
  } while (!got.back().has_end() && got.size() < 8);
  std::string text;
  for (const v1::SessionOutput& output : got) text += output.data();
  EXPECT_EQ(text, "outlate");
  EXPECT_EQ(got.back().end().exit_code(), 7);
}

TEST_F(SessionPumpTest, ACommandIsReadNoFasterThanTheCallTakes) {
  Report(SessionReport::Kind::kStarted, 0);
  EXPECT_TRUE(call_.TakeOutput().has_started());
  // More than the pipe and the pump hold: the writer is held until all is
  // taken. FakeCall fails at a second message that was not asked for.
  constexpr size_t kBytes = 1 << 20;
  std::thread writer([&] {
    const std::string bytes(kBytes, 'x');
    size_t done = 0;
    while (done < kBytes) {
      const ssize_t n =
          write(theirs_[1].get(), bytes.data() + done, kBytes - done);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    EXPECT_EQ(done, kBytes);
  });
  size_t got = 0;
  while (got < kBytes) {
    const v1::SessionOutput output = call_.TakeOutput();
    ASSERT_TRUE(output.has_data());
    ASSERT_LE(output.data().size(), kMaxSessionData);
    got += output.data().size();
  }
  writer.join();
}

TEST_F(SessionPumpTest, InputIsTakenNoFasterThanTheCommandReads) {
  constexpr int kMessages = 64;
  v1::SessionInput input;
  input.set_data(std::string(kMaxSessionData, 'x'));
  for (int i = 0; i < kMessages; ++i) call_.Send(input);
  input.set_end_of_data(true);
  call_.Send(input);
  // What a pipe and the pump hold is far less than all.
  size_t got = 0;
  char buffer[4096];
  ssize_t n = 0;
  bool held = false;
  while ((n = read(theirs_[0].get(), buffer, sizeof(buffer))) > 0) {
    if (got == 0) held = call_.inputs_left() > kMessages / 2;
    got += static_cast<size_t>(n);
  }
  EXPECT_TRUE(held);
  EXPECT_EQ(got, kMessages * kMaxSessionData);
}

TEST_F(SessionPumpTest, WhatNeverRanIsSaid) {
  Report(SessionReport::Kind::kNotStarted, ENOENT, "program x is not in PATH");
  theirs_[1].Reset();
  theirs_[2].Reset();
  const v1::SessionOutput output = call_.TakeOutput();
  ASSERT_TRUE(output.has_end());
  EXPECT_EQ(output.end().exit_code(), 127);
  EXPECT_TRUE(output.end().not_started());
  EXPECT_EQ(output.end().message(), "program x is not in PATH");
}

TEST_F(SessionPumpTest, AKeeperThatIsGoneEndsTheSession) {
  Report(SessionReport::Kind::kStarted, 0);
  EXPECT_TRUE(call_.TakeOutput().has_started());
  theirs_.clear();
  const v1::SessionOutput output = call_.TakeOutput();
  ASSERT_TRUE(output.has_end());
  EXPECT_EQ(output.end().exit_code(), 137);
  EXPECT_EQ(output.end().message(), shim::kRankEnded);
}

TEST_F(SessionPumpTest, TheCallsEndIsTheCommandsHangUp) {
  Report(SessionReport::Kind::kStarted, 0);
  EXPECT_TRUE(call_.TakeOutput().has_started());
  call_.End();
  SessionReport none;
  EXPECT_EQ(recv(theirs_[3].get(), &none, sizeof(none), 0), 0);
  char byte = 0;
  EXPECT_EQ(read(theirs_[0].get(), &byte, 1), 0);
}

TEST(ProfileTest, PySpyGetsWhatTheUserAsks) {
  ProfileSession profile;
  profile.format = ProfileFormat::kSpeedscope;
  profile.seconds = 5;
  profile.rate = 50;
  EXPECT_THAT(
      PySpyArguments("/opt/py-spy", 7, profile, "/tmp/f"),
      ElementsAre("/opt/py-spy", "record", "--nonblocking", "--subprocesses",
                  "--pid", "7", "--duration", "5", "--rate", "50", "--format",
                  "speedscope", "--output", "/tmp/f"));
  profile.native = true;
  EXPECT_THAT(PySpyArguments("/opt/py-spy", 7, profile, "/tmp/f"),
              Not(Contains("--nonblocking")));
}

}  // namespace
}  // namespace lockstep::worker::agent
