#include "common/rpc/audit_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/random.h"

namespace lockstep {
namespace {

using nlohmann::json;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;
using testing::SizeIs;

class AuditRecorderTest : public testing::Test {
 protected:
  AuditRecorderTest() {
    dir_ = testing::TempDir() + "recorder-" + RandomHex(8);
    EXPECT_TRUE(RealFileSystem()->MakeDirs(dir_).ok());
    log_ = AuditLog::Open({.path = JoinPath(dir_, "audit.log")}).value();
    options_.log = log_.get();
    options_.space = [this] { return space_; };
    Make();
  }
  ~AuditRecorderTest() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  void Make() { recorder_ = std::make_unique<AuditRecorder>(options_); }

  std::vector<json> Lines() const {
    std::vector<json> lines;
    std::istringstream text(
        RealFileSystem()->Read(JoinPath(dir_, "audit.log")).value());
    for (std::string line; std::getline(text, line);) {
      lines.push_back(json::parse(line));
    }
    return lines;
  }
  void Refuse(const std::string& who = "user vera (viewer)",
              const std::string& method = "/a.B/C",
              const std::string& target = "",
              const Status& answer = PermissionDenied("no")) {
    recorder_->Record({who, "", method, target, answer}, now_);
  }
  void Pass(Duration time) {
    now_.mono += time;
    now_.wall += time;
  }

  std::string dir_;
  Status space_;
  std::unique_ptr<AuditLog> log_;
  AuditRecorderOptions options_;
  std::unique_ptr<AuditRecorder> recorder_;
  Time now_{MonoTime(1'000s), WallTime(1'700'000'000s)};
};

TEST_F(AuditRecorderTest, ALoopOfRefusalsIsALineASecond) {
  for (int i = 0; i < 10'000; ++i) {
    Refuse("user vera (viewer)", "/a.B/C", std::to_string(i));
    Pass(1ms);
    recorder_->Flush(now_);
  }
  const std::vector<json> lines = Lines();
  EXPECT_GE(lines.size(), 9u);
  EXPECT_LE(lines.size(), 11u);
  EXPECT_FALSE(lines.front().contains("count")) << "the first at once";
  EXPECT_EQ(lines.front()["target"], "0");
  EXPECT_EQ(lines[2]["count"], 1000);
  EXPECT_EQ(lines[2]["refused"], true);
  recorder_->Flush(now_, /*all=*/true);
  int64_t all = 0;
  for (const json& line : Lines()) all += line.value("count", 1);
  EXPECT_EQ(all, 10'000) << "none is left out of the count";
}

TEST_F(AuditRecorderTest, CallersMethodsAndAnswersAreToldApart) {
  for (int i = 0; i < 100; ++i) {
    Refuse("user vera (viewer)", "/a.B/C");
    Refuse("user vera (viewer)", "/a.B/D");
    Refuse("user carl (viewer)", "/a.B/C");
    Refuse("user vera (viewer)", "/a.B/C", "", ResourceExhausted("slower"));
    // Not refused, and nothing was done either.
    Refuse("user ann (submitter)", "/a.B/C", "", NotFound("no job"));
  }
  EXPECT_THAT(Lines(), SizeIs(5));
  Pass(1s);
  recorder_->Flush(now_);
  const std::vector<json> lines = Lines();
  ASSERT_THAT(lines, SizeIs(10));
  for (size_t i = 5; i < 10; ++i) EXPECT_EQ(lines[i]["count"], 99);
}

TEST_F(AuditRecorderTest, ActsAreAlwaysRecorded) {
  space_ = ResourceExhausted("full");
  for (int i = 0; i < 50; ++i) {
    Refuse("user ann (submitter)", "/a.B/C", std::to_string(i), OkStatus());
    // Whether it was carried out is not known.
    Refuse("user ann (submitter)", "/a.B/C", std::to_string(i),
           Cancelled("went away"));
  }
  EXPECT_THAT(Lines(), SizeIs(100));
}

TEST_F(AuditRecorderTest, OnAFullDiskRefusalsAreCountedAlone) {
  Refuse();
  Refuse();
  space_ = ResourceExhausted("full");
  for (int i = 0; i < 1'000; ++i) {
    Refuse("user " + std::to_string(i) + " (submitter)", "/a.B/C", "",
           ResourceExhausted("the disk is full"));
    Pass(10ms);
    recorder_->Flush(now_);
  }
  EXPECT_THAT(Lines(), SizeIs(1)) << "of before";
  space_ = OkStatus();
  recorder_->Flush(now_);
  const std::vector<json> lines = Lines();
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[1]["count"], 1000);
  EXPECT_THAT(
      lines[1]["message"].get<std::string>(),
      HasSubstr(
          "1000 rejected calls were not recorded because the disk was full"));
  EXPECT_EQ(lines[2]["caller"], "user vera (viewer)");
  recorder_->Flush(now_);
  EXPECT_THAT(Lines(), SizeIs(3)) << "it is said once";
}

TEST_F(AuditRecorderTest, TheTableIsBounded) {
  options_.most_kinds = 10;
  Make();
  for (int i = 0; i < 1'000; ++i) Refuse("user " + std::to_string(i));
  EXPECT_THAT(Lines(), SizeIs(11)) << "one line for all the others";
  Pass(1s);
  recorder_->Flush(now_);
  ASSERT_THAT(Lines(), SizeIs(12));
  EXPECT_EQ(Lines().back()["count"], 989);
  // A caller that has been quiet makes room.
  Pass(2s);
  Refuse("user new");
  EXPECT_EQ(Lines().back()["caller"], "user new");
  EXPECT_FALSE(Lines().back().contains("count"));
}

}  // namespace
}  // namespace lockstep
