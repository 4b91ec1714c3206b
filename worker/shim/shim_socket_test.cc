// What a worker daemon asks of a shim on its socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>
#include <memory>
#include <string>

#include "common/base/file.h"
#include "common/os/process.h"
#include "worker/shim/shim_client.h"
#include "worker/shim/shim_fixture.h"

namespace lockstep::worker::shim {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using task::ExitKind;
using task::ShimReply;
using task::ShimSpec;
using testing::HasSubstr;
using Phase = task::ShimReply::Phase;

class ShimSocketTest : public ShimTest {};

TEST_F(ShimSocketTest, StraySignalsLeaveTheShimAlone) {
  Start(
      Spec("trap 'echo got; exit 3' USR1; echo $$ >$DIR/pid; "
           "while :; do sleep 0.01; done"));
  ASSERT_TRUE(ProcessIn("pid").ok());
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGUSR1}) {
    ASSERT_TRUE(SendSignal(shims_[0], signo).ok());
  }
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->last().phase, Phase::kRunning);
  ASSERT_TRUE(client->Signal(SIGUSR1, false, In(5s)).ok());
  const auto reply = WaitForPhase(client.get(), Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(ExitCode(reply->exit_record), 3);
  EXPECT_TRUE(reply->durable);
}

TEST_F(ShimSocketTest, KillTreeIsGentleFirst) {
  Start(
      Spec("trap 'exit 5' TERM; echo $$ >$DIR/pid; "
           "while :; do sleep 0.01; done"));
  ASSERT_TRUE(ProcessIn("pid").ok());
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->KillTree(10s, In(5s)).ok());
  const auto reply = WaitForPhase(client.get(), Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(ExitCode(reply->exit_record), 5);
}

// SIGTERM is for the processes that run when it is sent: what a handler starts,
// such as a copy of the last files, may end.
TEST_F(ShimSocketTest, WhatAHandlerOfSigtermStartsMayEnd) {
  // The others give the handler time to start its copy while they are walked.
  Start(
      Spec("exec 2>/dev/null; trap : TERM; sh -c 'sleep 1000 & "
           "trap \"sleep 0.2 && echo copied; exit 3\" TERM; echo $$ >$DIR/pid; "
           "wait' & copier=$!; for i in $(seq 200); do sleep 1000 & done; "
           "until [ -s $DIR/pid ]; do sleep 0.01; done; echo $$ >$DIR/up; "
           "wait $copier; wait $copier; exit $?"));
  ASSERT_TRUE(ProcessIn("up").ok());
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->KillTree(10s, In(5s)).ok());
  const auto reply = WaitForPhase(client.get(), Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(ExitCode(reply->exit_record), 3);
  EXPECT_THAT(Texts(), ElementsAre("copied"));
}

TEST_F(ShimSocketTest, AStoppedRankHandlesSigterm) {
  Start(
      Spec("trap 'echo saved; exit 3' TERM; echo $$ >$DIR/pid; "
           "while :; do sleep 0.01; done"));
  const StatusOr<Process> rank = ProcessIn("pid");
  ASSERT_TRUE(rank.ok()) << rank.status();
  ASSERT_TRUE(SendSignal(*rank, SIGSTOP).ok());
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->KillTree(10s, In(5s)).ok());
  const auto reply = WaitForPhase(client.get(), Phase::kExited, In(5s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(ExitCode(reply->exit_record), 3);
  // The shell may tell that its sleep was terminated.
  EXPECT_THAT(Texts(), testing::Contains("saved"));
}

TEST_F(ShimSocketTest, KillTreeEndsTheDeafAfterTheGrace) {
  ShimSpec spec = Spec(
      "trap '' TERM; setsid sh -c 'echo $$ >$DIR/child; sleep 1000; :' & "
      "echo $$ >$DIR/pid; while :; do sleep 0.01; done");
  spec.grace_nanos = 30'000'000;
  Start(spec);
  StatusOr<Process> rank = ProcessIn("pid");
  StatusOr<Process> child = ProcessIn("child");
  ASSERT_TRUE(rank.ok() && child.ok());
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  const MonoTime before = MonotonicNow();
  ASSERT_TRUE(client->KillTree(std::nullopt, In(5s)).ok());
  const auto reply = WaitForPhase(client.get(), Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->exit_record.wait_status, SIGKILL);
  EXPECT_GE(MonotonicNow() - before, 30ms);
  EXPECT_TRUE(HasEnded(*rank));
  EXPECT_TRUE(HasEnded(*child));
}

TEST_F(ShimSocketTest, ALaterKillCanOnlyComeSooner) {
  Start(Spec("trap '' TERM; echo $$ >$DIR/pid; while :; do sleep 0.01; done"));
  ASSERT_TRUE(ProcessIn("pid").ok());
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->KillTree(3600s, In(5s)).ok());
  ASSERT_TRUE(client->KillTree(Duration(0), In(5s)).ok());
  ASSERT_TRUE(client->KillTree(7200s, In(5s)).ok());
  const auto reply = WaitForPhase(client.get(), Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->exit_record.kind, ExitKind::kSignaled);
}

TEST_F(ShimSocketTest, OnlyTheNonceOpensTheDoor) {
  Start(Spec("exec sleep 1000"));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  const auto wrong =
      ShimClient::Connect(Path("socket"), std::string(32, 'x'), In(5s));
  EXPECT_EQ(wrong.status().code(), StatusCode::kPermissionDenied)
      << wrong.status();
  EXPECT_THAT(Message(wrong.status()), HasSubstr("nonce"));

  // Garbage, and a request before any greeting: cut off with a sentence.
  for (const std::string& bytes :
       {std::string("garbage"), task::EncodeShimRequest({})}) {
    const Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    Path("socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                      sizeof(address)),
              0);
    ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    char buffer[4096];
    const ssize_t n = recv(fd.get(), buffer, sizeof(buffer), 0);
    ASSERT_GT(n, 0);
    ShimReply reply;
    std::string error;
    ASSERT_TRUE(task::DecodeShimReply(
        std::string_view(buffer, static_cast<size_t>(n)), &reply, &error));
    EXPECT_EQ(reply.kind, ShimReply::Kind::kRefused);
    EXPECT_EQ(recv(fd.get(), buffer, sizeof(buffer), 0), 0);
  }
  EXPECT_TRUE(client->State(In(5s)).ok());
}

TEST_F(ShimSocketTest, ADaemonThatComesBackFindsTheSameRank) {
  Start(Spec("exec sleep 1000"));
  auto first = Connect();
  ASSERT_NE(first, nullptr);
  const auto running = WaitForPhase(first.get(), Phase::kRunning, In(15s));
  ASSERT_TRUE(running.ok()) << running.status();
  first.reset();
  auto second = Connect();
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->last().process, running->process);
  EXPECT_EQ(second->last().phase, Phase::kRunning);
  // A new one while the old one is still there.
  auto third = Connect();
  ASSERT_NE(third, nullptr);
  ASSERT_TRUE(third->KillTree(Duration(0), In(5s)).ok());
  for (ShimClient* client : {second.get(), third.get()}) {
    const auto reply = WaitForPhase(client, Phase::kExited, In(15s));
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->exit_record, *ReadExitRecord(Path("exit")));
  }
}

TEST_F(ShimSocketTest, StaysForWhoIsConnectedUntilItIsForgotten) {
  // Before the script, which would end at once without it.
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  Start(Spec("read x <$DIR/fifo; exit 4"));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  const auto early = client->Forget(In(5s));
  EXPECT_EQ(early.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(early.status()), HasSubstr("has not ended"));
  ASSERT_TRUE(client->KillTree(Duration(0), In(5s)).ok());
  ASSERT_TRUE(WaitForPhase(client.get(), Phase::kExited, In(15s)).ok());
  ASSERT_TRUE(client->State(In(5s)).ok());
  EXPECT_FALSE(HasEnded(shims_[0]));
  ASSERT_TRUE(client->Forget(In(5s)).ok());
  EXPECT_EQ(ShimCode(), 0);
  EXPECT_EQ(client->State(In(5s)).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(ShimClient::Connect(Path("socket"), std::string(32, 'n'), In(0s))
                .status()
                .code(),
            StatusCode::kNotFound);
}

TEST_F(ShimSocketTest, ASecondShimOfTheSameRankTouchesNothing) {
  Start(Spec("echo $$ >$DIR/pid; echo hello; exec sleep 1000"));
  ASSERT_TRUE(ProcessIn("pid").ok());
  const size_t second = Start(Spec("true"));
  EXPECT_EQ(ShimCode(second), 3);
  EXPECT_FALSE(RealFileSystem()->Exists(Path("exit")));
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  EXPECT_EQ(client->last().shim.pid, shims_[0].id.pid);
  EXPECT_TRUE(Eventually([&] { return Texts().size() == 1; }));
  EXPECT_THAT(*RealFileSystem()->Read(Path("stderr")),
              HasSubstr("another shim listens"));
}

TEST_F(ShimSocketTest, ASocketFileOfADeadShimIsReplaced) {
  Start(Spec("echo $$ >$DIR/pid; exec sleep 1000"));
  ASSERT_TRUE(ProcessIn("pid").ok());
  ASSERT_TRUE(SendSignal(shims_[0], SIGKILL).ok());
  ASSERT_TRUE(WaitExit(shims_[0], In(15s)).ok());
  ASSERT_TRUE(RealFileSystem()->Exists(Path("socket")));
  EXPECT_EQ(ExitCode(RunToEnd(Spec("exit 6"))), 6);
}

TEST_F(ShimSocketTest, ARecordThatCannotBeWrittenIsStillTold) {
  ShimSpec spec = Spec("read x <$DIR/fifo; exit 4");
  ASSERT_TRUE(RealFileSystem()->MakeDirs(Path("gone")).ok());
  spec.exit_record_path = Path("gone/exit");
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  Start(spec);
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(WaitForPhase(client.get(), Phase::kRunning, In(15s)).ok());
  ASSERT_TRUE(RealFileSystem()->RemoveAll(Path("gone")).ok());
  std::ofstream(Path("fifo")) << "go\n";
  const auto reply = WaitForPhase(client.get(), Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->durable);
  EXPECT_EQ(ExitCode(reply->exit_record), 4);
  ASSERT_TRUE(client->Forget(In(5s)).ok());
  EXPECT_EQ(ShimCode(), 0);
}

}  // namespace
}  // namespace lockstep::worker::shim
