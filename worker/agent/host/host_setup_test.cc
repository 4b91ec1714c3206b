#include "worker/agent/host/host_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep::worker::agent {
namespace {

using testing::HasSubstr;

TEST(HostSetupTest, ANodeIsNamedAfterItsHost) {
  EXPECT_EQ(NodeNameOf("Host_A.lan.example"), "host-a");
  EXPECT_EQ(NodeNameOf("n7"), "n7");
  EXPECT_EQ(NodeNameOf(std::string(100, 'a')).size(), 63u);
  EXPECT_EQ(NodeNameOf(""), "");
}

TEST(HostSetupTest, TheWayToLoopbackIsLoopback) {
  EXPECT_EQ(AddressTowards({"127.0.0.1", 1}).value(), "127.0.0.1");
  EXPECT_FALSE(AddressTowards({"no-such-host.invalid", 1}).ok());
}

TEST(HostSetupTest, RanksNeverRunAsRootByTaskUser) {
  EXPECT_EQ(FindUser("root").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FindUser("no-such-user-of-ours").status().code(),
            StatusCode::kNotFound);
  if (geteuid() != 0) return;
  const auto nobody = FindUser("nobody");
  ASSERT_TRUE(nobody.ok()) << nobody.status();
  EXPECT_NE(nobody->uid, 0u);
  EXPECT_FALSE(nobody->groups.empty());
}

TEST(HostSetupTest, AShimThatIsNotThereIsNamed) {
  EXPECT_EQ(ShimPath("/bin/sh").value(), "/bin/sh");
  EXPECT_THAT(Message(ShimPath("/none/shim").status()),
              HasSubstr("/none/shim: give its absolute path with --shim"));
  EXPECT_FALSE(ShimPath("relative").ok());
}

}  // namespace
}  // namespace lockstep::worker::agent
