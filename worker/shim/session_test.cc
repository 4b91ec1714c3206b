// Commands that users run in a rank, as the daemon starts them by the shim.
#include "worker/shim/session.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/os/process.h"
#include "worker/shim/session_report.h"
#include "worker/shim/shim_fixture.h"

namespace lockstep::worker::shim {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;
using Kind = SessionReport::Kind;
using Phase = task::ShimReply::Phase;

class ShimSessionTest : public ShimTest {
 protected:
  // What the daemon keeps of a session.
  struct Session {
    Fd in;
    Fd out;
    Fd err;
    Fd control;
  };

  // Starts a rank that waits.
  void StartRank() {
    Start(Spec("echo $$ >$DIR/rank; exec sleep 600"));
    ASSERT_TRUE(ProcessIn("rank").ok());
    client_ = Connect();
    ASSERT_NE(client_, nullptr);
    ASSERT_TRUE(WaitForPhase(client_.get(), Phase::kRunning, In(15s)).ok());
  }

  static Session Pipes(std::vector<Fd>* theirs) {
    Session session;
    theirs->resize(4);
    EXPECT_TRUE(MakePair(&(*theirs)[0], &session.in));
    EXPECT_TRUE(MakePair(&session.out, &(*theirs)[1]));
    EXPECT_TRUE(MakePair(&session.err, &(*theirs)[2]));
    MakeControl(&session.control, &(*theirs)[3]);
    return session;
  }

  static bool MakePair(Fd* read_end, Fd* write_end) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return false;
    read_end->Reset(fds[0]);
    write_end->Reset(fds[1]);
    return true;
  }
  static void MakeControl(Fd* mine, Fd* theirs) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    mine->Reset(fds[0]);
    theirs->Reset(fds[1]);
  }

  Status Open(const std::vector<std::string>& argv, const std::vector<Fd>& fds,
              bool terminal = false) {
    task::ShimRequest request;
    request.argv = argv;
    request.env = {"MORE=1"};
    request.terminal = terminal;
    std::vector<int> numbers;
    for (const Fd& fd : fds) numbers.push_back(fd.get());
    return client_->StartSession(request, numbers, In(5s)).status();
  }
  // With pipes. EXPECTs that it starts.
  Session Run(const std::vector<std::string>& argv) {
    std::vector<Fd> theirs;
    Session session = Pipes(&theirs);
    EXPECT_TRUE(Open(argv, theirs).ok());
    return session;
  }

  static std::string ReadAll(const Fd& fd) {
    std::string text;
    char buffer[4096];
    for (;;) {
      pollfd readable = {fd.get(), POLLIN, 0};
      if (poll(&readable, 1, 30'000) != 1) return text + "(nothing for 30 s)";
      const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
      if (n <= 0) return text;
      text.append(buffer, static_cast<size_t>(n));
    }
  }
  // The next report; nullopt at the end.
  static std::optional<SessionReport> Next(const Fd& control) {
    SessionReport report;
    pollfd readable = {control.get(), POLLIN, 0};
    EXPECT_EQ(poll(&readable, 1, 30'000), 1);
    if (recv(control.get(), &report, sizeof(report), MSG_DONTWAIT) <= 0) {
      return std::nullopt;
    }
    return report;
  }
  // The wait status of a session that has started; -1: it did not end so.
  static int End(const Fd& control) {
    const auto started = Next(control);
    if (!started || started->kind != Kind::kStarted) return -1;
    const auto ended = Next(control);
    return ended && ended->kind == Kind::kEnded ? ended->value : -1;
  }

  std::unique_ptr<ShimClient> client_;
};

TEST_F(ShimSessionTest, HasTheRanksDirectoryAndEnvironmentAndItsOwnStreams) {
  StartRank();
  Session session =
      Run({"sh", "-c",
           "read line; echo \"$line in $(pwd) of $DIR $MORE\"; echo bad >&2; "
           "exit 7"});
  ASSERT_EQ(write(session.in.get(), "hello\n", 6), 6);
  EXPECT_EQ(ReadAll(session.out), "hello in " + dir_ + " of " + dir_ + " 1\n");
  EXPECT_EQ(ReadAll(session.err), "bad\n");
  const int status = End(session.control);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
  // The keeper is gone, and the rank does not notice.
  EXPECT_FALSE(Next(session.control).has_value());
  EXPECT_EQ(client_->State(In(5s))->phase, Phase::kRunning);
}

TEST_F(ShimSessionTest, HasATerminalOfTheGivenSize) {
  StartRank();
  Fd master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_TRUE(master && grantpt(master.get()) == 0 &&
              unlockpt(master.get()) == 0);
  char name[64];
  ASSERT_EQ(ptsname_r(master.get(), name, sizeof(name)), 0);
  const winsize size = {33, 111, 0, 0};
  ASSERT_EQ(ioctl(master.get(), TIOCSWINSZ, &size), 0);
  std::vector<Fd> theirs;
  for (int i = 0; i < 3; ++i) {
    theirs.emplace_back(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  }
  Fd control;
  theirs.emplace_back();
  MakeControl(&control, &theirs[3]);
  // /dev/tty is there for a controlling terminal only.
  ASSERT_TRUE(
      Open({"sh", "-c", "stty size; tty >/dev/tty; exit 3"}, theirs, true)
          .ok());
  theirs.clear();
  const std::string said = ReadAll(master);  // Ends with EIO.
  EXPECT_THAT(said, HasSubstr("33 111"));
  EXPECT_THAT(said, HasSubstr(name));
  EXPECT_EQ(WEXITSTATUS(End(control)), 3);
}

TEST_F(ShimSessionTest, AMissingProgramIsNamed) {
  StartRank();
  Session session = Run({"no-such-program"});
  const auto report = Next(session.control);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->kind, Kind::kNotStarted);
  EXPECT_EQ(report->value, ENOENT);
  EXPECT_THAT(report->message,
              HasSubstr("program no-such-program is not in PATH"));
  EXPECT_FALSE(Next(session.control).has_value());
}

TEST_F(ShimSessionTest, GetsSignals) {
  StartRank();
  Session session =
      Run({"sh", "-c",
           "trap 'exit 9' INT; echo ready; while :; do sleep 0.01; done"});
  char byte = 0;
  ASSERT_EQ(read(session.out.get(), &byte, 1), 1);
  const SessionSignal order = {SIGINT};
  ASSERT_EQ(send(session.control.get(), &order, sizeof(order), 0),
            static_cast<ssize_t>(sizeof(order)));
  EXPECT_EQ(WEXITSTATUS(End(session.control)), 9);
}

TEST_F(ShimSessionTest, ADaemonThatIsGoneLeavesNothing) {
  StartRank();
  // One that hears SIGHUP, and one that does not.
  Session gentle = Run({"sh", "-c",
                        "trap 'echo hup >$DIR/hup; exit' HUP; echo $$ >$DIR/a; "
                        "while :; do sleep 0.01; done"});
  Session deaf =
      Run({"sh", "-c",
           "trap '' HUP; (trap '' HUP; echo $$ >$DIR/c; setsid sleep "
           "600) & echo $$ >$DIR/b; wait"});
  const auto a = ProcessIn("a");
  const auto b = ProcessIn("b");
  ASSERT_TRUE(a.ok() && b.ok() && ProcessIn("c").ok());
  gentle.control.Reset();
  deaf.control.Reset();
  EXPECT_TRUE(Eventually([&] { return HasEnded(*a) && HasEnded(*b); }));
  EXPECT_TRUE(
      Eventually([&] { return RealFileSystem()->Exists(Path("hup")); }));
  // Then the keepers are gone, too, with the grandchild.
  EXPECT_EQ(ReadAll(deaf.out), "");
  EXPECT_EQ(client_->State(In(5s))->phase, Phase::kRunning);
}

TEST_F(ShimSessionTest, WhatACommandLeavesBehindEndsWithIt) {
  StartRank();
  Session session = Run({"sh", "-c", "sleep 600 & exit 0"});
  EXPECT_EQ(End(session.control), 0);
  // Its output is held by nothing any more.
  EXPECT_EQ(ReadAll(session.out), "");
}

TEST_F(ShimSessionTest, EndsWithTheRankAndIsNoneOfItsLeftovers) {
  StartRank();
  Session session =
      Run({"sh", "-c", "trap '' HUP TERM; sleep 600 & echo $$ >$DIR/a; wait"});
  const auto command = ProcessIn("a");
  ASSERT_TRUE(command.ok());
  ASSERT_TRUE(Next(session.control).has_value());
  ASSERT_TRUE(client_->KillTree(10s, In(5s)).ok());
  const auto reply = WaitForPhase(client_.get(), Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(ExitCode(reply->exit_record), 128 + SIGTERM);
  EXPECT_EQ(reply->exit_record.tree_killed, 0u);
  EXPECT_EQ(reply->exit_record.tree_left, 0u);
  EXPECT_TRUE(HasEnded(*command));
  EXPECT_EQ(ReadAll(session.out), "");
  const auto ended = Next(session.control);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->kind, Kind::kEnded);
  EXPECT_STREQ(ended->message, kRankEnded);
  std::vector<Fd> theirs;
  const Session late = Pipes(&theirs);
  EXPECT_THAT(Message(Open({"true"}, theirs)), HasSubstr("does not run"));
}

TEST_F(ShimSessionTest, ConnectsToAPortOfTheRank) {
  StartRank();
  const Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener.get(), generic, size), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), generic, &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));

  Session session = Run({"/proc/self/exe", "--connect", port});
  Fd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(write(session.in.get(), "question", 8), 8);
  session.in.Reset();
  // Half-closed: the question is complete, the answer is to come.
  EXPECT_EQ(ReadAll(peer), "question");
  ASSERT_EQ(write(peer.get(), "answer", 6), 6);
  peer.Reset();
  EXPECT_EQ(ReadAll(session.out), "answer");
  EXPECT_EQ(End(session.control), 0);
}

TEST_F(ShimSessionTest, SaysThatNothingListens) {
  StartRank();
  Session session = Run({"/proc/self/exe", "--connect", "1"});
  EXPECT_EQ(ReadAll(session.err), "Connection refused");
  EXPECT_EQ(WEXITSTATUS(End(session.control)), 1);
}

}  // namespace
}  // namespace lockstep::worker::shim
