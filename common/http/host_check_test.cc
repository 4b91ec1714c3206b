#include "common/http/host_check.h"

#include <gtest/gtest.h>

namespace lockstep::http {
namespace {

TEST(HostCheckTest, AddressesAndTheMachinesOwnNames) {
  int asked = 0;
  HostCheck check("127.0.0.1", "node7", [&] {
    ++asked;
    return "Node7.lab.example.";
  });
  for (const char* host :
       {"", "127.0.0.1", "127.0.0.1:7480", "10.0.0.7:1", "[::1]:7480", "[::1]",
        "localhost", "LocalHost:7480", "localhost.", "node7", "NODE7:7480"}) {
    EXPECT_TRUE(check.Admits(host)) << host;
  }
  for (const char* host :
       {"x", "evil.example", "evil.example:7480", "localhost.evil.example",
        "127.0.0.1.evil.example", "0x7f.1", "[evil.example]", "[::1", ":7480",
        "node", "node70"}) {
    EXPECT_FALSE(check.Admits(host)) << host;
  }
  EXPECT_EQ(asked, 0) << "the resolver is not asked for strangers";
  EXPECT_TRUE(check.Admits("node7.lab.example:7480"));
  EXPECT_FALSE(check.Admits("node7.evil.example"));
  EXPECT_FALSE(check.Admits("node7.lab.example.evil"));
  EXPECT_EQ(asked, 1);
}

TEST(HostCheckTest, WithoutAName) {
  HostCheck check("ip6-localhost", "", [] { return std::string(); });
  EXPECT_TRUE(check.Admits("ip6-localhost:80"));
  EXPECT_FALSE(check.Admits("evil.example"));
  EXPECT_FALSE(check.Admits("."));
}

TEST(HostCheckTest, TheMachineHasAName) {
  EXPECT_NE(MachineName(), "");
  HostCheck check("127.0.0.1", MachineName(), FullMachineName);
  EXPECT_TRUE(check.Admits(MachineName() + ":7480"));
}

}  // namespace
}  // namespace lockstep::http
