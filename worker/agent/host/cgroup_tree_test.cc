#include "worker/agent/host/cgroup_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <set>
#include <vector>

#include "common/os/procfs.h"

namespace lockstep::worker::agent {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A cgroupfs as cgroup-v2.rst says it behaves, as far as it is used.
class FakeCgroups final : public CgroupFiles {
 public:
  FakeCgroups() { files["/cg/a/cgroup.controllers"] = "cpu io memory pids\n"; }

  StatusOr<std::string> Read(const std::string& path) override {
    const auto it = files.find(path);
    if (it == files.end()) return NotFound("{}", path);
    return it->second;
  }
  Status Write(const std::string& path, std::string_view text) override {
    if (refuse.contains(path)) return PermissionDenied("{} is read-only", path);
    const size_t slash = path.rfind('/');
    const std::string dir = path.substr(0, slash);
    const std::string name = path.substr(slash + 1);
    if (name == "cgroup.procs") {
      for (auto& [group, pids] : processes) pids.erase(std::string(text));
      processes[dir].insert(std::string(text));
    } else if (name == "cgroup.subtree_control") {
      // No internal processes.
      if (!processes[dir].empty()) return Internal("{}: busy", path);
      files[path] = text;
    } else if (name == "cgroup.kill") {
      if (!made.contains(dir)) return NotFound("{}", path);
      processes[dir].clear();
    } else if (!files.contains(path)) {
      return NotFound("{}", path);
    } else {
      files[path] = text;
    }
    return OkStatus();
  }
  Status MakeDir(const std::string& path) override {
    if (refuse.contains(path)) return PermissionDenied("{} is read-only", path);
    made.insert(path);
    for (const char* name :
         {"cgroup.procs", "memory.max", "memory.oom.group", "cpu.max",
          "pids.max", "memory.events", "cpu.stat"}) {
      files[path + "/" + name] = "";
    }
    return OkStatus();
  }
  Status RemoveDir(const std::string& path) override {
    if (!made.contains(path)) return NotFound("{}", path);
    if (!processes[path].empty()) return FailedPrecondition("{}: busy", path);
    made.erase(path);
    std::erase_if(files, [&](const auto& file) {
      return file.first.starts_with(path + "/");
    });
    return OkStatus();
  }

  std::map<std::string, std::string> files;
  std::map<std::string, std::set<std::string>> processes;
  std::set<std::string> made;
  std::set<std::string> refuse;
};

class CgroupTreeTest : public testing::Test {
 protected:
  CgroupTreeTest() { cgroups_.processes["/cg/a"] = {"7"}; }
  StatusOr<std::unique_ptr<CgroupTree>> Open(const CgroupPlace& place = {
                                                 "1:x:/\n0::/a\n", 7, false}) {
    return CgroupTree::Open(&cgroups_, "/cg", place);
  }
  std::string Refusal(const CgroupPlace& place = {"0::/a\n", 7, false}) {
    const auto tree = Open(place);
    EXPECT_EQ(tree.status().code(), StatusCode::kFailedPrecondition);
    return Message(tree.status());
  }

  FakeCgroups cgroups_;
};

TEST_F(CgroupTreeTest, TheDaemonMakesRoomForTheRanksGroups) {
  const auto tree = Open();
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_THAT(cgroups_.processes["/cg/a"], IsEmpty());
  EXPECT_TRUE(cgroups_.processes["/cg/a/daemon"].contains("7"));
  EXPECT_EQ(cgroups_.files["/cg/a/cgroup.subtree_control"],
            "+cpu +memory +pids");
  // The next daemon is in there already, or comes into an empty BASE.
  EXPECT_TRUE(Open({"0::/a/daemon\n", 7, true}).ok());
}

TEST_F(CgroupTreeTest, WhyThereAreNoLimitsIsSaid) {
  EXPECT_THAT(Refusal({"4:memory:/x\n", 7, false}), HasSubstr("no cgroup v2"));
  EXPECT_THAT(Refusal({"0::/b\n", 7, false}),
              HasSubstr("there is no cgroup v2 at /cg/b"));
  EXPECT_THAT(Refusal({"0::/a\n", 7, true}),
              HasSubstr("DelegateSubgroup=daemon"));
  cgroups_.files["/cg/a/cgroup.controllers"] = "cpuset io memory\n";
  EXPECT_THAT(Refusal(), HasSubstr("does not offer the cpu controller"));
  cgroups_.files["/cg/a/cgroup.controllers"] = "cpu memory\n";
  cgroups_.refuse = {"/cg/a/daemon"};
  EXPECT_THAT(Refusal(), HasSubstr("read-only"));
  EXPECT_THAT(cgroups_.made, IsEmpty());
}

// As lockstep-ranks.service leaves it, and a daemon that is a service.
class HeldCgroupTest : public CgroupTreeTest {
 protected:
  HeldCgroupTest() {
    cgroups_.files["/cg/ranks/cgroup.controllers"] = "cpu memory pids\n";
    cgroups_.files["/cg/ranks/cgroup.subtree_control"] = "cpu memory pids\n";
    cgroups_.processes["/cg/ranks/holder"] = {"5"};
  }
  const CgroupPlace place_{"0::/a\n", 7, true, "/ranks"};
};

TEST_F(HeldCgroupTest, RanksAreOutsideTheDaemonsGroup) {
  const auto tree = Open(place_);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_THAT(cgroups_.made, IsEmpty());
  EXPECT_EQ(cgroups_.processes["/cg/a"], (std::set<std::string>{"7"}));
  EXPECT_FALSE(cgroups_.files.contains("/cg/a/cgroup.subtree_control"));
  const auto path = (*tree)->Make("ab", {2, 1 << 20, 0, ""});
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, "/cg/ranks/rank-ab");
  EXPECT_EQ(cgroups_.files[*path + "/memory.max"], "1048576");
}

TEST_F(HeldCgroupTest, RanksOfAnEarlierDaemonAreFoundWhereTheyAre) {
  // Not a service, or one with DelegateSubgroup=daemon: it divided its own.
  auto before = Open({"0::/a\n", 7, false});
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE((*before)->Make("old", {1, 1 << 20, 0, ""}).ok());
  cgroups_.processes["/cg/a/rank-old"] = {"9"};
  cgroups_.files["/cg/a/rank-old/memory.events"] = "oom_kill 1\n";

  auto after = Open({"0::/a/daemon\n", 8, true, "/ranks"});
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE((*after)->Exists("old"));
  EXPECT_EQ((*after)->PathOf("old"), "/cg/a/rank-old");
  EXPECT_EQ((*after)->Read("old")->oom_kills, 1u);
  EXPECT_EQ((*after)->PathOf("new"), "/cg/ranks/rank-new");
  EXPECT_FALSE((*after)->Exists("new"));
  EXPECT_EQ((*after)->Remove("old").code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE((*after)->Kill("old").ok());
  EXPECT_TRUE((*after)->Remove("old").ok());
  EXPECT_FALSE(cgroups_.made.contains("/cg/a/rank-old"));
}

TEST_F(HeldCgroupTest, WhyItCannotBeUsedIsSaid) {
  CgroupPlace elsewhere = place_;
  elsewhere.ranks = "/none";
  EXPECT_THAT(Refusal(elsewhere),
              HasSubstr("/cg/none of --rank-cgroup does not exist"));
  cgroups_.refuse = {"/cg/ranks/trial"};
  EXPECT_THAT(Refusal(place_), HasSubstr("/cg/ranks/trial is read-only"));
  cgroups_.files["/cg/ranks/cgroup.subtree_control"] = "memory pids\n";
  EXPECT_THAT(Refusal(place_), HasSubstr("does not enable the cpu and memory"));
  cgroups_.files["/cg/ranks/cgroup.controllers"] = "cpu pids\n";
  EXPECT_THAT(Refusal(place_),
              HasSubstr("/cg/ranks does not offer the memory controller"));
  EXPECT_THAT(cgroups_.made, IsEmpty());
}

TEST_F(HeldCgroupTest, WithoutItTheDaemonsOwnGroupIsDividedWhereThatMayBe) {
  cgroups_.processes["/cg/a"] = {};
  cgroups_.processes["/cg/a/daemon"] = {"7"};
  const auto tree = Open({"0::/a/daemon\n", 7, true, "/none"});
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ((*tree)->PathOf("ab"), "/cg/a/rank-ab");
}

TEST_F(CgroupTreeTest, AGroupThatOthersAreInIsLeftAsItWas) {
  cgroups_.processes["/cg/a"].insert("8");
  EXPECT_THAT(Refusal(), HasSubstr("busy"));
  EXPECT_EQ(cgroups_.processes["/cg/a"], (std::set<std::string>{"7", "8"}));
  EXPECT_THAT(cgroups_.made, IsEmpty());
}

TEST_F(CgroupTreeTest, ARanksGroupHasItsLimitsAndGoesWithIt) {
  auto opened = Open();
  ASSERT_TRUE(opened.ok());
  CgroupTree& tree = **opened;
  const auto path = tree.Make("ab", {1.5, 1 << 30, 0, ""});
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, "/cg/a/rank-ab");
  EXPECT_EQ(*path, tree.PathOf("ab"));
  EXPECT_TRUE(tree.Exists("ab"));
  EXPECT_EQ(cgroups_.files[*path + "/memory.max"], "1073741824");
  EXPECT_EQ(cgroups_.files[*path + "/memory.oom.group"], "1");
  EXPECT_EQ(cgroups_.files[*path + "/cpu.max"], "150000 100000");
  EXPECT_EQ(cgroups_.files[*path + "/pids.max"], "32768");

  cgroups_.files[*path + "/memory.events"] = "oom 4\noom_kill 2\n";
  cgroups_.files[*path + "/cpu.stat"] = "usage_usec 2500000\nuser_usec 1\n";
  cgroups_.files[*path + "/memory.peak"] = "4096\n";
  const auto reading = tree.Read("ab");
  ASSERT_TRUE(reading.has_value());
  EXPECT_EQ(reading->oom_kills, 2u);
  EXPECT_EQ(reading->cpu_seconds, 2.5);
  EXPECT_EQ(reading->memory_peak_bytes, 4096);

  cgroups_.processes[*path] = {"9"};
  EXPECT_EQ(tree.Remove("ab").code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(tree.Kill("ab").ok());
  EXPECT_TRUE(tree.Remove("ab").ok());
  // Again, as after a restart that came between.
  EXPECT_TRUE(tree.Kill("ab").ok());
  EXPECT_TRUE(tree.Remove("ab").ok());
  EXPECT_FALSE(tree.Exists("ab"));
  EXPECT_EQ(tree.Read("ab"), std::nullopt);
}

TEST_F(CgroupTreeTest, ALimitThatCannotBeSetLeavesNoGroup) {
  auto tree = Open();
  ASSERT_TRUE(tree.ok());
  cgroups_.refuse = {"/cg/a/rank-ab/memory.max"};
  EXPECT_FALSE((*tree)->Make("ab", {1, 1 << 20, 0, ""}).ok());
  EXPECT_FALSE((*tree)->Exists("ab"));
  // Without a request there is no limit to set.
  EXPECT_TRUE((*tree)->Make("ab", {}).ok());
}

TEST(CgroupRealTest, ThisHostIsDividedOrSaysWhyNot) {
  const auto self = ReadProcFile("/proc/self/cgroup");
  // As under a service manager: nothing is moved anywhere.
  const auto tree = CgroupTree::Open(RealCgroupFiles(), "/sys/fs/cgroup",
                                     {self.value_or(""), getpid(), true});
  if (tree.ok()) return;
  EXPECT_THAT(Message(tree.status()), HasSubstr("limits are not enforced"));
}

}  // namespace
}  // namespace lockstep::worker::agent
