#include "common/config/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using testing::HasSubstr;

class ConfigFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/config-file-test-XXXXXX";
    close(mkstemp(path));
    path_ = path;
    command_.AddProgramFlags({});
    command_.Add("--dir", &dir_, "", Required);
    command_.Add("--listen", &listen_, "", ShowDefault);
    command_.Add("--gpus", &gpus_, "", InRange(0, 16));
    command_.Add("--memory", &memory_, "", AsSize);
    command_.Add("--hosts", &hosts_, "");
    command_.Add("--insecure-loopback", &insecure_, "");
    AddConfigFile(&command_);
  }
  void TearDown() override { unlink(path_.c_str()); }

  // What is said about it; empty: taken.
  std::string Parse(const std::string& text,
                    std::vector<std::string> args = {}) {
    std::ofstream(path_) << text;
    args.insert(args.begin(), {"--config", path_});
    const ParsedCommand parsed = lockstep::Parse(command_, std::move(args));
    EXPECT_EQ(parsed.command != nullptr, parsed.error.empty());
    return parsed.error;
  }
  std::string At(int line, const std::string& what) {
    return path_ + ":" + std::to_string(line) + ": " + what;
  }

  std::string path_;
  Command command_{"daemon", "Does things"};
  std::string dir_;
  std::string listen_ = "127.0.0.1:1";
  std::optional<int> gpus_;
  std::optional<uint64_t> memory_;
  std::vector<std::string> hosts_;
  bool insecure_ = false;
};

TEST_F(ConfigFileTest, SetsWhatItNamesRequiredOptionsToo) {
  EXPECT_EQ(Parse("# a comment\ndir: /var/lib/x\ngpus: 4\nmemory: 16GiB\n"
                  "insecure_loopback: true\nhosts: [a, b]\n"),
            "");
  EXPECT_EQ(dir_, "/var/lib/x");
  EXPECT_EQ(listen_, "127.0.0.1:1");
  EXPECT_EQ(gpus_, 4);
  EXPECT_EQ(memory_, uint64_t{16} << 30);
  EXPECT_EQ(hosts_, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(insecure_);
}

TEST_F(ConfigFileTest, DashesAndUnderscoresAreEqual) {
  EXPECT_EQ(Parse("dir: /a\ninsecure-loopback: true\n"), "");
  EXPECT_TRUE(insecure_);
  EXPECT_EQ(Parse("dir: /a\ninsecure-loopback: true\ninsecure_loopback: true"),
            At(3, "insecure_loopback is already in line 2"));
}

TEST_F(ConfigFileTest, FlagsWin) {
  EXPECT_EQ(Parse("dir: /a\ngpus: 4\ninsecure_loopback: false\n",
                  {"--gpus", "2", "--insecure-loopback"}),
            "");
  EXPECT_EQ(dir_, "/a");
  EXPECT_EQ(gpus_, 2);
  EXPECT_TRUE(insecure_);
}

TEST_F(ConfigFileTest, OnlyCommentsAreNothing) {
  EXPECT_THAT(Parse("#dir: /a\n"), HasSubstr("--dir is required"));
  EXPECT_EQ(Parse("", {"--dir", "/b"}), "");
}

TEST_F(ConfigFileTest, AnUnknownKeyIsRefusedWithLineAndNearestName) {
  EXPECT_EQ(Parse("dir: /a\n\nlisten_: 1\n"),
            At(3, "there is no option listen_; did you mean listen?"));
  EXPECT_EQ(Parse("frobnicate_all_things: 1\n"),
            At(1, "there is no option frobnicate_all_things"));
  // Not for files.
  EXPECT_THAT(Parse("config: /etc/passwd\n"),
              HasSubstr("there is no option config"));
  EXPECT_THAT(Parse("version: 1\n"), HasSubstr("there is no option version"));
  EXPECT_THAT(Parse("help-man: true\n"), HasSubstr("there is no option help-"));
}

TEST_F(ConfigFileTest, WhatIsNoConfigurationIsRefused) {
  EXPECT_EQ(Parse("dir: /a\ngpus: 1\ndir: /b\n"),
            At(3, "dir is already in line 1"));
  EXPECT_EQ(Parse("dir:\n"), At(1, "dir has no value"));
  EXPECT_EQ(Parse("hosts: []\n"), At(1, "hosts has no value"));
  EXPECT_EQ(Parse("dir: {a: b}\n"),
            At(1, "dir has a value that no flag can take"));
  EXPECT_THAT(Parse("hosts: [[a]]\n"), HasSubstr(":1: hosts has a value"));
  EXPECT_THAT(Parse("- dir\n"), HasSubstr(":1: it is not a list"));
  EXPECT_THAT(Parse("dir: /a\nlisten: \"x\ngpus"), HasSubstr(path_ + ":"));
  EXPECT_THAT(Parse(std::string(2 << 20, '#')), HasSubstr("more than"));
}

TEST_F(ConfigFileTest, AValueThatTheFlagRefuses) {
  EXPECT_THAT(Parse("dir: /a\ngpus: 99\n"), HasSubstr("--gpus: "));
  EXPECT_THAT(Parse("dir: /a\nmemory: lots\n"), HasSubstr("--memory"));
  EXPECT_THAT(Parse("dir: /a\ninsecure_loopback: perhaps\n"),
              HasSubstr("perhaps"));
}

TEST_F(ConfigFileTest, AFileThatIsNotThere) {
  const ParsedCommand parsed =
      lockstep::Parse(command_, {"--config", "/nowhere/x.yaml"});
  EXPECT_THAT(parsed.error, HasSubstr("/nowhere/x.yaml"));
}

}  // namespace
}  // namespace lockstep
