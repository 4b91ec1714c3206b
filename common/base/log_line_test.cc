#include "common/base/log_line.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>

namespace lockstep::cri {
namespace {

// What a terminal shows of a line whose parts are these.
std::string Shown(std::initializer_list<std::string_view> parts) {
  std::string line;
  for (const std::string_view part : parts) AppendToLine(part, &line);
  return std::string(ShownLine(line));
}

TEST(LogLineTest, ACarriageReturnOverwrites) {
  EXPECT_EQ(Shown({"a", "b"}), "ab");
  EXPECT_EQ(Shown({"10%\r20%\r30%"}), "30%");
  EXPECT_EQ(Shown({"10%", "\r20%", " eta", "\r30%"}), "30%");
  // It overwrites nothing before there is something to write.
  EXPECT_EQ(Shown({"10%\r", "20%\r"}), "20%");
  EXPECT_EQ(Shown({"10%\r", "\r", "\r"}), "10%");
  EXPECT_EQ(Shown({"\r", "10%"}), "10%");
  EXPECT_EQ(Shown({"\r"}), "");
  EXPECT_EQ(Shown({""}), "");
}

TEST(LogLineTest, ABarThatIsRedrawnForHoursStaysShort) {
  std::string line;
  for (int i = 0; i < 100'000; ++i) {
    AppendToLine("\r" + std::to_string(i), &line);
    ASSERT_LE(line.size(), 10u);
  }
  EXPECT_EQ(ShownLine(line), "99999");
}

TEST(Rfc3339Test, KnownInstants) {
  EXPECT_EQ(FormatRfc3339Nano(0), "1970-01-01T00:00:00.000000000Z");
  EXPECT_EQ(FormatRfc3339Nano(-1), "1969-12-31T23:59:59.999999999Z");
  EXPECT_EQ(FormatRfc3339Nano(1'709'164'800'000'000'001),
            "2024-02-29T00:00:00.000000001Z");
  EXPECT_EQ(FormatRfc3339Nano(INT64_MAX), "2262-04-11T23:47:16.854775807Z");
}

TEST(Rfc3339Test, EveryDayOfFiveCenturiesComesBack) {
  constexpr int64_t kDay = int64_t{86400} * 1'000'000'000;
  for (int64_t day = -100'000; day < 100'000; ++day) {
    const int64_t nanos = day * kDay + 123'456'789;
    int64_t got = 0;
    ASSERT_TRUE(ParseRfc3339Nano(FormatRfc3339Nano(nanos), &got)) << day;
    ASSERT_EQ(got, nanos);
  }
}

TEST(Rfc3339Test, FractionsAndZones) {
  int64_t nanos = 0;
  EXPECT_TRUE(ParseRfc3339Nano("1970-01-01T00:00:01Z", &nanos));
  EXPECT_EQ(nanos, 1'000'000'000);
  EXPECT_TRUE(ParseRfc3339Nano("1970-01-01T00:00:00.5Z", &nanos));
  EXPECT_EQ(nanos, 500'000'000);
  EXPECT_TRUE(ParseRfc3339Nano("1970-01-01T02:00:00+02:00", &nanos));
  EXPECT_EQ(nanos, 0);
  for (const char* bad :
       {"", "1970-01-01", "1970-13-01T00:00:00Z", "1970-02-29T00:00:00Z",
        "1970-04-31T00:00:00Z", "1970-01-01T24:00:00Z", "1970-01-01T00:00:00.Z",
        "1970-01-01T00:00:00.1234567890Z", "1970-01-01T00:00:00",
        "1970-01-01T00:00:00Zx", "0000-01-01T00:00:00Z",
        "9999-01-01T00:00:00Z"}) {
    EXPECT_FALSE(ParseRfc3339Nano(bad, &nanos)) << bad;
  }
}

TEST(LogLineTest, ComesBackAsItWas) {
  for (const char* text : {"", "hello", " two  spaces ", "\r\x01\xff"}) {
    for (const bool full : {true, false}) {
      for (const LogStream stream : {LogStream::kStdout, LogStream::kStderr}) {
        std::string bytes;
        AppendLogLine({1'700'000'000'123'456'789, stream, full, text}, &bytes);
        EXPECT_EQ(bytes.back(), '\n');
        LogLine line;
        std::string error;
        ASSERT_TRUE(ParseLogLine(bytes, &line, &error)) << error;
        EXPECT_EQ(line.unix_nanos, 1'700'000'000'123'456'789);
        EXPECT_EQ(line.stream, stream);
        EXPECT_EQ(line.full, full);
        EXPECT_EQ(line.text, text);
      }
    }
  }
}

TEST(LogLineTest, IsWhatKubernetesWrites) {
  LogLine line;
  std::string error;
  ASSERT_TRUE(
      ParseLogLine("2016-10-06T00:17:09.669794202Z stdout P log content 1\n",
                   &line, &error));
  EXPECT_FALSE(line.full);
  EXPECT_EQ(line.text, "log content 1");
}

TEST(LogLineTest, EveryTruncationOfTheHeaderIsRefused) {
  const std::string bytes = "2016-10-06T00:17:09.669794202Z stderr F ";
  for (size_t size = 0; size < bytes.size(); ++size) {
    LogLine line;
    std::string error;
    EXPECT_FALSE(ParseLogLine(bytes.substr(0, size), &line, &error)) << size;
    EXPECT_FALSE(error.empty());
  }
}

}  // namespace
}  // namespace lockstep::cri
