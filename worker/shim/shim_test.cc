// The shim as a process, driven as a worker daemon drives it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/os/process.h"
#include "common/os/procfs.h"
#include "worker/shim/log_reader.h"
#include "worker/shim/shim_client.h"
#include "worker/task/log_line.h"

namespace lockstep {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using task::ExitKind;
using task::ExitRecord;
using task::LogLine;
using task::LogStream;
using task::ShimReply;
using task::ShimSpec;
using testing::ElementsAre;
using testing::HasSubstr;
using Phase = task::ShimReply::Phase;

MonoTime In(Duration d) { return SystemClock().Now().mono + d; }

bool Eventually(const std::function<bool()>& holds) {
  const MonoTime deadline = In(15s);
  while (!holds()) {
    if (SystemClock().Now().mono >= deadline) return false;
    usleep(1000);
  }
  return true;
}

struct Line {
  LogStream stream;
  bool full;
  std::string text;
};

class ShimTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* bin = getenv("LOCKSTEP_BIN");
    ASSERT_NE(bin, nullptr) << "set LOCKSTEP_BIN to the folder of the binaries";
    program_ = JoinPath(bin, "lockstep-shim");
    char name[] = "/tmp/lockstep-shim-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
  }
  void TearDown() override {
    for (const Process& shim : shims_) {
      if (HasEnded(shim)) continue;
      (void)SendSignal(shim, SIGKILL);
      (void)WaitExit(shim, In(10s));
    }
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  std::string Path(const std::string& name) { return JoinPath(dir_, name); }

  ShimSpec Spec(const std::string& script) {
    ShimSpec spec;
    spec.job = "job";
    spec.generation = 1;
    spec.argv = {"/bin/sh", "-c", script};
    spec.env = {"PATH=/usr/bin:/bin", "DIR=" + dir_};
    spec.cwd = dir_;
    spec.log_path = Path("log");
    spec.task_record_path = Path("task");
    spec.exit_record_path = Path("exit");
    spec.socket_path = Path("socket");
    spec.page_path = Path("page");
    spec.nonce = std::string(32, 'n');
    return spec;
  }

  // The index of the new one in shims_.
  size_t Start(const ShimSpec& spec) {
    StatusOr<Process> shim = StartShim(program_, spec, Path("stderr"));
    EXPECT_TRUE(shim.ok()) << shim.status();
    shims_.push_back(shim.ok() ? *std::move(shim) : Process());
    return shims_.size() - 1;
  }

  // The shim's own exit code, -1 when it did not end.
  int ShimCode(size_t index = 0) {
    const StatusOr<ProcessExit> status = WaitExit(shims_[index], In(15s));
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() && status->signal == 0 ? status->code : -1;
  }

  // Runs `spec` to its end with no daemon there.
  ExitRecord RunToEnd(const ShimSpec& spec) {
    const size_t index = Start(spec);
    EXPECT_EQ(ShimCode(index), 0);
    const StatusOr<ExitRecord> record = ReadExitRecord(Path("exit"));
    EXPECT_TRUE(record.ok()) << record.status();
    EXPECT_FALSE(RealFileSystem()->Exists(Path("socket")));
    return record.ok() ? *record : ExitRecord();
  }

  std::unique_ptr<ShimClient> Connect() {
    auto client =
        ShimClient::Connect(Path("socket"), std::string(32, 'n'), In(15s));
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }

  std::vector<Line> Log() {
    std::vector<Line> lines;
    for (uint64_t offset = 0;;) {
      const StatusOr<LogChunk> chunk = ReadLog(Path("log"), offset, 1 << 20);
      if (!chunk.ok() || chunk->bytes.empty()) return lines;
      offset = chunk->next_offset;
      for (size_t at = 0; at < chunk->bytes.size();) {
        const size_t end = chunk->bytes.find('\n', at);
        LogLine line;
        std::string error;
        EXPECT_TRUE(task::ParseLogLine(
            std::string_view(chunk->bytes).substr(at, end - at), &line, &error))
            << error;
        lines.push_back({line.stream, line.full, std::string(line.text)});
        at = end + 1;
      }
    }
  }

  std::vector<std::string> Texts() {
    std::vector<std::string> texts;
    for (const Line& line : Log()) texts.push_back(line.text);
    return texts;
  }

  // The process whose number a script wrote to the file `name`.
  StatusOr<Process> ProcessIn(const std::string& name) {
    pid_t pid = 0;
    EXPECT_TRUE(Eventually([&] {
      std::ifstream file(Path(name));
      return static_cast<bool>(file >> pid) && file.get() == '\n';
    })) << name;
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t start, StartTime(pid));
    return OpenVerified({pid, start});
  }

  std::string program_;
  std::string dir_;
  std::vector<Process> shims_;
};

TEST_F(ShimTest, WritesDownHowAProgramExited) {
  const ExitRecord r =
      RunToEnd(Spec("echo out; echo err >&2; i=0; while [ $i -lt 20000 ]; do "
                    "i=$((i+1)); done; exit 7"));
  EXPECT_EQ(r.kind, ExitKind::kExited);
  EXPECT_EQ(task::ExitCode(r), 7);
  EXPECT_EQ(r.message, "exited with code 7");
  EXPECT_EQ(r.job, "job");
  EXPECT_GT(r.process.pid, 0);
  EXPECT_GT(r.user_nanos + r.system_nanos, 0);
  EXPECT_GT(r.max_rss_bytes, 100u << 10);
  EXPECT_GE(r.end_mono_nanos, r.start_mono_nanos);
  EXPECT_GT(r.start_unix_nanos, 0);
  EXPECT_EQ(r.tree_left, 0u);
  EXPECT_EQ(r.boot_id, *BootId());
  EXPECT_EQ(r.log_bytes, LogEnd(Path("log")));
  ASSERT_EQ(Log().size(), 2u);
  std::set<std::string> texts;
  for (const Line& line : Log()) {
    texts.insert(line.text);
    EXPECT_EQ(line.stream,
              line.text == "out" ? LogStream::kStdout : LogStream::kStderr);
    EXPECT_TRUE(line.full);
  }
  EXPECT_EQ(texts, (std::set<std::string>{"err", "out"}));
}

TEST_F(ShimTest, WritesDownTheSignalThatKilled) {
  const ExitRecord r = RunToEnd(Spec("kill -SEGV $$"));
  EXPECT_EQ(r.kind, ExitKind::kSignaled);
  EXPECT_EQ(task::ExitCode(r), 128 + SIGSEGV);
  EXPECT_EQ(r.message, "killed by signal 11 (SIGSEGV)");
}

TEST_F(ShimTest, SaysWhyAProgramCannotStart) {
  const auto message = [&](const std::vector<std::string>& argv, int code) {
    ShimSpec spec = Spec("");
    spec.argv = argv;
    const ExitRecord r = RunToEnd(spec);
    EXPECT_EQ(r.kind, ExitKind::kNotStarted);
    EXPECT_EQ(task::ExitCode(r), code) << r.message;
    return r.message;
  };
  EXPECT_EQ(message({"no-such-program"}, 127),
            "there is no program no-such-program in PATH (/usr/bin:/bin)");
  EXPECT_EQ(message({"./train"}, 127),
            "there is no program ./train in " + dir_);
  std::ofstream(Path("plain")) << "text\n";
  EXPECT_THAT(message({Path("plain")}, 126), HasSubstr("is not executable"));
  std::ofstream(Path("bad")) << "#!/no/such/interpreter\n";
  ASSERT_EQ(chmod(Path("bad").c_str(), 0755), 0);
  EXPECT_THAT(message({"./bad"}, 127), HasSubstr("the interpreter"));
  ASSERT_EQ(chmod(Path("plain").c_str(), 0755), 0);
  EXPECT_THAT(message({"./plain"}, 126), HasSubstr("begins with #!"));

  ShimSpec spec = Spec("true");
  spec.cwd = "/no/such/directory";
  const ExitRecord r = RunToEnd(spec);
  EXPECT_EQ(r.kind, ExitKind::kNotStarted);
  EXPECT_THAT(r.message,
              HasSubstr("entering the working directory /no/such/directory: No "
                        "such file or directory"));
}

TEST_F(ShimTest, ALogThatCannotBeMadeIsSaidInTheExitRecord) {
  ShimSpec spec = Spec("true");
  spec.log_path = "/no/such/directory/log";
  const ExitRecord r = RunToEnd(spec);
  EXPECT_EQ(r.kind, ExitKind::kNotStarted);
  EXPECT_THAT(r.message, HasSubstr("/no/such/directory/log"));
}

TEST_F(ShimTest, WhatTheRankLeavesBehindIsKilled) {
  const ExitRecord r = RunToEnd(
      Spec("setsid sh -c 'trap \"\" TERM; echo $$ >$DIR/a; sleep 1000; :' & "
           "sh -c 'sh -c \"echo \\$\\$ >$DIR/b; exec sleep 1000\" & ' ; "
           "while ! [ -s $DIR/a ] || ! [ -s $DIR/b ]; do sleep 0.01; done; "
           "exit 0"));
  EXPECT_EQ(task::ExitCode(r), 0);
  // a and b; and a's sleep, if it came to that.
  EXPECT_GE(r.tree_killed, 2u);
  EXPECT_EQ(r.tree_left, 0u);
  EXPECT_FALSE(ProcessIn("a").ok());
  EXPECT_FALSE(ProcessIn("b").ok());
}

TEST_F(ShimTest, AHundredThousandLinesStayInOrder) {
  RunToEnd(Spec("seq 1 100000"));
  const std::vector<std::string> texts = Texts();
  ASSERT_EQ(texts.size(), 100'000u);
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_EQ(texts[i], std::to_string(i + 1));
  }
}

TEST_F(ShimTest, AHugeLineIsCutIntoParts) {
  RunToEnd(Spec("head -c 100000 /dev/zero | tr '\\0' x; echo; printf tail"));
  const std::vector<Line> lines = Log();
  std::string first;
  size_t i = 0;
  for (; i < lines.size(); ++i) {
    EXPECT_LE(lines[i].text.size(), task::kMaxLogText);
    first += lines[i].text;
    if (lines[i].full) break;
  }
  EXPECT_EQ(first, std::string(100'000, 'x'));
  EXPECT_GE(i, 6u);
  ASSERT_EQ(lines.size(), i + 2);
  EXPECT_EQ(lines.back().text, "tail");
  EXPECT_TRUE(lines.back().full);
}

TEST_F(ShimTest, APromptIsSeenBeforeItsLineEnds) {
  Start(Spec("printf prompt; exec sleep 1000"));
  EXPECT_TRUE(Eventually([&] { return Texts().size() == 1; }));
  EXPECT_EQ(Log()[0].text, "prompt");
  EXPECT_FALSE(Log()[0].full);
}

TEST_F(ShimTest, OfALongLogTheHeadAndTheNewestAreKept) {
  ShimSpec spec = Spec("seq 1 50000");
  spec.log_head_bytes = 64 << 10;
  spec.log_tail_bytes = 256 << 10;
  const ExitRecord r = RunToEnd(spec);
  EXPECT_EQ(r.log_lost_bytes, 0u);
  EXPECT_EQ(r.log_bytes, LogEnd(Path("log")));
  const uint64_t head = RealFileSystem()->Stat(Path("log"))->size;
  EXPECT_LE(head, (64u << 10) + 256);
  uint64_t kept = 0;
  const auto names = RealFileSystem()->List(dir_);
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    if (name.starts_with("log.")) {
      kept += RealFileSystem()->Stat(Path(name))->size;
    }
  }
  EXPECT_GE(kept, 256u << 10);
  EXPECT_LE(kept, (256u << 10) * 5 / 4);

  const std::vector<std::string> texts = Texts();
  EXPECT_EQ(texts.front(), "1");
  EXPECT_EQ(texts.back(), "50000");
  int steps = 0;
  int notes = 0;
  int last = 0;
  for (const std::string& text : texts) {
    if (text.starts_with("[lockstep:")) {
      ++notes;
      continue;
    }
    const int number = std::stoi(text);
    if (number != last + 1) ++steps;
    last = number;
  }
  EXPECT_EQ(notes, 1);
  EXPECT_EQ(steps, 1);
  const StatusOr<LogChunk> chunk = ReadLog(Path("log"), head, 1000);
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  EXPECT_GT(chunk->gap, 0u);
  EXPECT_EQ(chunk->offset, head + chunk->gap);
  EXPECT_EQ(head + chunk->gap + kept, r.log_bytes);
}

TEST_F(ShimTest, SegmentsOfAnEarlierLogAreSweptAway) {
  std::ofstream(Path("log")) << "old\n";
  std::ofstream(Path("log.00000000000000000004")) << "old\n";
  RunToEnd(Spec("echo new"));
  EXPECT_THAT(Texts(), ElementsAre("new"));
}

TEST_F(ShimTest, TheRankSeesWhatTheSpecSaysAndNothingElse) {
  setenv("LOCKSTEP_STRAY", "1", 1);
  ShimSpec spec = Spec(
      "pwd; umask; ulimit -c; cat <&5; echo; cat; "
      "for i in 3 4 6 7 8 9 10 11 12; do "
      "[ -e /proc/$$/fd/$i ] && echo open $i; done; "
      "grep -E 'NoNewPrivs|SigBlk' /proc/self/status; env | sort");
  spec.env = {"PATH=/usr/bin:/bin", "A=b c"};
  spec.umask = 027;
  spec.secret = "key";
  spec.secret_fd = 5;
  RunToEnd(spec);
  unsetenv("LOCKSTEP_STRAY");
  EXPECT_THAT(Texts(),
              ElementsAre(dir_, "0027", "0", "key", "SigBlk:\t0000000000000000",
                          "NoNewPrivs:\t1", "A=b c", "PATH=/usr/bin:/bin",
                          "PWD=" + dir_));
}

TEST_F(ShimTest, TheRankBecomesTheGivenUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  ShimSpec spec = Spec("id -u; id -g; id -G; kill -0 $PPID || echo refused");
  spec.cwd = "/";
  spec.set_ids = true;
  spec.uid = 65534;
  spec.gid = 65533;
  spec.groups = {65532};
  RunToEnd(spec);
  const std::vector<std::string> texts = Texts();
  ASSERT_GE(texts.size(), 4u);
  std::vector<std::string> out;
  for (const Line& line : Log()) {
    if (line.stream == LogStream::kStdout) out.push_back(line.text);
  }
  EXPECT_THAT(out, ElementsAre("65534", "65533", "65533 65532", "refused"));

  // The directory is entered as that user.
  spec = Spec("true");
  spec.set_ids = true;
  spec.uid = spec.gid = 65534;
  const ExitRecord r = RunToEnd(spec);
  EXPECT_THAT(r.message,
              HasSubstr("user 65534 entering the working directory"));
}

TEST_F(ShimTest, ARunningProgramHasATaskRecord) {
  Start(Spec("echo $$ >$DIR/pid; exec sleep 1000"));
  StatusOr<Process> rank = ProcessIn("pid");
  ASSERT_TRUE(rank.ok()) << rank.status();
  const StatusOr<task::TaskRecord> record = ReadTaskRecord(Path("task"));
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->process.pid, rank->id.pid);
  EXPECT_EQ(record->process.start_time, rank->id.start_time);
  EXPECT_EQ(record->shim.pid, shims_[0].id.pid);
  EXPECT_EQ(record->shim.start_time, shims_[0].id.start_time);
  EXPECT_EQ(record->boot_id, *BootId());
  EXPECT_EQ(record->nonce, std::string(32, 'n'));
  EXPECT_EQ(record->socket_path, Path("socket"));
  EXPECT_GT(record->started_unix_nanos, 0);
}

TEST_F(ShimTest, TheRankDiesWithItsShim) {
  Start(Spec("echo $$ >$DIR/pid; exec sleep 1000"));
  StatusOr<Process> rank = ProcessIn("pid");
  ASSERT_TRUE(rank.ok()) << rank.status();
  ASSERT_TRUE(SendSignal(shims_[0], SIGKILL).ok());
  EXPECT_TRUE(Eventually([&] { return HasEnded(*rank); }));
  EXPECT_FALSE(RealFileSystem()->Exists(Path("exit")));
}

TEST_F(ShimTest, StraySignalsLeaveTheShimAlone) {
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
  const auto reply = client->WaitForPhase(Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(task::ExitCode(reply->exit_record), 3);
  EXPECT_TRUE(reply->durable);
}

TEST_F(ShimTest, KillTreeIsGentleFirst) {
  Start(
      Spec("trap 'exit 5' TERM; echo $$ >$DIR/pid; "
           "while :; do sleep 0.01; done"));
  ASSERT_TRUE(ProcessIn("pid").ok());
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->KillTree(10s, In(5s)).ok());
  const auto reply = client->WaitForPhase(Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(task::ExitCode(reply->exit_record), 5);
}

TEST_F(ShimTest, KillTreeEndsTheDeafAfterTheGrace) {
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
  const MonoTime before = SystemClock().Now().mono;
  ASSERT_TRUE(client->KillTree(std::nullopt, In(5s)).ok());
  const auto reply = client->WaitForPhase(Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->exit_record.wait_status, SIGKILL);
  EXPECT_GE(SystemClock().Now().mono - before, 30ms);
  EXPECT_TRUE(HasEnded(*rank));
  EXPECT_TRUE(HasEnded(*child));
}

TEST_F(ShimTest, ALaterKillCanOnlyComeSooner) {
  Start(Spec("trap '' TERM; echo $$ >$DIR/pid; while :; do sleep 0.01; done"));
  ASSERT_TRUE(ProcessIn("pid").ok());
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->KillTree(3600s, In(5s)).ok());
  ASSERT_TRUE(client->KillTree(Duration(0), In(5s)).ok());
  ASSERT_TRUE(client->KillTree(7200s, In(5s)).ok());
  const auto reply = client->WaitForPhase(Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->exit_record.kind, ExitKind::kSignaled);
}

TEST_F(ShimTest, OnlyTheNonceOpensTheDoor) {
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

TEST_F(ShimTest, ADaemonThatComesBackFindsTheSameRank) {
  Start(Spec("exec sleep 1000"));
  auto first = Connect();
  ASSERT_NE(first, nullptr);
  const auto running = first->WaitForPhase(Phase::kRunning, In(15s));
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
    const auto reply = client->WaitForPhase(Phase::kExited, In(15s));
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->exit_record, *ReadExitRecord(Path("exit")));
  }
}

TEST_F(ShimTest, StaysForWhoIsConnectedUntilItIsForgotten) {
  Start(Spec("read x <$DIR/fifo; exit 4"));
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  const auto early = client->Forget(In(5s));
  EXPECT_EQ(early.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(early.status()), HasSubstr("has not ended"));
  ASSERT_TRUE(client->KillTree(Duration(0), In(5s)).ok());
  ASSERT_TRUE(client->WaitForPhase(Phase::kExited, In(15s)).ok());
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

TEST_F(ShimTest, ASecondShimOfTheSameRankTouchesNothing) {
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

TEST_F(ShimTest, ASocketFileOfADeadShimIsReplaced) {
  Start(Spec("echo $$ >$DIR/pid; exec sleep 1000"));
  ASSERT_TRUE(ProcessIn("pid").ok());
  ASSERT_TRUE(SendSignal(shims_[0], SIGKILL).ok());
  ASSERT_TRUE(WaitExit(shims_[0], In(15s)).ok());
  ASSERT_TRUE(RealFileSystem()->Exists(Path("socket")));
  EXPECT_EQ(task::ExitCode(RunToEnd(Spec("exit 6"))), 6);
}

TEST_F(ShimTest, ARecordThatCannotBeWrittenIsStillTold) {
  ShimSpec spec = Spec("read x <$DIR/fifo; exit 4");
  ASSERT_TRUE(RealFileSystem()->MakeDirs(Path("gone")).ok());
  spec.exit_record_path = Path("gone/exit");
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  Start(spec);
  auto client = Connect();
  ASSERT_NE(client, nullptr);
  ASSERT_TRUE(client->WaitForPhase(Phase::kRunning, In(15s)).ok());
  ASSERT_TRUE(RealFileSystem()->RemoveAll(Path("gone")).ok());
  std::ofstream(Path("fifo")) << "go\n";
  const auto reply = client->WaitForPhase(Phase::kExited, In(15s));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_FALSE(reply->durable);
  EXPECT_EQ(task::ExitCode(reply->exit_record), 4);
  ASSERT_TRUE(client->Forget(In(5s)).ok());
  EXPECT_EQ(ShimCode(), 0);
}

TEST_F(ShimTest, ADamagedSpecIsRefused) {
  StatusOr<Fd> memfd = MakeMemfd("spec", "not a spec");
  ASSERT_TRUE(memfd.ok());
  SpawnOptions options;
  options.program = program_;
  options.argv = {program_, "3"};
  options.stderr_path = Path("stderr");
  options.fds = {memfd->get()};
  StatusOr<Process> shim = Spawn(options);
  ASSERT_TRUE(shim.ok()) << shim.status();
  shims_.push_back(*std::move(shim));
  EXPECT_EQ(ShimCode(), 2);
  EXPECT_THAT(*RealFileSystem()->Read(Path("stderr")),
              HasSubstr("the shim's spec is unreadable"));
  ShimSpec spec = Spec("true");
  spec.socket_path = "/" + std::string(108, 'x');
  EXPECT_EQ(StartShim(program_, spec, "").status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep
