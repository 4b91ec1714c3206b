#include "common/base/host_port.h"

#include <gtest/gtest.h>

#include "common/base/version.h"

namespace lockstep {
namespace {

TEST(HostPortTest, ReadsWhatPeopleWrite) {
  const struct {
    const char* text;
    HostPort want;
  } cases[] = {
      {"127.0.0.1:0", {"127.0.0.1", 0}},
      {"host-a.example:7443", {"host-a.example", 7443}},
      {"[::1]:65535", {"::1", 65535}},
  };
  for (const auto& c : cases) {
    const StatusOr<HostPort> got = ParseHostPort(c.text);
    ASSERT_TRUE(got.ok()) << Message(got.status());
    EXPECT_EQ(*got, c.want);
    EXPECT_EQ(FormatHostPort(*got), c.text);
  }
}

TEST(HostPortTest, RefusesTheRest) {
  for (const char* text :
       {"", "host", "host:", ":1", "::1:5", "[::1]", "[x]:1", "host:65536",
        "host:-1", "host:1x", "a b:1", "http://host:1"}) {
    EXPECT_EQ(ParseHostPort(text).status().code(), StatusCode::kInvalidArgument)
        << text;
  }
}

TEST(HostPortTest, LoopbackIsOnlyWhatCannotLeaveTheMachine) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host :
       {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "localhost.evil",
        "127.0.0.1.x", "::ffff:10.0.0.1", ""}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(VersionTest, IsThreeNumbers) {
  int major, minor, patch;
  EXPECT_EQ(std::sscanf(kVersion, "%d.%d.%d", &major, &minor, &patch), 3);
}

}  // namespace
}  // namespace lockstep
