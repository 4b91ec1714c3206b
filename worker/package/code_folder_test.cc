#include "worker/package/code_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/base/file.h"
#include "common/base/random.h"
#include "worker/package/package_test_util.h"

namespace lockstep::worker::package {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

class CodeFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    PackageCacheOptions options;
    options.dir = dir_ / "packages";
    auto cache = PackageCache::Open(options, &source_);
    ASSERT_TRUE(cache.ok()) << cache.status();
    cache_ = *std::move(cache);
    input_.directory = dir_ / "gang/code";
  }
  StatusOr<CodeFolder> Make() {
    return MakeCodeFolder(
        input_, cache_.get(),
        [this](const std::string& what) { said_.push_back(what); }, &cancel_);
  }

  TempDir dir_;
  FakePackageSource source_;
  std::unique_ptr<PackageCache> cache_;
  CodeFolderInput input_;
  std::vector<std::string> said_;
  Cancellation cancel_;
};

TEST_F(CodeFolderTest, TreesAreUnpackedInTheirOrder) {
  input_.packages = {
      source_.Put(TarWriter().File("a/task.py", "1").Gzipped(), "a.tar.gz"),
      source_.Put(TarWriter().File("b/task.py", "2").Gzipped(), "b.tar.gz")};
  const auto folder = Make();
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(folder->path, ElementsAre(input_.directory + "/tree-0",
                                        input_.directory + "/tree-1"));
  EXPECT_EQ(RealFileSystem()->Read(folder->path[1] + "/b/task.py").value(),
            "2");
  EXPECT_THAT(said_, Contains(HasSubstr("fetching a.tar.gz: 0.0 of 0.0 MiB")));
  EXPECT_THAT(said_, Contains("unpacking b.tar.gz"));
}

TEST_F(CodeFolderTest, AnEvilPackageIsNamedAndNothingIsLeft) {
  input_.packages = {
      source_.Put(TarWriter().File("good.py", "1").Gzipped(), "good.tar.gz"),
      source_.Put(TarWriter().File("../evil.py", "2").Gzipped(),
                  "evil.tar.gz")};
  const auto folder = Make();
  EXPECT_EQ(Message(folder.status()),
            "package evil.tar.gz: rejected entry \"../evil.py\": its name "
            "holds \"..\"");
  EXPECT_FALSE(RealFileSystem()->Exists(input_.directory));
}

TEST_F(CodeFolderTest, WhatATreeRequiresAndDoesNotGetIsNoted) {
  input_.packages = {
      source_.Put(TarWriter()
                      .File("setup.py", "setup(install_requires=['numpy'])")
                      .Gzipped(),
                  "a.tar.gz"),
      source_.Put(TarWriter().File("setup.py", "setup()").Gzipped(),
                  "b.tar.gz")};
  const auto folder = Make();
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(folder->notes, ElementsAre(HasSubstr("setup.py of a.tar.gz has "
                                                   "install_requires")));
}

TEST_F(CodeFolderTest, AWheelWithoutAnInterpreterIsRefused) {
  input_.packages = {
      source_.Put("bytes", "a-1.0-py3-none-any.whl", PackageFormat::kWheel)};
  EXPECT_THAT(Message(Make().status()),
              HasSubstr("sdists or wheels but no interpreter"));
  EXPECT_FALSE(RealFileSystem()->Exists(input_.directory));
}

TEST_F(CodeFolderTest, CancelledItLeavesNothing) {
  input_.packages = {source_.Put(RandomBytes(5000), "a.tar.gz")};
  source_.hang_after = 1000;
  std::thread thread([&] {
    EXPECT_TRUE(Eventually([&] { return source_.hanging == 1; }));
    cancel_.Cancel();
  });
  EXPECT_EQ(Make().status().code(), StatusCode::kCancelled);
  thread.join();
  EXPECT_FALSE(RealFileSystem()->Exists(input_.directory));
}

TEST_F(CodeFolderTest, FileNamesAreMadeSafe) {
  const auto safe = [](const std::string& name) {
    Package package;
    package.file_name = name;
    return SafeFileName(package);
  };
  EXPECT_EQ(safe("trainer-0.1+cpu.tar.gz"), "trainer-0.1+cpu.tar.gz");
  EXPECT_EQ(safe("../../etc/x.whl"), "x.whl");
  EXPECT_EQ(safe("--target"), "target");
  EXPECT_EQ(safe(".."), "package.tar.gz");
  EXPECT_EQ(safe("a b;rm\n.whl"), "a_b_rm_.whl");
}

}  // namespace
}  // namespace lockstep::worker::package
