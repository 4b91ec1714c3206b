// The files of /proc and cgroupfs, as kernels write them.
#include "worker/evidence/proc_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <string>

#include "worker/evidence/stacks.h"

namespace lockstep::worker::evidence {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(ProcPartsTest, StatusOfAProcess) {
  const ProcessStatus status = ParseProcessStatus(
      "Name:\tpython3\nUmask:\t0022\nState:\tS (sleeping)\nTracerPid:\t17\n"
      "Uid:\t1000\t1001\t1000\t1000\nGid:\t100\t100\t100\t100\n"
      "VmRSS:\t   12 kB\nVmSwap:\t  3 kB\n");
  EXPECT_EQ(status.uid, 1000u);
  EXPECT_EQ(status.gid, 100u);
  EXPECT_EQ(status.resident_bytes, 12 * 1024);
  EXPECT_EQ(status.swap_bytes, 3 * 1024);
  EXPECT_EQ(status.tracer, 17);
  // A kernel thread has no memory.
  EXPECT_EQ(ParseProcessStatus("Name:\tkthreadd\n").resident_bytes, 0);
}

TEST(ProcPartsTest, SystemCallsHaveNames) {
  EXPECT_EQ(SystemCallOf(std::to_string(SYS_futex) + " 0x7f 0x0 0x1 0x0\n"),
            "futex");
  EXPECT_EQ(SystemCallOf("100000 0x0\n"), "syscall 100000");
  EXPECT_EQ(SystemCallOf("running\n"), "");
  EXPECT_EQ(SystemCallOf("-1 0x7ffd 0x7f\n"), "");
  EXPECT_EQ(SystemCallOf(""), "");
}

TEST(ProcPartsTest, StackOfTheKernel) {
  EXPECT_EQ(KernelStackOf("[<0>] futex_wait_queue+0x60/0x90\n"
                          "[<0>] do_syscall_64+0x5b/0xc0\n"),
            "futex_wait_queue\ndo_syscall_64");
  EXPECT_EQ(KernelStackOf(""), "");
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "[<0>] some_function+0x1/0x2\n";
  EXPECT_LE(KernelStackOf(deep).size(), kMaxEvidenceText);
}

TEST(ProcPartsTest, SocketsOfAProcess) {
  const std::string four =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when "
      "retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:1F90 0100007F:D431 01 00000010:00000400 00:00000000 "
      "00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0\n"
      "   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 "
      "00000000     0        0 5 1 0000000000000000 100 0 0 10 0\n";
  EXPECT_THAT(
      ParseSockets(four, "tcp", {4711}),
      ElementsAre(SocketEvidence{"tcp", "127.0.0.1:8080", "127.0.0.1:54321",
                                 "ESTABLISHED", 1024, 16}));
  const std::string six =
      "header\n"
      "   0: 00000000000000000000000001000000:0050 "
      "00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 "
      "00000000     0        0 9 1 0000000000000000 100 0 0 10 0\n";
  EXPECT_THAT(ParseSockets(six, "tcp6", {9}),
              ElementsAre(SocketEvidence{"tcp6", "[::1]:80", "[::]:0", "LISTEN",
                                         0, 0}));
  EXPECT_THAT(ParseSockets("header\n   0: x y z\n", "tcp", {1}), ElementsAre());
}

TEST(ProcPartsTest, PressureAndNumbers) {
  std::map<std::string, double> readings;
  AddPressure(
      "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\n"
      "full avg10=0.25 avg60=0.00 avg300=0.00 total=8\nother x\n",
      "memory", &readings);
  AddNumber("4096\n", "memory.current", &readings);
  AddNumber("max\n", "memory.max", &readings);
  AddNumbers("usage_usec 12\nnr_throttled 3\n", "cpu.stat", {"nr_throttled"},
             &readings);
  EXPECT_THAT(readings, UnorderedElementsAre(Pair("memory.some.avg10", 1.5),
                                             Pair("memory.full.avg10", 0.25),
                                             Pair("memory.current", 4096),
                                             Pair("cpu.stat.nr_throttled", 3)));
}

TEST(NativeStacksTest, NamesHaveNoArguments) {
  const auto name = [](const std::string& function) {
    const auto threads =
        ParseNativeStacks("thread 1\nframe a\t" + function + "\t\t0\t\n");
    EXPECT_TRUE(threads.ok()) << threads.status();
    return threads.ok() ? threads->at(0).frames.at(0).function : "";
  };
  EXPECT_EQ(name("c10d::Work::wait(std::chrono::duration<long>)"),
            "c10d::Work::wait");
  EXPECT_EQ(name("a::(anonymous namespace)::Run(int)"),
            "a::(anonymous namespace)::Run");
  EXPECT_EQ(name("a::F<void (int)>::Call(int)"), "a::F<void (int)>::Call");
  EXPECT_EQ(name("a::F::operator()(int)"), "a::F::operator()(int)");
  EXPECT_EQ(name("read"), "read");
}

TEST(NativeStacksTest, LinesBecomeThreads) {
  const auto threads = ParseNativeStacks(
      "thread 12\nframe libc.so.6\tread\t\t0\tlibrary\n"
      "frame train\tmain\ttrain.cc\t88\tprogram\nthread 13\n");
  ASSERT_TRUE(threads.ok()) << threads.status();
  ASSERT_EQ(threads->size(), 2u);
  EXPECT_EQ(threads->at(0).id, 12);
  EXPECT_THAT(threads->at(0).frames,
              ElementsAre(StackFrame{"libc.so.6", "read", "", 0, true},
                          StackFrame{"train", "main", "train.cc", 88, false}));
  EXPECT_TRUE(threads->at(1).frames.empty());
  for (const char* text : {"", "x\n", "frame a\tb\tc\t1\tlibrary\n"}) {
    EXPECT_EQ(ParseNativeStacks(text).status().code(), StatusCode::kDataLoss)
        << text;
  }
}

TEST(NativeStacksTest, StacksJoinTheThreadsOfProc) {
  ProcessEvidence process;
  process.threads.resize(2);
  process.threads[0].id = 1;
  process.threads[0].name = "python3";
  process.threads[0].state = "S";
  process.threads[1].id = 2;
  ThreadEvidence stack;
  stack.id = 1;
  stack.name = "MainThread";
  stack.main = true;
  stack.frames = {{"train", "main", "train.py", 1, false}};
  ThreadEvidence newer;
  newer.id = 3;
  MergeStacks({stack, newer}, &process);
  ASSERT_EQ(process.threads.size(), 3u);
  EXPECT_EQ(process.threads[0].name, "MainThread");
  EXPECT_EQ(process.threads[0].state, "S");
  EXPECT_EQ(process.threads[0].frames.size(), 1u);
  EXPECT_EQ(process.threads[2].id, 3);
}

// JAX: the main thread waits in its library, and a thread of that reduces.
TEST(NativeStacksTest, AFrameworksFramesJoinThoseOfPython) {
  const StackFrame waits = {"libjax_common.so", "jax::AwaitBuffersReady", "", 0,
                            true};
  const StackFrame reduces = {"libjax_common.so", "gloo::allreduce", "", 0,
                              true};
  const StackFrame futex = {"libc.so.6", "?", "", 0, true};
  const StackFrame python = {"train", "step", "train.py", 9, false};
  ProcessEvidence process;
  process.threads.resize(1);
  process.threads[0].id = 1;
  process.threads[0].main = true;
  process.threads[0].frames = {python};
  const auto thread = [](int64_t id, std::vector<StackFrame> frames) {
    ThreadEvidence evidence;
    evidence.id = id;
    evidence.frames = std::move(frames);
    return evidence;
  };
  MergeFramework({thread(1, {futex, waits}), thread(2, {futex, reduces}),
                  thread(3, {futex, reduces}), thread(4, {futex})},
                 &process);
  ASSERT_EQ(process.threads.size(), 2u) << "one of those that do the same";
  EXPECT_EQ(process.threads[0].frames,
            (std::vector<StackFrame>{waits, python}));
  EXPECT_EQ(process.threads[1].id, 2);
  EXPECT_EQ(process.threads[1].frames, (std::vector<StackFrame>{reduces}));
}

}  // namespace
}  // namespace lockstep::worker::evidence
