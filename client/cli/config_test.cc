#include "client/cli/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "client/cli/local_common.h"
#include "common/base/file.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-test-XXXXXX";
    dir_ = mkdtemp(name);
    env_.variables["XDG_CONFIG_HOME"] = dir_;
    env_.system_config = dir_ + "/system.yaml";
  }
  void TearDown() override { RealFileSystem()->RemoveAll(dir_).IgnoreError(); }
  void Write(const std::string& path, const std::string& text) {
    ASSERT_TRUE(RealFileSystem()->WriteAtomic(path, text).ok());
  }

  std::string dir_;
  CliEnvironment env_;
};

TEST_F(ConfigTest, RoundTrip) {
  Config config;
  config.current = "a";
  config.contexts["a"] = {"host:1", "/ca", "/cert", "/key", false};
  config.contexts["b"] = {"127.0.0.1:2", "", "", "", true};
  const auto parsed = ParseConfig(FormatConfig(config), "f");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, config);
}

TEST_F(ConfigTest, ErrorsHaveTheirPlace) {
  EXPECT_EQ(Message(ParseConfig("contexts:\n  a: {adress: x}\n", "f").status()),
            "f:2:7: a context has no field adress; did you mean address?");
  EXPECT_FALSE(ParseConfig("contexts: [", "f").ok());
  EXPECT_FALSE(ParseConfig("contexts: {a: {insecure-loopback: 7}}", "f").ok());
  EXPECT_FALSE(ParseConfig("- a", "f").ok());
  EXPECT_TRUE(ParseConfig("", "f").ok());
}

TEST_F(ConfigTest, NothingSaysWhatToDo) {
  const auto options = ResolveConnection({}, env_);
  EXPECT_EQ(options.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(options.status()), HasSubstr("lockstep local up"));
}

TEST_F(ConfigTest, FlagsThenEnvironmentThenUserThenSystem) {
  Write(env_.system_config,
        "current-context: site\ncontexts:\n"
        "  site: {address: 's:1', ca: /s/ca, cert: /s/cert, key: /s/key}\n");
  EXPECT_EQ(ResolveConnection({}, env_)->address, "s:1");
  ASSERT_TRUE(
      SaveContext(env_, "mine", {"u:1", "/u/ca", "/u/cert", "/u/key", false})
          .ok());
  EXPECT_EQ(ResolveConnection({}, env_)->address, "u:1");
  env_.variables["LOCKSTEP_CONTEXT"] = "site";
  EXPECT_EQ(ResolveConnection({}, env_)->address, "s:1");
  env_.variables["LOCKSTEP_ADDRESS"] = "e:1";
  EXPECT_EQ(ResolveConnection({}, env_)->address, "e:1");
  EXPECT_EQ(ResolveConnection({}, env_)->ca, "/s/ca");
  ConnectionFlags flags;
  flags.context = "mine";
  flags.key = "/f/key";
  const auto options = ResolveConnection(flags, env_);
  EXPECT_EQ(options->ca, "/u/ca");
  EXPECT_EQ(options->key, "/f/key");
}

TEST_F(ConfigTest, UnknownContextAndMissingFiles) {
  ASSERT_TRUE(SaveContext(env_, "local", {"a:1", "", "", "", false}).ok());
  ConnectionFlags flags;
  flags.context = "locla";
  EXPECT_THAT(Message(ResolveConnection(flags, env_).status()),
              HasSubstr("did you mean local?"));
  EXPECT_THAT(Message(ResolveConnection(flags, env_).status()),
              HasSubstr("in " + UserConfigPath(env_) + "; there is local;"));
  EXPECT_THAT(Message(ResolveConnection({}, env_).status()),
              HasSubstr("--ca FILE"));
  flags = {};
  flags.insecure_loopback = true;
  EXPECT_TRUE(ResolveConnection(flags, env_).ok());
}

TEST_F(ConfigTest, ContextsOfWhichNoneIsChosenAreNamed) {
  ASSERT_TRUE(SaveContext(env_, "a", {"a:1", "", "", "", true}).ok());
  ASSERT_TRUE(SaveContext(env_, "b", {"b:1", "", "", "", true}).ok());
  ASSERT_TRUE(SaveContext(env_, "c", {"c:1", "", "", "", true}).ok());
  ASSERT_TRUE(RemoveContexts(env_, "c:1").ok());
  EXPECT_THAT(Message(ResolveConnection({}, env_).status()),
              HasSubstr(UserConfigPath(env_) +
                        " has no current-context; there are a and b"));
}

TEST_F(ConfigTest, AContextKnowsWhereItsClusterIsKept) {
  const auto dir = [this](const std::string& name) {
    const auto found = LocalDirOfContext(name, env_);
    return found.ok() ? *found : found.status().ToString();
  };
  EXPECT_EQ(dir(""), "");
  ASSERT_TRUE(SaveContext(env_, "a", {"a:1", "", "", "", true, "/x/a"}).ok());
  EXPECT_EQ(dir(""), "/x/a");
  ASSERT_TRUE(SaveContext(env_, "b", {"b:1", "", "", "", true}).ok());
  EXPECT_EQ(dir(""), "");
  EXPECT_EQ(dir("a"), "/x/a");
  EXPECT_EQ(dir("c"), "");
  env_.variables["LOCKSTEP_CONTEXT"] = "a";
  EXPECT_EQ(dir(""), "/x/a");
}

TEST_F(ConfigTest, LocalCommandsFindTheirClusterByTheContext) {
  const auto dir = [this](const std::string& given,
                          const std::string& context) {
    const auto found = LocalDir(given, context, env_);
    return found.ok() ? *found : found.status().ToString();
  };
  env_.variables["XDG_DATA_HOME"] = "/data";
  EXPECT_EQ(dir("", ""), "/data/lockstep/local");
  ASSERT_TRUE(
      SaveContext(env_, "local", {"a:1", "", "", "", true, "/x/a"}).ok());
  EXPECT_EQ(dir("", ""), "/x/a");
  EXPECT_EQ(dir("/y", ""), "/y");
  // Also while a cluster elsewhere is the current one.
  ASSERT_TRUE(SaveContext(env_, "b", {"b:1", "", "", "", true}).ok());
  EXPECT_EQ(dir("", ""), "/x/a");
  EXPECT_EQ(dir("", "b"), "/data/lockstep/local");
  EXPECT_EQ(dir("", "local"), "/x/a");
}

TEST_F(ConfigTest, SavedContextsStayAndRemovedOnesGo) {
  ASSERT_TRUE(SaveContext(env_, "a", {"a:1", "", "", "", true}).ok());
  ASSERT_TRUE(SaveContext(env_, "b", {"b:1", "", "", "", true}).ok());
  ASSERT_TRUE(RemoveContexts(env_, "b:1").ok());
  const auto text = RealFileSystem()->Read(UserConfigPath(env_));
  const auto config = ParseConfig(*text, "f");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->contexts.size(), 1u);
  EXPECT_EQ(config->current, "");
}

}  // namespace
}  // namespace lockstep::cli
