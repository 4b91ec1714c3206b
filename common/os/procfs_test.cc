#include "common/os/procfs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "common/os/process.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

TEST(ParseTest, CpuTimesAreInSeconds) {
  const std::string text =
      "cpu  100 200 300 400 500 600 700 800 90 10\n"
      "cpu0 1 2 3 4 5 6 7 8 0 0\nintr 1 2\nctxt 5\nbtime 1700000000\n";
  const StatusOr<CpuSeconds> cpu = ParseCpuSeconds(text, 100);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_DOUBLE_EQ(cpu->user, 1);
  EXPECT_DOUBLE_EQ(cpu->iowait, 5);
  EXPECT_DOUBLE_EQ(cpu->steal, 8);
  EXPECT_DOUBLE_EQ(cpu->Busy(), 1 + 2 + 3 + 6 + 7 + 8);
  EXPECT_DOUBLE_EQ(cpu->Total(), 36);
  EXPECT_EQ(*ParseBootTime(text), 1700000000);
  EXPECT_FALSE(ParseCpuSeconds("", 100).ok());
  EXPECT_FALSE(ParseCpuSeconds("cpu 1 2 x", 100).ok());
  EXPECT_FALSE(ParseBootTime("btime x\n").ok());
}

TEST(ParseTest, LoadAndMemory) {
  const StatusOr<LoadAverage> load =
      ParseLoadAverage("0.52 1.25 12.00 2/345 6789\n");
  ASSERT_TRUE(load.ok());
  EXPECT_DOUBLE_EQ(load->one, 0.52);
  EXPECT_DOUBLE_EQ(load->fifteen, 12);
  EXPECT_FALSE(ParseLoadAverage("0.5 x").ok());

  const StatusOr<MemoryInfo> memory = ParseMemoryInfo(
      "MemTotal:       8000000 kB\nMemFree:         100 kB\n"
      "MemAvailable:    4000000 kB\nBuffers: 5 kB\nCached: 6 kB\n"
      "SwapCached: 9 kB\nSwapTotal: 7 kB\nSwapFree: 8 kB\n");
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->total, uint64_t{8000000} * 1024);
  EXPECT_EQ(memory->available, uint64_t{4000000} * 1024);
  EXPECT_EQ(memory->cached, 6u * 1024);
  EXPECT_EQ(memory->swap_free, 8u * 1024);
  EXPECT_FALSE(ParseMemoryInfo("MemFree: 1 kB\n").ok());
}

TEST(ParseTest, NetworkDevices) {
  const auto devices = ParseNetworkCounters(
      "Inter-|   Receive                     |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|...\n"
      "    lo:  10 1 0 0 0 0 0 0 20 2 0 0 0 0 0 0\n"
      "eth0:1234567890123 5 6 7 0 0 0 0 99 8 9 10 0 0 0 0\n");
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ(devices->at("lo").transmit_bytes, 20u);
  EXPECT_EQ(devices->at("eth0").receive_bytes, 1234567890123u);
  EXPECT_EQ(devices->at("eth0").receive_drops, 7u);
  EXPECT_EQ(devices->at("eth0").transmit_drops, 10u);
  EXPECT_FALSE(ParseNetworkCounters("a\nb\nlo: 1 2 3\n").ok());
}

constexpr char kStat[] =
    "4242 (a (b) c) S 1 4242 4240 0 -1 4194304 100 0 0 0 250 50 25 5 20 0 3 0 "
    "98765 10485760 256 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 0 0 "
    "0 0 0 0\n";

TEST(ParseTest, ACommandMayHoldBracketsAndSpaces) {
  const StatusOr<ProcessStat> stat = ParseProcessStat(kStat, 100, 4096);
  ASSERT_TRUE(stat.ok()) << stat.status();
  EXPECT_EQ(stat->pid, 4242);
  EXPECT_EQ(stat->command, "a (b) c");
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent, 1);
  EXPECT_EQ(stat->session, 4240);
  EXPECT_DOUBLE_EQ(stat->user_seconds, 2.5);
  EXPECT_DOUBLE_EQ(stat->children_system_seconds, 0.05);
  EXPECT_EQ(stat->threads, 3);
  EXPECT_EQ(stat->start_time, 98765u);
  EXPECT_EQ(stat->resident_bytes, 256u * 4096);
}

TEST(ParseTest, EveryTruncationOfAStatIsAnErrorOrComplete) {
  const std::string text = kStat;
  // Field 24 ends here; what follows is not read.
  const size_t enough = text.find(" 18446744073709551615");
  for (size_t size = 0; size < text.size(); ++size) {
    const bool ok = ParseProcessStat(text.substr(0, size), 100, 4096).ok();
    if (size >= enough) {
      EXPECT_TRUE(ok) << size;
    } else if (size + 4 <= enough) {
      EXPECT_FALSE(ok) << size;
    }
  }
}

TEST(ParseTest, ProcessIo) {
  const StatusOr<ProcessIo> io = ParseProcessIo(
      "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\n"
      "write_bytes: 6\ncancelled_write_bytes: 7\n");
  ASSERT_TRUE(io.ok());
  EXPECT_EQ(io->read_bytes, 5u);
  EXPECT_EQ(io->write_bytes, 6u);
  EXPECT_FALSE(ParseProcessIo("rchar: 1\n").ok());
}

TEST(TreeTest, DescendantsAreFoundAndCirclesEnd) {
  const auto process = [](pid_t pid, pid_t parent) {
    ProcessStat stat;
    stat.pid = pid;
    stat.parent = parent;
    return stat;
  };
  const std::vector<ProcessStat> all = {process(30, 20), process(20, 10),
                                        process(10, 1), process(21, 10),
                                        process(99, 1)};
  EXPECT_THAT(TreeOf(10, all), UnorderedElementsAre(10, 20, 21, 30));
  EXPECT_THAT(TreeOf(99, all), ElementsAre(99));
  EXPECT_THAT(TreeOf(5, {process(5, 6), process(6, 5)}), ElementsAre(5, 6));
}

TEST(ReadTest, ThisHostAndThisProcess) {
  const StatusOr<HostMetrics> host = ReadHostMetrics();
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_GT(host->cpu.Total(), 0);
  EXPECT_GT(host->memory.available, 0u);
  EXPECT_LE(host->memory.available, host->memory.total);
  EXPECT_TRUE(host->network.contains("lo"));
  const StatusOr<SelfMetrics> self = ReadSelfMetrics();
  ASSERT_TRUE(self.ok()) << self.status();
  EXPECT_GT(self->resident_bytes, 0u);
  EXPECT_GE(self->open_fds, 3);
  EXPECT_GT(self->max_fds, self->open_fds);
  EXPECT_GT(self->start_time_unix_seconds, 1.6e9);
  EXPECT_EQ(ReadProcessStat(-1).status().code(), StatusCode::kNotFound);
}

TEST(ReadTest, ATreeIsCountedWithItsDescendants) {
  SpawnOptions options;
  options.program = "/bin/sh";
  options.argv = {"sh", "-c", "sh -c 'sleep 1000; :' & sh -c 'sleep 1000; :'"};
  options.env = {"PATH=/usr/bin:/bin"};
  StatusOr<Process> process = Spawn(options);
  ASSERT_TRUE(process.ok()) << process.status();
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(60);
  StatusOr<TreeMetrics> tree =
      ReadTreeMetrics(process->id.pid, ReadAllProcesses());
  while ((!tree.ok() || tree->processes < 5) && MonotonicNow() < deadline) {
    std::this_thread::yield();
    tree = ReadTreeMetrics(process->id.pid, ReadAllProcesses());
  }
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->processes, 5);
  EXPECT_EQ(tree->threads, 5);
  EXPECT_GT(tree->resident_bytes, 0u);
  for (const pid_t pid : TreeOf(process->id.pid, ReadAllProcesses())) {
    const StatusOr<uint64_t> start = StartTime(pid);
    if (!start.ok()) continue;
    StatusOr<Process> each = OpenVerified({pid, *start});
    if (each.ok()) (void)SendSignal(*each, SIGKILL);
  }
  EXPECT_TRUE(WaitExit(*process, deadline).ok());
  EXPECT_EQ(
      ReadTreeMetrics(process->id.pid, ReadAllProcesses()).status().code(),
      StatusCode::kNotFound);
}

}  // namespace
}  // namespace lockstep
