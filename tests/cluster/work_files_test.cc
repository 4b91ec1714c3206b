// What programs write to relative paths: it outlives restarts, is listed and
// fetched, and goes with the job.
#include <gmock/gmock.h>

#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::HasSubstr;

class WorkFilesTest : public ClusterTest {
 protected:
  std::string WorkOf(const v1::Job& job) {
    return cluster()->layout().DaemonDir(job.tasks(0).node()) + "/work/" +
           job.uid();
  }
};

TEST_F(WorkFilesTest, ASnapshotOutlivesARestartAndIsFetchedAfterTheEnd) {
  Submit(Shell("snap", 1,
               "if [ -f snapshot.pt ]; then\n"
               "  echo resumes from $(cat snapshot.pt)\n"
               "  mkdir logs && echo done > logs/events\n"
               "else\n"
               "  echo resumes from 0\n"
               "  echo 120 > snapshot.pt\n"
               "  kill -KILL $$\n"
               "fi"));
  const v1::Job job = WaitEnd("snap", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Line("snap", 0, "resumes", 1), "resumes from 0");
  EXPECT_EQ(Line("snap", 0, "resumes", 2), "resumes from 120");
  EXPECT_EQ(job.tasks(0).work().files(), 2);
  EXPECT_EQ(job.tasks(0).work().entries_size(), 2);

  const CommandResult described = Lockstep({"jobs", "describe", "snap"});
  EXPECT_THAT(described.out, HasSubstr("2 files in its working directory"));
  EXPECT_THAT(described.out, HasSubstr("snapshot.pt"));
  const CommandResult listed = Lockstep({"jobs", "files", "snap"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("snapshot.pt"));
  EXPECT_THAT(listed.out, HasSubstr("logs/"));
  const std::string here = Path("fetched");
  const CommandResult copied =
      Lockstep({"jobs", "cp", "snap:0/snapshot.pt", here});
  EXPECT_EQ(copied.code, 0) << copied.err;
  EXPECT_EQ(ReadFile(here), "120\n");
  EXPECT_EQ(Lockstep({"jobs", "cp", "snap:0/logs/events", here}).code, 1)
      << "it exists already";
  EXPECT_EQ(Lockstep({"jobs", "cp", "snap:0/../chief-0/x", Path("no")}).code,
            2);
  EXPECT_EQ(Lockstep({"jobs", "cp", "snap:0//etc/passwd", Path("no")}).code, 2);

  EXPECT_TRUE(RealFileSystem()->Exists(WorkOf(job)));
  ASSERT_TRUE(client()->DeleteJob("snap").ok());
  EXPECT_TRUE(
      Eventually([&] { return !RealFileSystem()->Exists(WorkOf(job)); }));
}

// The node hears of it when it is back.
TEST_F(WorkFilesTest, WhatWasDeletedWhileANodeWasAwayGoesLater) {
  const v1::Job job =
      RunJob(Shell("away", 1, "echo x > file"), v1::JOB_STATE_SUCCEEDED);
  ASSERT_TRUE(RealFileSystem()->Exists(WorkOf(job) + "/chief-0/file"));
  StopDaemon(job.tasks(0).node());
  EXPECT_EQ(client()->ListFiles("away", 0, "").status().code(),
            StatusCode::kUnavailable);
  ASSERT_TRUE(client()->DeleteJob("away").ok());
  EXPECT_TRUE(RealFileSystem()->Exists(WorkOf(job)));
  StartAll();
  EXPECT_TRUE(
      Eventually([&] { return !RealFileSystem()->Exists(WorkOf(job)); }));
}

TEST_F(WorkFilesTest, ALivingProgramsFilesAreRead) {
  Submit(Shell("alive", 1, "echo 1 > step; while :; do sleep 1; done"));
  EXPECT_TRUE(Eventually([&] {
    std::string bytes;
    const Status read = client()->ReadFile("alive", 0, "step",
                                           [&](int64_t, std::string_view data) {
                                             bytes += data;
                                             return OkStatus();
                                           });
    return read.ok() && bytes == "1\n";
  }));
  ASSERT_TRUE(client()->CancelJob("alive").ok());
  WaitEnd("alive", v1::JOB_STATE_CANCELLED);
}

TEST_F(WorkFilesTest, RanksMayStartInTheOutputDirectory) {
  const std::string out = Path("out");
  const CommandResult run =
      Lockstep({"submit", "--name", "there", "--output", out, "--workdir",
                "output", "--", "sh", "-c", "echo 9 > snapshot.pt"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(ReadFile(out + "/snapshot.pt"), "9\n");
  EXPECT_EQ(Lockstep({"jobs", "files", "there"}).code, 1);
}

}  // namespace
}  // namespace lockstep
