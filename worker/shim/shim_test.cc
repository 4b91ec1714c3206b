// How a shim starts its rank, and what it leaves behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/os/process.h"
#include "worker/shim/log_reader.h"
#include "worker/shim/shim_client.h"
#include "worker/shim/shim_fixture.h"

namespace lockstep::worker::shim {
namespace {

using cri::LogStream;
using task::ExitKind;
using task::ExitRecord;
using task::ShimSpec;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(ShimTest, WritesDownHowAProgramExited) {
  const ExitRecord r =
      RunToEnd(Spec("echo out; echo err >&2; i=0; while [ $i -lt 20000 ]; do "
                    "i=$((i+1)); done; exit 7"));
  EXPECT_EQ(r.kind, ExitKind::kExited);
  EXPECT_EQ(ExitCode(r), 7);
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
  for (const ParsedLine& line : Log()) {
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
  EXPECT_EQ(ExitCode(r), 128 + SIGSEGV);
  EXPECT_EQ(r.message, "killed by signal 11 (SIGSEGV)");
}

TEST_F(ShimTest, SaysWhyAProgramCannotStart) {
  const auto message = [&](const std::vector<std::string>& argv, int code) {
    ShimSpec spec = Spec("");
    spec.argv = argv;
    const ExitRecord r = RunToEnd(spec);
    EXPECT_EQ(r.kind, ExitKind::kNotStarted);
    EXPECT_EQ(ExitCode(r), code) << r.message;
    return r.message;
  };
  EXPECT_EQ(message({"no-such-program"}, 127),
            "program no-such-program is not in PATH (/usr/bin:/bin)");
  EXPECT_EQ(message({"./train"}, 127),
            "program ./train does not exist in " + dir_);
  std::ofstream(Path("plain")) << "text\n";
  EXPECT_THAT(message({Path("plain")}, 126), HasSubstr("is not executable"));
  std::ofstream(Path("bad")) << "#!/no/such/interpreter\n";
  ASSERT_EQ(chmod(Path("bad").c_str(), 0755), 0);
  EXPECT_THAT(message({"./bad"}, 127), HasSubstr("the interpreter"));
  ASSERT_EQ(chmod(Path("plain").c_str(), 0755), 0);
  EXPECT_THAT(message({"./plain"}, 126), HasSubstr("script with #!"));

  ShimSpec spec = Spec("true");
  spec.cwd = "/no/such/directory";
  const ExitRecord r = RunToEnd(spec);
  EXPECT_EQ(r.kind, ExitKind::kNotStarted);
  EXPECT_THAT(r.message,
              HasSubstr("entering the working directory /no/such/directory: No "
                        "such file or directory"));
}

TEST_F(ShimTest, WhatTheRankLeavesBehindIsKilled) {
  const ExitRecord r = RunToEnd(
      Spec("setsid sh -c 'trap \"\" TERM; echo $$ >$DIR/a; sleep 1000; :' & "
           "sh -c 'sh -c \"echo \\$\\$ >$DIR/b; exec sleep 1000\" & ' ; "
           "while ! [ -s $DIR/a ] || ! [ -s $DIR/b ]; do sleep 0.01; done; "
           "exit 0"));
  EXPECT_EQ(ExitCode(r), 0);
  // a and b; and a's sleep, if it came to that.
  EXPECT_GE(r.tree_killed, 2u);
  EXPECT_EQ(r.tree_left, 0u);
  EXPECT_FALSE(ProcessIn("a").ok());
  EXPECT_FALSE(ProcessIn("b").ok());
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
  for (const ParsedLine& line : Log()) {
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

TEST_F(ShimTest, WhatItWasGivenToHoldIsOpenUntilItEndsAndNotInTheRank) {
  StatusOr<Pipe> pipe = MakePipe();
  ASSERT_TRUE(pipe.ok());
  StatusOr<Process> shim = StartShim(
      program_,
      Spec("for i in 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$i ] && echo open $i; "
           "done; echo $$ >$DIR/pid; exec sleep 1000"),
      Path("stderr"), {pipe->write.get()});
  ASSERT_TRUE(shim.ok()) << shim.status();
  shims_.push_back(*std::move(shim));
  StatusOr<Process> rank = ProcessIn("pid");
  ASSERT_TRUE(rank.ok()) << rank.status();
  pipe->write.Reset();
  pollfd end{pipe->read.get(), POLLIN, 0};
  EXPECT_EQ(poll(&end, 1, 0), 0) << "the shim has the other end";
  // The rank alone cannot keep it.
  ASSERT_TRUE(SendSignal(shims_[0], SIGKILL).ok());
  EXPECT_EQ(poll(&end, 1, 10'000), 1);
  EXPECT_TRUE(Eventually([&] { return HasEnded(*rank); }));
  EXPECT_THAT(Texts(), ElementsAre());
}

TEST_F(ShimTest, TheRankEntersItsCgroupFirst) {
  // A directory with the files of one, as a kernel would show them.
  ShimSpec spec = Spec("cat $DIR/cgroup/cgroup.procs; echo");
  spec.cgroup = Path("cgroup");
  ASSERT_TRUE(RealFileSystem()->MakeDirs(spec.cgroup).ok());
  ExitRecord r = RunToEnd(spec);
  EXPECT_EQ(r.kind, ExitKind::kNotStarted);
  EXPECT_THAT(r.message, HasSubstr("entering the cgroup " + spec.cgroup));
  for (const char* name : {"cgroup.procs", "cgroup.kill"}) {
    std::ofstream(JoinPath(spec.cgroup, name)).flush();
  }
  ASSERT_TRUE(RealFileSystem()->Remove(Path("exit")).ok());
  r = RunToEnd(spec);
  EXPECT_EQ(ExitCode(r), 0) << r.message;
  EXPECT_THAT(Texts(), ElementsAre("0"));
  // At its end all that is in there is killed.
  EXPECT_THAT(*RealFileSystem()->Read(JoinPath(spec.cgroup, "cgroup.kill")),
              HasSubstr("1"));
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
}  // namespace lockstep::worker::shim
