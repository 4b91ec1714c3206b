#include "worker/shim/holder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "common/base/file.h"
#include "common/os/process.h"
#include "common/os/procfs.h"
#include "worker/shim/shim_fixture.h"

namespace lockstep::worker::shim {
namespace {

using shim::DivideGroup;
using testing::HasSubstr;
using testing::IsEmpty;

// Directories with the files that a kernel would show. What a kernel does with
// what is written there is shown by tests/deploy/limits_test.
class HolderTest : public ShimTest {
 protected:
  void Put(const std::string& path, const std::string& text) {
    ASSERT_TRUE(
        RealFileSystem()->MakeDirs(Path(path.substr(0, path.rfind('/')))).ok());
    ASSERT_TRUE(RealFileSystem()->WriteAtomic(Path(path), text).ok());
  }
  std::string Get(const std::string& path) {
    return RealFileSystem()->Read(Path(path), 1 << 20).value_or("none");
  }
  // A unit's group, and the group below it that the holder makes.
  void MakeUnit(const std::string& controllers) {
    Put("cg/unit/cgroup.controllers", controllers);
    Put("cg/unit/cgroup.subtree_control", "");
    Put("cg/unit/cgroup.procs", "");
    Put("cg/unit/holder/cgroup.procs", "");
  }
};

TEST_F(HolderTest, LeavesItsGroupAndHandsControllersOn) {
  MakeUnit("cpuset cpu io memory hugetlb pids\n");
  EXPECT_EQ(DivideGroup("4:cpu:/x\n0::/unit\n", Path("cg")), "");
  EXPECT_EQ(Get("cg/unit/holder/cgroup.procs"), "0");
  EXPECT_EQ(Get("cg/unit/cgroup.subtree_control"), "+cpu +memory +pids");
  EXPECT_THAT(Get("cg/unit/cgroup.procs"), IsEmpty());
  // From where it is afterwards it comes to the same.
  EXPECT_EQ(DivideGroup("0::/unit/holder\n", Path("cg")), "");
  EXPECT_FALSE(RealFileSystem()->Exists(Path("cg/unit/holder/holder")));
}

TEST_F(HolderTest, HandsOnWhatThereIs) {
  MakeUnit("cpuset memory\n");
  EXPECT_EQ(DivideGroup("0::/unit\n", Path("cg")), "");
  EXPECT_EQ(Get("cg/unit/cgroup.subtree_control"), "+memory");
}

TEST_F(HolderTest, SaysWhatIsInTheWay) {
  EXPECT_THAT(DivideGroup("4:memory:/unit\n", Path("cg")),
              HasSubstr("no cgroup v2"));
  EXPECT_THAT(DivideGroup("0::/\n", Path("cg")), HasSubstr("root cgroup"));
  EXPECT_THAT(DivideGroup("0::/none\n", Path("cg")),
              HasSubstr("/none/cgroup.controllers: No such file"));
  MakeUnit("cpu memory\n");
  ASSERT_TRUE(
      RealFileSystem()->Remove(Path("cg/unit/cgroup.subtree_control")).ok());
  EXPECT_THAT(DivideGroup("0::/unit\n", Path("cg")),
              HasSubstr("writing +cpu +memory into"));
  ASSERT_TRUE(
      RealFileSystem()->Remove(Path("cg/unit/holder/cgroup.procs")).ok());
  EXPECT_THAT(DivideGroup("0::/unit\n", Path("cg")), HasSubstr("entering"));
}

TEST_F(HolderTest, EndsWithTheReasonWhereItHasNoGroup) {
  const std::string self = ReadProcFile("/proc/self/cgroup").value_or("");
  if (self.find("0::/") != std::string::npos &&
      self.find("0::/\n") == std::string::npos) {
    GTEST_SKIP() << "this test is in a group that it must not divide";
  }
  SpawnOptions options;
  options.program = program_;
  options.argv = {program_, "--hold"};
  options.stderr_path = Path("stderr");
  auto holder = Spawn(options);
  ASSERT_TRUE(holder.ok()) << holder.status();
  shims_.push_back(*std::move(holder));
  EXPECT_EQ(ShimCode(), 1);
  EXPECT_THAT(Get("stderr"), HasSubstr("cannot set up the cgroup for ranks: "));
}

}  // namespace
}  // namespace lockstep::worker::shim
