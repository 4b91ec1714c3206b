#include "server/site/site_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/base/file.h"

namespace lockstep::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class SiteTablesTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-site-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    path_ = JoinPath(dir_, "machines.yaml");
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  void Write(const std::string& text) {
    ASSERT_TRUE(RealFileSystem()->WriteAtomic(path_, text).ok());
  }
  std::string dir_, path_;
};

TEST_F(SiteTablesTest, ABadFileKeepsWhatThereWas) {
  EXPECT_EQ(SiteTables::Open(RealFileSystem(), path_).status().code(),
            StatusCode::kNotFound);
  Write("machines: {a: {cpus: 1}}");
  EXPECT_EQ(SiteTables::Open(RealFileSystem(), path_).status().code(),
            StatusCode::kInvalidArgument);
  Write("images: {a: b}");
  auto tables = SiteTables::Open(RealFileSystem(), path_);
  ASSERT_TRUE(tables.ok()) << tables.status();
  const auto before = (*tables)->Get();
  EXPECT_THAT(before->images, ElementsAre(Pair("a", "b")));

  Write("images: {a: ");
  const Status bad = (*tables)->Reload();
  EXPECT_EQ(bad.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(bad), HasSubstr(path_));
  EXPECT_EQ((*tables)->Get(), before);

  Write("images: {a: c}");
  ASSERT_TRUE((*tables)->Reload().ok());
  EXPECT_THAT((*tables)->Get()->images, ElementsAre(Pair("a", "c")));
  EXPECT_THAT(before->images, ElementsAre(Pair("a", "b")));
}

TEST_F(SiteTablesTest, WithoutAFileTheShippedTablesStay) {
  SiteTables tables;
  EXPECT_TRUE(tables.Reload().ok());
  EXPECT_EQ(*tables.Get(), DefaultSite());
}

}  // namespace
}  // namespace lockstep::server
