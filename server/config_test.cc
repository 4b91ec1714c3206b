#include "server/config.h"

#include <gtest/gtest.h>

#include <vector>

#include "common/base/clock.h"

namespace lockstep {
namespace {

Config Parse(std::vector<std::string> args) {
  args.insert(args.begin(), {"lockstep-coordinator", "--dir", "/nowhere"});
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  Config config;
  int exit_code = 0;
  EXPECT_TRUE(ParseFlags(static_cast<int>(argv.size()), argv.data(), &config,
                         &exit_code))
      << exit_code;
  return config;
}

TEST(ConfigTest, TimesHaveUnits) {
  EXPECT_EQ(Parse({}).retain_jobs, 30 * 86400.0);
  EXPECT_EQ(Parse({"--retain_jobs", "12h"}).retain_jobs, 12 * 3600.0);
  EXPECT_EQ(Parse({"--retain_logs", "0s"}).retain_logs, 0);
}

// "30" for days would mean half a minute.
TEST(ConfigTest, WhatWouldDeleteByMistakeIsRefused) {
  for (std::vector<std::string> args :
       {std::vector<std::string>{"--retain_jobs", "30"},
        {"--retain_jobs", "-5s"},
        {"--retain_job_count", "-1"},
        {"--retain_log_bytes", "-5"}}) {
    args.insert(args.begin(), {"lockstep-coordinator", "--dir", "/nowhere"});
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    Config config;
    int exit_code = 0;
    EXPECT_FALSE(ParseFlags(static_cast<int>(argv.size()), argv.data(), &config,
                            &exit_code))
        << args[3] << " " << args[4];
    EXPECT_EQ(exit_code, 2);
  }
}

// A time that does not fit would come out below zero, and delete everything.
TEST(ConfigTest, NeverIsLongAndNotAtOnce) {
  const Config config =
      Parse({"--retain_jobs", "9999999d", "--retain_logs", "1e300d"});
  for (const double seconds : {config.retain_jobs, config.retain_logs}) {
    EXPECT_GT(seconds, 99 * 365 * 86400.0);
    EXPECT_GT(Seconds(seconds), std::chrono::hours(24 * 365 * 99));
  }
}

}  // namespace
}  // namespace lockstep
