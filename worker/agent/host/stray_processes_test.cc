#include "worker/agent/host/stray_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <deque>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/os/process.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;

class StrayProcessesTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-stray-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    record_.job = "job";
    record_.generation = 3;
    record_.rank = 1;
    // What other tests run at this moment is not ours.
    id_ = RandomHex(8);
    record_.socket_path = "/run/x/" + id_ + ".sock";
  }
  void TearDown() override {
    for (const Process& process : processes_) {
      (void)SendSignal(process, SIGKILL);
      (void)WaitExit(process, MonotonicNow() + 10s);
    }
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  // A process of the rank of record_, in a session of its own.
  const Process& Child(const std::string& mark) {
    SpawnOptions options;
    options.program = "/bin/sleep";
    options.argv = {"sleep", "1000"};
    options.env = {"LOCKSTEP_JOB=job", "LOCKSTEP_GENERATION=3",
                   "LOCKSTEP_RANK=1"};
    if (!mark.empty()) options.env.push_back("LOCKSTEP_TASK=" + mark);
    options.new_session = true;
    auto process = Spawn(options);
    EXPECT_TRUE(process.ok()) << process.status();
    processes_.push_back(*std::move(process));
    return processes_.back();
  }
  bool Ends(const Process& process) {
    return WaitExit(process, MonotonicNow() + 10s).ok();
  }

  std::string dir_;
  std::string id_;
  task::TaskRecord record_;
  std::deque<Process> processes_;
};

TEST_F(StrayProcessesTest, ACopiedDirectoryHasAnotherMark) {
  FileSystem* const files = RealFileSystem();
  const auto mark = DirectoryMark(files, dir_);
  ASSERT_TRUE(mark.ok()) << mark.status();
  EXPECT_EQ(DirectoryMark(files, dir_).value(), *mark);
  const std::string copy = dir_ + "/copy";
  ASSERT_TRUE(files->MakeDirs(copy).ok());
  ASSERT_TRUE(
      files->WriteAtomic(copy + "/mark", *files->Read(dir_ + "/mark")).ok());
  EXPECT_NE(DirectoryMark(files, copy).value(), *mark);
  ASSERT_TRUE(files->WriteAtomic(copy + "/mark", "../x\n").ok());
  const auto damaged = DirectoryMark(files, copy);
  EXPECT_EQ(damaged.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(damaged.status()), HasSubstr(copy + "/mark is damaged"));
}

TEST_F(StrayProcessesTest, VariablesAreFoundWhole) {
  const std::string environ("A=1\0BA=2\0B=\0C=x=y", 17);
  EXPECT_EQ(VariableIn(environ, "A"), "1");
  EXPECT_EQ(VariableIn(environ, "BA"), "2");
  EXPECT_EQ(VariableIn(environ, "B"), "");
  EXPECT_EQ(VariableIn(environ, "C"), "x=y");
  EXPECT_EQ(VariableIn(environ, "D"), "");
  EXPECT_EQ(VariableIn("", "A"), "");
}

TEST_F(StrayProcessesTest, AnotherClustersJobOfTheSameNameIsNotOurs) {
  const auto text = [](const std::string& job, const std::string& mark) {
    std::string out = "LOCKSTEP_JOB=" + job;
    out += '\0';
    out += std::string("LOCKSTEP_GENERATION=3\0LOCKSTEP_RANK=1", 37);
    if (!mark.empty()) out += std::string(1, '\0') + "LOCKSTEP_TASK=" + mark;
    return out;
  };
  EXPECT_TRUE(IsOfTask(text("job", "m." + id_), record_, false));
  EXPECT_FALSE(IsOfTask(text("job", "m.ffff456789abcdef"), record_, true));
  EXPECT_FALSE(IsOfTask(text("bob", "m." + id_), record_, true));
  // One that does not say: by its session.
  EXPECT_TRUE(IsOfTask(text("job", ""), record_, true));
  EXPECT_FALSE(IsOfTask(text("job", ""), record_, false));
  record_.generation = 4;
  EXPECT_FALSE(IsOfTask(text("job", "m." + id_), record_, true));
}

TEST_F(StrayProcessesTest, WhatLeftItsSessionIsFoundByItsEnvironment) {
  const Process& ours = Child("m." + id_);
  const Process& other = Child("m.aaaaaaaaaaaaaaaa");
  const Process& unnamed = Child("");
  EXPECT_EQ(KillLeftovers(record_).killed, 1);
  EXPECT_TRUE(Ends(ours));
  EXPECT_FALSE(HasEnded(other));
  EXPECT_FALSE(HasEnded(unnamed));
}

TEST_F(StrayProcessesTest, APidThatCameAgainIsLeftAlone) {
  const Process& stranger = Child("m.aaaaaaaaaaaaaaaa");
  // Its number, and another start: the record is of one that is long gone.
  record_.process.pid = stranger.id.pid;
  record_.process.start_time = stranger.id.start_time - 1;
  EXPECT_EQ(KillLeftovers(record_).killed, 0);
  EXPECT_FALSE(HasEnded(stranger));
}

TEST_F(StrayProcessesTest, OfADirectorysTasksTheLiveOnesStay) {
  const std::string mark = id_ + "-1";
  const Process& stray = Child(mark + ".aa");
  const Process& live = Child(mark + ".bb");
  const Process& other = Child(mark + "1.aa");
  EXPECT_EQ(KillStrays(ReadAllProcesses(), mark, {"bb"}).killed, 1);
  EXPECT_TRUE(Ends(stray));
  EXPECT_FALSE(HasEnded(live));
  EXPECT_FALSE(HasEnded(other));
  // Of a list that is out of date nothing is believed.
  std::vector<ProcessStat> all = ReadAllProcesses();
  for (ProcessStat& process : all) ++process.start_time;
  EXPECT_EQ(KillStrays(all, mark, {}).killed, 0);
}

}  // namespace
}  // namespace lockstep::worker::agent
