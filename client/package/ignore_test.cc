#include "client/package/ignore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;

TEST(GlobTest, MatchesAsGitDoes) {
  EXPECT_TRUE(MatchesGlob("*.py", "a.py"));
  EXPECT_FALSE(MatchesGlob("*.py", "a/b.py"));
  EXPECT_TRUE(MatchesGlob("a/*/c", "a/b/c"));
  EXPECT_FALSE(MatchesGlob("a/*/c", "a/b/b/c"));
  EXPECT_TRUE(MatchesGlob("a/**/c", "a/c"));
  EXPECT_TRUE(MatchesGlob("a/**/c", "a/b/b/c"));
  EXPECT_TRUE(MatchesGlob("**/c", "c"));
  EXPECT_TRUE(MatchesGlob("**/c", "a/b/c"));
  EXPECT_FALSE(MatchesGlob("**/c", "a/bc"));
  EXPECT_TRUE(MatchesGlob("a/**", "a/b/c"));
  EXPECT_FALSE(MatchesGlob("a/**", "a"));
  EXPECT_TRUE(MatchesGlob("?[a-c][!x]", "zby"));
  EXPECT_FALSE(MatchesGlob("?[a-c][!x]", "zbx"));
  EXPECT_TRUE(MatchesGlob("[]]", "]"));
  EXPECT_TRUE(MatchesGlob("[", "["));
  EXPECT_TRUE(MatchesGlob("\\*", "*"));
  EXPECT_FALSE(MatchesGlob("\\*", "a"));
  EXPECT_TRUE(MatchesGlob("a**b", "axxb"));
}

TEST(IgnoreTest, LastRuleDecides) {
  IgnoreRules rules;
  rules.Add("# notes\n*.log\n!keep.log\n/data\nlogs/\n  \nsub/x.py\r\n");
  EXPECT_TRUE(rules.Ignores("a.log", false));
  EXPECT_TRUE(rules.Ignores("sub/a.log", false));
  EXPECT_FALSE(rules.Ignores("sub/keep.log", false));
  EXPECT_TRUE(rules.Ignores("data", true));
  EXPECT_FALSE(rules.Ignores("sub/data", true));
  EXPECT_TRUE(rules.Ignores("sub/logs", true));
  EXPECT_FALSE(rules.Ignores("logs", false));
  EXPECT_TRUE(rules.Ignores("sub/x.py", false));
  EXPECT_FALSE(rules.Ignores("x.py", false));
}

TEST(IgnoreTest, HashAndBlanksCanBeMeant) {
  IgnoreRules rules;
  rules.Add("\\#a\nb\\ \nc   \n");
  EXPECT_TRUE(rules.Ignores("#a", false));
  EXPECT_TRUE(rules.Ignores("b ", false));
  EXPECT_TRUE(rules.Ignores("c", false));
}

TEST(IgnoreTest, LeavesOutWhatPythonMakes) {
  IgnoreRules rules = IgnoreRules::Default();
  EXPECT_TRUE(rules.Ignores("a/__pycache__", true));
  EXPECT_TRUE(rules.Ignores("a/b.pyc", false));
  EXPECT_TRUE(rules.Ignores(".git", true));
  EXPECT_FALSE(rules.Ignores("a/task.py", false));
  rules.Add("!*.pyc");
  EXPECT_FALSE(rules.Ignores("a/b.pyc", false));
}

TEST(IgnoreTest, FindsIncludes) {
  EXPECT_THAT(IgnoreRules::Includes("a\n#!include:.gitignore\n# x\n"),
              ElementsAre(".gitignore"));
}

}  // namespace
}  // namespace lockstep::cli
