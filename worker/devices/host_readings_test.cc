#include "worker/devices/host_readings.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace lockstep::worker::devices {
namespace {

TEST(HostReadingsTest, DiskStats) {
  const auto disks = ParseDiskStats(
      " 259       0 nvme0n1 100 5 2048 30 200 6 4096 40 0 1500 70 0 0 0 0\n"
      "   8       1 sda1 1 2\n"
      "nonsense\n");
  ASSERT_EQ(disks.size(), 1u);
  const DiskCounters& disk = disks.at("nvme0n1");
  EXPECT_EQ(disk.reads, 100u);
  EXPECT_EQ(disk.read_bytes, 2048u * 512);
  EXPECT_EQ(disk.writes, 200u);
  EXPECT_EQ(disk.written_bytes, 4096u * 512);
  EXPECT_DOUBLE_EQ(disk.io_seconds, 1.5);
}

TEST(HostReadingsTest, Pressure) {
  EXPECT_DOUBLE_EQ(
      ParsePressure("some avg10=1.7 avg60=1.3 avg300=1.0 total=4886658\n"
                    "full avg10=0.0 avg60=0.0 avg300=0.0 total=1\n")
          .value(),
      4.886658);
  EXPECT_FALSE(ParsePressure("").has_value());
  EXPECT_FALSE(ParsePressure("some total=x\n").has_value());
}

TEST(HostReadingsTest, EachCpu) {
  const auto cpus = ParseCpus(
      "cpu  10 0 20 30 0 0 0 0\ncpu0 4 0 8 12 1 0 0 0 0 0\n"
      "cpu7 6 0 12 18 0 0 0 0 0 0\nintr 5\n",
      2.0);
  ASSERT_EQ(cpus.size(), 2u);
  EXPECT_DOUBLE_EQ(cpus.at(0).user, 2);
  EXPECT_DOUBLE_EQ(cpus.at(0).iowait, 0.5);
  EXPECT_DOUBLE_EQ(cpus.at(7).idle, 9);
}

TEST(HostReadingsTest, MountsOfDisksOnce) {
  const auto mounts = ParseDiskMounts(
      "proc /proc proc rw 0 0\n/dev/sda1 / ext4 rw 0 0\n"
      "/dev/sda1 /bind ext4 rw 0 0\nserver:/x /mnt nfs4 rw 0 0\n"
      "/dev/loop0 /snap squashfs ro 0 0\n/dev/sdb1 /data xfs rw 0 0\n");
  ASSERT_EQ(mounts.size(), 2u);
  EXPECT_EQ(mounts[0].path, "/");
  EXPECT_EQ(mounts[1].type, "xfs");
}

TEST(HostReadingsTest, DevicesOfContainersAreNotTheHosts) {
  EXPECT_TRUE(IsHostNetworkDevice("eth0"));
  EXPECT_TRUE(IsHostNetworkDevice("bond0"));
  EXPECT_FALSE(IsHostNetworkDevice("lo"));
  EXPECT_FALSE(IsHostNetworkDevice("veth12ab"));
  EXPECT_FALSE(IsHostNetworkDevice("docker0"));
}

class HostRootTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-host-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Put(const std::string& path, const std::string& text) {
    const auto full = std::filesystem::path(root_ + "/" + path);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  std::string root_;
};

TEST_F(HostRootTest, WhatThereIs) {
  Put("proc/diskstats",
      " 8 0 sda 1 0 2 0 3 0 4 0 0 0 0\n 8 1 sda1 1 0 2 0 3 0 4 0 0 0 0\n"
      " 7 0 loop0 1 0 2 0 3 0 4 0 0 0 0\n");
  Put("sys/block/sda/size", "1\n");
  Put("sys/block/loop0/size", "1\n");
  Put("proc/pressure/io", "some avg10=0 avg60=0 avg300=0 total=2000000\n");
  Put("proc/vmstat", "nr_free_pages 5\noom_kill 3\n");
  Put("sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "10\n");
  Put("sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "20\n");
  Put("sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data", "N/A\n");
  const auto host = ReadHostReadings(root_);
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_EQ(host->disks.size(), 1u);
  EXPECT_EQ(host->disks.at("sda").written_bytes, 4u * 512);
  ASSERT_EQ(host->pressure.size(), 1u);
  EXPECT_DOUBLE_EQ(host->pressure.at("io"), 2);
  EXPECT_EQ(host->oom_kills, 3u);
  ASSERT_EQ(host->infiniband.size(), 1u);
  EXPECT_EQ(host->infiniband.at("mlx5_0/1").receive_bytes, 40u);
  EXPECT_EQ(host->infiniband.at("mlx5_0/1").transmit_bytes, 80u);
}

TEST_F(HostRootTest, WhatIsNotThereIsLeftOut) {
  const auto host = ReadHostReadings(root_);
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_TRUE(host->disks.empty());
  EXPECT_TRUE(host->pressure.empty());
  EXPECT_FALSE(host->oom_kills.has_value());
  EXPECT_GT(host->base.memory.total, 0u);
  EXPECT_GT(ReadFileSystemUse(root_).value().size_bytes, 0u);
  EXPECT_FALSE(ReadFileSystemUse(root_ + "/none").ok());
}

}  // namespace
}  // namespace lockstep::worker::devices
