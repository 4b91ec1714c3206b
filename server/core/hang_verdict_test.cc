// Which rank is named, and when none is.
#include "server/core/hang_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/model/rank_list.h"
#include "server/core/stack_groups.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Frames = std::vector<StackFrame>;

// In an all-reduce that the program called in `line` of train.py.
Frames Reducing(int32_t line = 90) {
  return {{"torch.distributed.distributed_c10d", "all_reduce",
           "distributed_c10d.py", 2806, true},
          {"train", "step", "train.py", line, false},
          {"train", "<module>", "train.py", 120, false}};
}

Frames Loading() {
  return {{"threading", "Condition.wait", "threading.py", 327, true},
          {"torch.utils.data.dataloader", "DataLoader.__next__",
           "dataloader.py", 630, true},
          {"train", "step", "train.py", 88, false},
          {"train", "<module>", "train.py", 120, false}};
}

RankEvidence Rank(int32_t rank, Frames frames, const std::string& state = "S") {
  RankEvidence evidence;
  evidence.rank = rank;
  evidence.node = "a";
  ProcessEvidence& process = evidence.processes.emplace_back();
  process.pid = 100 + rank;
  process.command = "python3";
  process.state = state;
  process.stack_source = frames.empty() ? "" : kPySpySource;
  ThreadEvidence& thread = process.threads.emplace_back();
  thread.id = process.pid;
  thread.main = true;
  thread.state = state;
  thread.frames = std::move(frames);
  return evidence;
}

HangVerdict Judge(const std::vector<RankEvidence>& evidence,
                  const std::vector<int32_t>& missing = {}) {
  return JudgeHang(evidence, GroupRanks(evidence), missing);
}

// What is kept of a failure has no stacks.
TEST(StackGroupsTest, WithoutStacksSystemCallsTellWhatRanksDid) {
  RankEvidence waits = Rank(0, {});
  waits.processes[0].threads[0].system_call = "futex";
  RankEvidence other = Rank(2, {});
  other.processes[0].threads[0].system_call = "poll";
  const auto groups = GroupRanks({waits, Rank(1, {}, "R"), other});
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(Describe(groups[0].position), "waits in the system call futex");
  EXPECT_EQ(Describe(groups[1].position), "runs");
  EXPECT_EQ(Describe(groups[2].position), "waits in the system call poll");
  waits.processes[0].stack_error = "the time was over before its turn";
  EXPECT_EQ(Describe(PositionOf(waits)),
            "does something that could not be "
            "read");
}

TEST(StackGroupsTest, LinesAndDepthsDoNotSeparate) {
  Frames deeper = Reducing(91);
  deeper.insert(deeper.begin() + 1, deeper[1]);
  const auto groups = GroupRanks({Rank(0, Reducing(90)), Rank(1, Reducing(91)),
                                  Rank(2, deeper), Rank(3, Loading())});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(groups[0].ranks, ElementsAre(0, 1, 2));
  EXPECT_FALSE(groups[0].odd);
  EXPECT_EQ(groups[0].position.collective, "all_reduce");
  EXPECT_THAT(groups[1].ranks, ElementsAre(3));
  EXPECT_TRUE(groups[1].odd);
}

// A framework's library that reduces on a thread of its own (JAX).
RankEvidence InLibrary(int32_t rank, bool main_waits_there) {
  const StackFrame python = {"train", "step", "train.py", 9, false};
  const StackFrame waits = {"libjax_common.so", "jax::AwaitBuffersReady", "", 0,
                            true};
  RankEvidence evidence =
      Rank(rank, main_waits_there ? Frames{waits, python} : Frames{python});
  ThreadEvidence& thread = evidence.processes[0].threads.emplace_back();
  thread.id = 7;
  thread.state = "S";
  thread.frames = {
      {"libjax_common.so", "gloo::allreduce(gloo::Options&)", "", 0, true}};
  return evidence;
}

TEST(StackGroupsTest, AFrameworkReducesOnAThreadOfItsOwn) {
  const RankPosition position = PositionOf(InLibrary(0, true));
  EXPECT_EQ(position.collective, "allreduce");
  EXPECT_EQ(Describe(position), "waits in allreduce (train.py:9)");
  const HangVerdict verdict = Judge({InLibrary(0, true), InLibrary(1, false)});
  EXPECT_THAT(verdict.cause, ElementsAre(1));
  // It has an operation under way, and does not wait for it.
  EXPECT_TRUE(PositionOf(InLibrary(0, false)).collective.empty());
  RankEvidence runs = InLibrary(0, true);
  runs.processes[0].threads[0].state = "R";
  EXPECT_TRUE(PositionOf(runs).collective.empty());
}

// DistributedDataParallel reduces within backward(), in C++.
TEST(StackGroupsTest, BackwardWaitsForTheOthersGradients) {
  const auto backward = [](int32_t rank) {
    return Rank(
        rank,
        {{"libtorch_cpu.so", "c10d::Reducer::finalize_backward()", "", 0, true},
         {"libtorch_python.so", "THPEngine_run_backward(_object*)", "", 0,
          true},
         {"torch._tensor", "Tensor.backward", "_tensor.py", 623, true},
         {"train", "step", "train.py", 91, false}});
  };
  const HangVerdict verdict =
      Judge({backward(0), Rank(1, Loading()), backward(2)});
  EXPECT_EQ(verdict.sentence,
            "rank 1 waits in DataLoader.__next__ (train.py:88); 2 ranks wait "
            "for it in DistributedDataParallel's all_reduce");
}

TEST(StackGroupsTest, WithoutAMajorityNoneIsOdd) {
  const auto groups = GroupRanks({Rank(0, Reducing()), Rank(1, Loading())});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_FALSE(groups[0].odd);
  EXPECT_FALSE(groups[1].odd);
}

TEST(StackGroupsTest, TheProgramBehindALauncherCounts) {
  RankEvidence evidence = Rank(0, Loading());
  ProcessEvidence shell;
  shell.pid = 5;
  shell.command = "sh";
  shell.state = "S";
  shell.threads.resize(1);
  evidence.processes.insert(evidence.processes.begin(), shell);
  EXPECT_EQ(PositionOf(evidence).function, "DataLoader.__next__");
  // An ended process, too.
  ProcessEvidence zombie = shell;
  zombie.command = "python3";
  zombie.state = "Z";
  evidence.processes.insert(evidence.processes.begin(), zombie);
  EXPECT_EQ(PositionOf(evidence).function, "DataLoader.__next__");
}

TEST(StackGroupsTest, CollectivesOfManyLibrariesAreKnown) {
  for (const auto& [module, function] :
       std::vector<std::pair<const char*, const char*>>{
           {"torch.distributed.distributed_c10d", "all_gather_into_tensor"},
           {"horovod.torch.mpi_ops", "allreduce"},
           {"jax.experimental.multihost_utils", "sync_global_devices"},
           {"libtorch_cpu.so",
            "c10d::ProcessGroupGloo::allreduce(std::vector<at::Tensor>&)"},
           {"libnccl.so.2", "ncclAllReduce"},
           {"train", "Comm.barrier"}}) {
    const RankEvidence rank =
        Rank(0, {{module, function, "", 0, true},
                 {"train", "main", "train.py", 1, false}});
    EXPECT_EQ(PositionOf(rank).activity, RankActivity::kInCollective)
        << function;
  }
  // Threads of one process wait for each other there.
  const RankEvidence rank =
      Rank(0, {{"threading", "Barrier.wait", "threading.py", 1, true},
               {"threading", "barrier", "threading.py", 1, true},
               {"train", "main", "train.py", 1, false}});
  EXPECT_EQ(PositionOf(rank).activity, RankActivity::kWaits);
}

TEST(StackGroupsTest, AWrapperOfACollectiveIsNotWhatIsCalled) {
  Frames wrapped = Reducing();
  wrapped.insert(wrapped.begin() + 1, {"torch.distributed.c10d_logger",
                                       "_exception_logger.<locals>.wrapper",
                                       "c10d_logger.py", 83, true});
  EXPECT_EQ(Describe(PositionOf(Rank(0, wrapped))),
            "waits in all_reduce (train.py:90)");
  EXPECT_EQ(Describe(PositionOf(Rank(0, wrapped, "T"))),
            "is stopped by a signal or a debugger in all_reduce (train.py:90)");
}

TEST(StackGroupsTest, AnImportIsCalledSo) {
  EXPECT_EQ(
      Describe(PositionOf(Rank(
          0,
          {{"torch", "<module>", "__init__.py", 3384, true},
           {"importlib", "_find_and_load", "<frozen importlib>", 1176, true},
           {"train", "<module>", "train.py", 1, false}},
          "R"))),
      "runs in an import (train.py:1)");
}

// As libdw reads a Python process: the interpreter's frames, no program's.
Frames Interpreter(Frames called) {
  for (const char* function :
       {"PyObject_Vectorcall", "_PyEval_EvalFrameDefault", "_PyEval_Vector",
        "PyEval_EvalCode", "Py_RunMain", "__libc_start_main", "_start"}) {
    called.push_back({"libpython3.11.so.1.0", function, "ceval.c", 4769,
                      std::string_view(function) != "_start"});
  }
  return called;
}

TEST(HangVerdictTest, WithoutPySpyTheFunctionOfCIsTold) {
  const Frames waiting = Interpreter(
      {{"libc.so.6", "pthread_cond_wait", "", 0, true},
       {"libtorch_cpu.so", "c10d::Work::wait(std::chrono::duration)", "", 0,
        true},
       {"libtorch_python.so", "pybind11::cpp_function::dispatcher(_object*)",
        "", 0, true},
       {"python", "cfunction_vectorcall_NOARGS", "methodobject.c", 443, true}});
  const Frames locked = Interpreter(
      {{"libc.so.6", "?", "", 0, true},
       {"python", "PyThread_acquire_lock_timed", "thread_pthread.h", 497, true},
       {"python", "acquire_timed", "_threadmodule.c", 98, true},
       {"python", "lock_PyThread_acquire_lock", "_threadmodule.c", 179, true},
       {"python", "method_vectorcall_NOARGS", "descrobject.c", 364, true}});
  const HangVerdict verdict = Judge({Rank(0, waiting), Rank(1, locked)});
  EXPECT_EQ(verdict.sentence,
            "rank 1 waits in lock_PyThread_acquire_lock; 1 rank waits for it "
            "in c10d::Work::wait");
  EXPECT_THAT(verdict.cause, ElementsAre(1));
  EXPECT_EQ(Describe(PositionOf(Rank(0, Interpreter({}), "R"))),
            "runs in Python's interpreter");
}

TEST(HangVerdictTest, TheRankThatIsNotInTheCollectiveIsNamed) {
  std::vector<RankEvidence> evidence;
  for (int32_t rank = 0; rank < 64; ++rank) {
    evidence.push_back(Rank(rank, rank == 17 ? Loading() : Reducing()));
  }
  const HangVerdict verdict = Judge(evidence);
  EXPECT_EQ(verdict.sentence,
            "rank 17 waits in DataLoader.__next__ (train.py:88); 63 ranks wait "
            "for it in all_reduce");
  EXPECT_THAT(verdict.cause, ElementsAre(17));
}

TEST(HangVerdictTest, OfTwoRanksTheOneOutsideIsNamed) {
  const HangVerdict verdict = Judge({Rank(0, Loading()), Rank(1, Reducing())});
  EXPECT_EQ(verdict.sentence,
            "rank 0 waits in DataLoader.__next__ (train.py:88); 1 rank waits "
            "for it in all_reduce");
  EXPECT_THAT(verdict.cause, ElementsAre(0));
}

// The Python package, installed or beside the program, and its library.
TEST(HangVerdictTest, RanksThatWaitInLockstepItselfWaitForTheOthers) {
  const Frames in_package = {
      {"liblockstep.so.0", "lockstep_work_wait", "", 0, true},
      {"lockstep._group", "Work.wait", "_group.py", 106, true},
      {"train", "step", "train.py", 90, false}};
  const Frames beside = {{"_group", "wait", "_group.py", 106, false},
                         {"train", "step", "train.py", 90, false}};
  const Frames native = {{"program", "lockstep_work_wait", "", 0, false}};
  for (const Frames& frames : {in_package, beside, native}) {
    const HangVerdict verdict = Judge({Rank(0, Loading()), Rank(1, frames)});
    EXPECT_THAT(verdict.sentence,
                HasSubstr("1 rank waits for it in lockstep's collective"));
    EXPECT_THAT(verdict.cause, ElementsAre(0));
  }
  const Frames left = {
      {"lockstep._session", "Session._wait", "_session.py", 500, true},
      {"lockstep._recovery", "Membership._leave", "_recovery.py", 220, true},
      {"lockstep._recovery", "Membership.recover", "_recovery.py", 180, true},
      {"train", "step", "train.py", 90, false}};
  const HangVerdict verdict = Judge({Rank(0, left), Rank(1, Loading())});
  EXPECT_THAT(verdict.sentence, HasSubstr("1 rank waits for it in a recovery"));
  EXPECT_THAT(verdict.cause, ElementsAre(1));
  const Frames forms = {
      {"lockstep._session", "Session._wait", "_session.py", 500, true},
      {"lockstep._recovery", "_Rendezvous.get", "_recovery.py", 50, true},
      {"lockstep._recovery", "Membership._form", "_recovery.py", 200, true},
      {"train", "step", "train.py", 90, false}};
  EXPECT_THAT(Judge({Rank(0, forms), Rank(1, Loading())}).sentence,
              HasSubstr("1 rank waits for it in the forming of a group"));
}

TEST(HangVerdictTest, ASpinningRankRuns) {
  const Frames spin = {{"train", "augment", "train.py", 31, false}};
  const HangVerdict verdict =
      Judge({Rank(0, spin, "R"), Rank(1, Reducing()), Rank(2, Reducing())});
  EXPECT_EQ(verdict.sentence,
            "rank 0 runs in augment (train.py:31); 2 ranks wait for it in "
            "all_reduce");
}

TEST(HangVerdictTest, AStoppedRankIsNamedWhereverItStopped) {
  const HangVerdict verdict = Judge(
      {Rank(0, Reducing()), Rank(1, Reducing(), "T"), Rank(2, Reducing())});
  EXPECT_THAT(verdict.sentence,
              HasSubstr("rank 1 is stopped by a signal or a debugger"));
  EXPECT_THAT(verdict.sentence, HasSubstr("2 ranks wait for it"));
  EXPECT_THAT(verdict.cause, ElementsAre(1));
  EXPECT_THAT(verdict.hints, ElementsAre(HasSubstr("kill -CONT")));
  // Its stack need not be known, nor that of others.
  EXPECT_THAT(Judge({Rank(0, {}), Rank(1, {}, "T")}, {2}).cause,
              ElementsAre(1));
}

TEST(HangVerdictTest, ARankWithoutAProcessIsNamed) {
  RankEvidence gone;
  gone.rank = 1;
  gone.node = "b";
  const HangVerdict verdict = Judge({Rank(0, Reducing()), gone});
  EXPECT_EQ(verdict.sentence,
            "rank 1 has no process; 1 rank waits for it in all_reduce");
  EXPECT_THAT(verdict.cause, ElementsAre(1));
}

TEST(HangVerdictTest, ARankInTheKernelIsNamedWithWhatHoldsIt) {
  RankEvidence stuck = Rank(1, Loading(), "D");
  stuck.processes[0].threads[0].wait_channel = "nfs_wait_bit_killable";
  const HangVerdict verdict = Judge({Rank(0, Reducing()), stuck});
  EXPECT_THAT(verdict.sentence, HasSubstr("rank 1 is stuck in the kernel, in "
                                          "nfs_wait_bit_killable"));
  EXPECT_THAT(verdict.cause, ElementsAre(1));
}

TEST(HangVerdictTest, WhenAllWaitInOneCallNoneIsNamed) {
  const HangVerdict verdict =
      Judge({Rank(0, Reducing()), Rank(1, Reducing()), Rank(2, Reducing())});
  EXPECT_THAT(verdict.cause, IsEmpty());
  EXPECT_THAT(verdict.sentence,
              HasSubstr("cannot be known, because all 3 ranks wait in "
                        "all_reduce (train.py:90)"));
}

TEST(HangVerdictTest, DifferentCallsAreToldButNoRankIsBlamed) {
  const HangVerdict verdict = Judge(
      {Rank(0, Reducing(90)), Rank(1, Reducing(95)), Rank(2, Reducing(90))});
  EXPECT_THAT(verdict.cause, IsEmpty());
  EXPECT_THAT(verdict.sentence,
              HasSubstr("ranks 0 and 2 in all_reduce (train.py:90), rank 1 in "
                        "all_reduce (train.py:95)"));
}

TEST(HangVerdictTest, ARankThatCouldNotBeReadKeepsOthersFromBlame) {
  const HangVerdict silent =
      Judge({Rank(0, Loading()), Rank(1, Reducing())}, {2, 3});
  EXPECT_THAT(silent.cause, IsEmpty());
  EXPECT_THAT(silent.sentence,
              HasSubstr("cannot be known, because ranks 2 and 3 could not be "
                        "read; rank 0 waits in DataLoader.__next__"));
  RankEvidence unread = Rank(1, {});
  unread.processes[0].stack_error =
      "py-spy is not installed here (pip install py-spy)";
  const HangVerdict without = Judge({Rank(0, Reducing()), unread});
  EXPECT_THAT(without.cause, IsEmpty());
  EXPECT_THAT(without.sentence, HasSubstr("py-spy is not installed"));
  EXPECT_THAT(without.hints, ElementsAre(HasSubstr("pip install py-spy")));
}

TEST(HangVerdictTest, FewWaitingForMostBlamesNone) {
  // A step that goes well: one rank is ahead of the others.
  const Frames forward = {{"train", "forward", "train.py", 40, false}};
  const HangVerdict verdict =
      Judge({Rank(0, Reducing()), Rank(1, forward, "R"), Rank(2, forward, "R"),
             Rank(3, forward, "R")});
  EXPECT_THAT(verdict.cause, IsEmpty());
  EXPECT_EQ(verdict.sentence,
            "ranks 1-3 run in forward (train.py:40); 1 rank waits for them in "
            "all_reduce");
}

TEST(HangVerdictTest, WithoutCollectivesNoneIsNamed) {
  const Frames sleeping = {{"train", "idle", "train.py", 7, false}};
  const HangVerdict verdict =
      Judge({Rank(0, sleeping), Rank(1, sleeping), Rank(2, Loading())});
  EXPECT_THAT(verdict.cause, IsEmpty());
  EXPECT_THAT(verdict.sentence, HasSubstr("cannot be known"));
  EXPECT_THAT(verdict.sentence,
              HasSubstr("ranks 0 and 1 wait in idle (train.py:7)"));
  EXPECT_EQ(Judge({Rank(0, sleeping)}).sentence,
            "rank 0 waits in idle (train.py:7)");
  EXPECT_THAT(Judge({}).sentence, HasSubstr("cannot be known"));
}

TEST(HangVerdictTest, DifferencesOfRanks) {
  std::vector<RankEvidence> evidence;
  for (int32_t rank = 0; rank < 4; ++rank) {
    RankEvidence one = Rank(rank, Reducing());
    one.readings["cpu.some.avg10"] = rank == 2 ? 43 : 1;
    one.readings["gpu" + std::to_string(rank) + ".clock_sm"] =
        rank == 3 ? 400e6 : 1700e6;
    if (rank == 1) one.readings["gpu1.xid"] = 79;
    if (rank == 0) one.processes[0].swap_bytes = int64_t{1} << 30;
    evidence.push_back(std::move(one));
  }
  EXPECT_THAT(
      DifferencesOf(evidence),
      testing::UnorderedElementsAre(
          HasSubstr("rank 1: GPU 1 of a reported Xid 79"),
          HasSubstr("rank 0 has 1 GiB in swap"),
          HasSubstr("rank 2 waited for a processor for 43 % of the time"),
          HasSubstr("rank 3 has a GPU at 400000000 Hz")));
  EXPECT_THAT(DifferencesOf({Rank(0, {}), Rank(1, {})}), IsEmpty());
}

TEST(RankListTest, ManyRanksInFewWords) {
  EXPECT_EQ(RankList({3}), "rank 3");
  EXPECT_EQ(RankList({0, 1}), "ranks 0 and 1");
  EXPECT_EQ(RankList({0, 1, 2, 7}), "ranks 0-2 and 7");
  EXPECT_EQ(RankList({0, 1, 2, 3, 8, 10}), "ranks 0-3, 8 and 10");
  std::vector<int32_t> even;
  for (int32_t rank = 0; rank < 40; rank += 2) even.push_back(rank);
  EXPECT_EQ(RankList(even), "ranks 0, 2, 4, 6, 8, 10 and 14 more");
}

}  // namespace
}  // namespace lockstep::server
