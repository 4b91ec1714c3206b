#include "common/training/site_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/file.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(SiteFileTest, EverythingOfIt) {
  const auto site = ParseSiteFile(R"(
defaults: true
machines:
  n1-standard-8: {request: {cpus: 1}}
runtimes:
  tf2: {python: /opt/tf2/bin/python3, versions: ["2.8", 2.11], allowIndex: true}
  torch: {python: python3}
defaultRuntime: torch
strictVersions: true
images: {gcr.io/p/: "local:5000/"}
regions:
  us-central1:
  mars: {pool: a100, note: is far away}
defaultPool: general
visibility: cluster
)",
                                  "m.yaml");
  ASSERT_TRUE(site.ok()) << site.status();
  EXPECT_EQ(site->machines.machines.at("n1-standard-8").request.cpus, 1);
  EXPECT_EQ(site->machines.machines.at("n1-standard-8").nominal.cpus, 8);
  EXPECT_EQ(site->runtimes.at("tf2"),
            (SiteRuntime{"/opt/tf2/bin/python3", true, {"2.8", "2.11"}}));
  EXPECT_EQ(site->runtimes.at("torch"), (SiteRuntime{"python3", false, {}}));
  EXPECT_EQ(site->default_runtime, "torch");
  EXPECT_TRUE(site->strict_versions);
  EXPECT_THAT(site->images, ElementsAre(Pair("gcr.io/p/", "local:5000/")));
  EXPECT_THAT(site->regions,
              ElementsAre(Pair("mars", SiteRegion{"is far away", "a100"}),
                          Pair("us-central1", SiteRegion{})));
  EXPECT_EQ(site->default_pool, "general");
  EXPECT_EQ(site->visibility, Visibility::kCluster);
}

TEST(SiteFileTest, WhatIsWrongIsSaidWithItsPlace) {
  const struct {
    const char* text;
    const char* want;
  } cases[] = {
      {"runtimes: {a: {pyhton: x}}",
       "m.yaml:1:16: runtimes.a: a runtime has no field \"pyhton\""},
      {"runtimes: {a: {versions: [\"1\"]}}", "runtimes.a: lacks python"},
      {"defaultRuntime: x", "m.yaml: defaultRuntime: there is no x"},
      {"runtime: {}", "did you mean runtimes?"},
      {"visibility: all", "m.yaml:1:13: visibility: \"all\" is neither owner"},
      {"regions: {a: {pol: b}}", "regions.a: a region has no field \"pol\""},
      {"regions: {a: {pool: B}}",
       "m.yaml: regions.a.pool: \"B\" is not a pool name"},
      {"defaultPool: a_b", "m.yaml: defaultPool: \"a_b\" is not a pool name"},
      {"images: [a]", "m.yaml:1:9: images: "},
      {"tiers: {X: {masterType: y}}", "m.yaml: tiers.X.masterType: "},
      {"machines: [", "m.yaml:"},
  };
  for (const auto& c : cases) {
    const auto site = ParseSiteFile(c.text, "m.yaml");
    EXPECT_EQ(site.status().code(), StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(Message(site.status()), HasSubstr(c.want)) << c.text;
  }
}

// What is installed is what is there without a file.
TEST(SiteFileTest, TheShippedFileIsTheDefault) {
  const char* source = std::getenv("LOCKSTEP_SOURCE");
  ASSERT_NE(source, nullptr);
  const std::string path = JoinPath(source, "deploy/config/machines.yaml");
  const auto text = RealFileSystem()->Read(path);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto site = ParseSiteFile(*text, path);
  ASSERT_TRUE(site.ok()) << site.status();
  EXPECT_EQ(*site, DefaultSite());
}

// Its examples work once their "#" is taken away.
TEST(SiteFileTest, TheExamplesInTheShippedFileWork) {
  const char* source = std::getenv("LOCKSTEP_SOURCE");
  ASSERT_NE(source, nullptr);
  const std::string path = JoinPath(source, "deploy/config/machines.yaml");
  auto text = RealFileSystem()->Read(path);
  ASSERT_TRUE(text.ok()) << text.status();
  std::string all;
  size_t at = 0;
  while (at < text->size()) {
    const size_t end = text->find('\n', at);
    std::string line = text->substr(at, end - at);
    // "# A" begins a sentence, "#a" and "#  a" are examples.
    const bool sentence = line.size() < 3 || (line[1] == ' ' && line[2] != ' ');
    if (line.starts_with('#') && !sentence) line = line.substr(1);
    all += line + "\n";
    at = end + 1;
  }
  const auto site = ParseSiteFile(all, path);
  ASSERT_TRUE(site.ok()) << site.status();
  EXPECT_FALSE(site->runtimes.empty());
  EXPECT_FALSE(site->images.empty());
  EXPECT_FALSE(site->regions.empty());
}

}  // namespace
}  // namespace lockstep
