#include "common/rpc/audit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "common/base/file.h"
#include "common/base/random.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr WallTime kNow = WallTime(std::chrono::seconds(1'700'000'000));

class AuditLogTest : public testing::Test {
 protected:
  AuditLogTest() {
    dir_ = testing::TempDir() + "audit-" + RandomHex(8);
    EXPECT_TRUE(RealFileSystem()->MakeDirs(dir_).ok());
    path_ = JoinPath(dir_, "audit.log");
  }
  ~AuditLogTest() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }

  static std::vector<json> Lines(const std::string& path) {
    std::vector<json> lines;
    std::istringstream text(RealFileSystem()->Read(path).value());
    for (std::string line; std::getline(text, line);) {
      lines.push_back(json::parse(line));
    }
    return lines;
  }

  std::string dir_;
  std::string path_;
};

TEST_F(AuditLogTest, OneObjectALineThatARestartAppendsTo) {
  for (const char* target : {"mnist", "other"}) {
    auto log = AuditLog::Open({.path = path_});
    ASSERT_TRUE(log.ok()) << Message(log.status());
    (*log)->Write({"user ann (submitter)", "ipv4:10.0.0.7:4", "/a.B/C", target,
                   OkStatus()},
                  kNow);
  }
  const std::vector<json> lines = Lines(path_);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], json({{"time", FormatWallTime(kNow)},
                            {"caller", "user ann (submitter)"},
                            {"address", "ipv4:10.0.0.7:4"},
                            {"method", "/a.B/C"},
                            {"target", "mnist"},
                            {"code", "OK"},
                            {"refused", false}}));
  EXPECT_EQ(lines[1]["target"], "other");
  struct stat info = {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(AuditLogTest, NoByteOfACallerMakesALineOrAField) {
  auto log = AuditLog::Open({.path = path_});
  ASSERT_TRUE(log.ok()) << Message(log.status());
  const std::string forged =
      "x\n{\"caller\":\"user eve "
      "(admin)\"}\r\x1b[2J\xff\xe2\x80\xae\",\"code\"";
  (*log)->Write({forged, forged, forged, forged + std::string(10 << 20, 'y'),
                 PermissionDenied("{}", forged)},
                kNow);
  const std::string text = RealFileSystem()->Read(path_).value();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_TRUE(std::all_of(text.begin(), text.end() - 1,
                          [](char c) { return c >= 0x20 && c < 0x7f; }));
  EXPECT_LT(text.size(), 4096u);
  const std::vector<json> lines = Lines(path_);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["code"], "PERMISSION_DENIED");
  EXPECT_EQ(lines[0]["refused"], true);
}

TEST_F(AuditLogTest, FilesAreRotatedAndCounted) {
  auto log = AuditLog::Open({.path = path_, .max_bytes = 1000, .keep = 2});
  ASSERT_TRUE(log.ok()) << Message(log.status());
  for (int i = 0; i < 100; ++i) {
    (*log)->Write(
        {"user ann (admin)", "", "/a.B/C", std::to_string(i), OkStatus()},
        kNow);
  }
  EXPECT_THAT(RealFileSystem()->List(dir_).value(),
              testing::ElementsAre("audit.1.log", "audit.2.log", "audit.log"));
  EXPECT_EQ(Lines(path_).back()["target"], "99");
  for (const char* name : {"audit.log", "audit.1.log"}) {
    struct stat info = {};
    ASSERT_EQ(::stat(JoinPath(dir_, name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0640u) << name;
    EXPECT_LE(info.st_size, 1000) << name;
  }
}

// A directory in its way, as a file system that refuses for a while.
TEST_F(AuditLogTest, WhatCannotBeRotatedGrowsOnAndIsRotatedLater) {
  const std::string in_the_way = JoinPath(dir_, "audit.1.log");
  ASSERT_TRUE(RealFileSystem()->MakeDirs(JoinPath(in_the_way, "x")).ok());
  auto log = AuditLog::Open(
      {.path = path_, .max_bytes = 1000, .keep = 1, .retry = Duration()});
  ASSERT_TRUE(log.ok()) << Message(log.status());
  const auto write = [&](int i) {
    (*log)->Write(
        {"user ann (admin)", "", "/a.B/C", std::to_string(i), OkStatus()},
        kNow);
  };
  for (int i = 0; i < 20; ++i) write(i);
  const std::vector<json> lines = Lines(path_);
  ASSERT_EQ(lines.size(), 20u) << "none is lost";
  EXPECT_EQ(lines.front()["target"], "0");
  ASSERT_TRUE(RealFileSystem()->RemoveAll(in_the_way).ok());
  write(20);
  EXPECT_EQ(Lines(in_the_way).size(), 20u);
  EXPECT_EQ(Lines(path_).size(), 1u);
}

TEST_F(AuditLogTest, AFailedRotationIsNotTriedWithEachRecord) {
  const std::string in_the_way = JoinPath(dir_, "audit.1.log");
  ASSERT_TRUE(RealFileSystem()->MakeDirs(JoinPath(in_the_way, "x")).ok());
  auto log = AuditLog::Open({.path = path_,
                             .max_bytes = 1,
                             .keep = 1,
                             .retry = std::chrono::hours(1)});
  ASSERT_TRUE(log.ok()) << Message(log.status());
  const AuditRecord record{"user ann (admin)", "", "/a.B/C", "x", OkStatus()};
  for (int i = 0; i < 3; ++i) (*log)->Write(record, kNow);
  ASSERT_TRUE(RealFileSystem()->RemoveAll(in_the_way).ok());
  (*log)->Write(record, kNow);
  EXPECT_EQ(Lines(path_).size(), 4u);
}

// A directory in its way, as one that may not be written to.
TEST_F(AuditLogTest, ADirectoryThatTakesNoFileIsRefusedAtTheStart) {
  ASSERT_TRUE(RealFileSystem()->MakeDirs(path_ + ".check").ok());
  const auto log = AuditLog::Open({.path = path_});
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(log.status()), testing::HasSubstr(path_ + ".check"));
}

TEST_F(AuditLogTest, ThreadsWriteWholeLines) {
  auto log = AuditLog::Open({.path = path_});
  ASSERT_TRUE(log.ok()) << Message(log.status());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log] {
      for (int i = 0; i < 250; ++i) {
        (*log)->Write({"user ann (admin)", "", "/a.B/C", "x", OkStatus()},
                      kNow);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Lines(path_).size(), 1000u);
}

// /dev/full takes an open and refuses each write with ENOSPC.
TEST_F(AuditLogTest, WhatCannotBeWrittenIsInTheLog) {
  auto log = AuditLog::Open({.path = "/dev/full"});
  ASSERT_TRUE(log.ok()) << Message(log.status());
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  (*log)->Write({"user ann (admin)", "", "/a.B/C", "mnist", OkStatus()}, kNow);
  const std::string said = testing::internal::GetCapturedStderr() +
                           testing::internal::GetCapturedStdout();
  EXPECT_THAT(said, testing::HasSubstr("the audit log /dev/full cannot be "));
  EXPECT_THAT(said, testing::HasSubstr("user ann (admin)"));
  EXPECT_THAT(said, testing::HasSubstr("\"mnist\": OK"));
}

TEST_F(AuditLogTest, APathThatCannotBeOpenedIsRefused) {
  const auto log = AuditLog::Open({.path = "/proc/none/audit.log"});
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(log.status()), testing::HasSubstr("/proc/none"));
}

}  // namespace
}  // namespace lockstep
