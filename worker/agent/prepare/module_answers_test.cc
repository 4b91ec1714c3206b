#include "worker/agent/prepare/module_answers.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>

#include "common/base/file.h"

namespace lockstep::worker::agent {
namespace {

class ModuleAnswersTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-test-XXXXXX";
    dir_ = mkdtemp(name);
    question_.interpreter = dir_ + "/python3";
    Install("one");
    question_.module = "trainer.task";
    question_.packages = {{"sha256:" + std::string(64, 'a'), 7,
                           PackageFormat::kTree, "t.tar.gz"}};
  }
  void TearDown() override { RealFileSystem()->RemoveAll(dir_).IgnoreError(); }
  void Install(const std::string& text) {
    ASSERT_TRUE(
        RealFileSystem()->WriteAtomic(question_.interpreter, text).ok());
  }

  std::string dir_;
  ModuleQuestion question_;
};

TEST_F(ModuleAnswersTest, WhateverTheAnswerHangsOnIsInItsKey) {
  const auto key = KeyOf(question_);
  ASSERT_TRUE(key);
  EXPECT_EQ(KeyOf(question_), key);
  const std::function<void(ModuleQuestion*)> changes[] = {
      [](auto* q) { q->module = "trainer.other"; },
      [](auto* q) { q->user = 1000; },
      [](auto* q) { q->allow_index = true; },
      [](auto* q) { q->packages[0].digest.back() = 'b'; },
      [](auto* q) { q->packages[0].format = PackageFormat::kSdist; },
      [](auto* q) { q->packages.push_back(q->packages[0]); },
      [](auto* q) { q->interpreter = "/bin/sh"; }};
  for (const auto& change : changes) {
    ModuleQuestion other = question_;
    change(&other);
    EXPECT_NE(KeyOf(other), key);
  }
  // Another interpreter of that name.
  Install("another");
  EXPECT_NE(KeyOf(question_), key);
  question_.interpreter += "-none";
  EXPECT_EQ(KeyOf(question_), std::nullopt);
}

TEST_F(ModuleAnswersTest, KeepsWhatWasFoundAndNotMore) {
  ModuleAnswers answers(2);
  EXPECT_FALSE(answers.WasFound("a"));
  answers.Found("a");
  answers.Found("a");
  answers.Found("b");
  EXPECT_TRUE(answers.WasFound("a"));
  answers.Found("c");
  EXPECT_FALSE(answers.WasFound("a"));
  EXPECT_TRUE(answers.WasFound("b"));
  EXPECT_TRUE(answers.WasFound("c"));
}

}  // namespace
}  // namespace lockstep::worker::agent
