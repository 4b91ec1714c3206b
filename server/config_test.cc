#include "server/config.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/base/clock.h"

namespace lockstep::server {
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
  EXPECT_EQ(Parse({"--retain-jobs", "12h"}).retain_jobs, 12 * 3600.0);
  EXPECT_EQ(Parse({"--retain-logs", "0s"}).retain_logs, 0);
}

// "30" for days would mean half a minute.
TEST(ConfigTest, WhatWouldDeleteByMistakeIsRefused) {
  for (std::vector<std::string> args :
       {std::vector<std::string>{"--retain-jobs", "30"},
        {"--retain-jobs", "-5s"},
        {"--retain-job-count", "-1"},
        {"--retain-log-bytes", "-5"},
        {"--package-quota", "-1GiB"},
        {"--max-node-cpus", "-1"},
        {"--max-node-memory", "-1GiB"},
        {"--max-node-memory", "2097152TiB"},
        {"--max-node-gpus", "-1"},
        {"--package-reserve", "-1GiB"}}) {
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

TEST(ConfigTest, TheAddressOfGrafanaIsChecked) {
  const std::string url = "https://grafana.example.com/d/x?var-job_id={job}";
  EXPECT_EQ(Parse({"--grafana-url", url}).grafana_url, url);
  std::vector<std::string> args = {"lockstep-coordinator", "--dir", "/nowhere",
                                   "--grafana-url", "grafana/{job}"};
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  Config config;
  int exit_code = 0;
  EXPECT_FALSE(ParseFlags(static_cast<int>(argv.size()), argv.data(), &config,
                          &exit_code));
  EXPECT_EQ(exit_code, 2);
}

TEST(ConfigTest, SizesOfPackagesHaveUnits) {
  EXPECT_EQ(Parse({}).max_package_bytes, uint64_t{2} << 30);
  const Config config = Parse({"--max-package-bytes", "1MiB", "--package-quota",
                               "3GiB", "--package-reserve", "5GiB"});
  EXPECT_EQ(config.max_package_bytes, uint64_t{1} << 20);
  EXPECT_EQ(config.package_quota, uint64_t{3} << 30);
  EXPECT_EQ(Parse({}).package_reserve, uint64_t{1} << 30);
  EXPECT_EQ(config.package_reserve, uint64_t{5} << 30);
}

TEST(ConfigTest, WhatANewNodeMayHaveHasUnitsAndLimits) {
  EXPECT_EQ(Parse({}).max_node_memory, uint64_t{16} << 40);
  const Config config = Parse({"--max-node-cpus", "96.5", "--max-node-memory",
                               "768GiB", "--max-node-gpus", "0"});
  EXPECT_EQ(config.max_node_cpus, 96.5);
  EXPECT_EQ(config.max_node_memory, uint64_t{768} << 30);
  EXPECT_EQ(config.max_node_gpus, 0);
}

// A time that does not fit would come out below zero, and delete everything.
TEST(ConfigTest, NeverIsLongAndNotAtOnce) {
  const Config config =
      Parse({"--retain-jobs", "9999999d", "--retain-logs", "1e300d"});
  for (const double seconds : {config.retain_jobs, config.retain_logs}) {
    EXPECT_GT(seconds, 99 * 365 * 86400.0);
    EXPECT_GT(Seconds(seconds), std::chrono::hours(24 * 365 * 99));
  }
}

// A bill is known by its currency: without one it would be made anew for ever.
TEST(ConfigTest, APriceTableNamesItsCurrency) {
  std::string path = testing::TempDir() + "prices-XXXXXX";
  const int fd = mkstemp(path.data());
  ASSERT_GE(fd, 0);
  close(fd);
  const auto load = [&](const std::string& text) {
    std::ofstream(path) << text;
    return LoadPrices(path);
  };
  for (const char* text :
       {"currency: ''\n", "core_hour: 1\ncurrency:\n", "currency: []\n"}) {
    const auto prices = load(text);
    EXPECT_EQ(prices.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(Message(prices.status()).find("currency must be a name"),
              std::string::npos);
  }
  const auto prices = load("currency: EUR\n");
  EXPECT_EQ(prices.ok() ? prices->currency : "", "EUR");
  EXPECT_EQ(load("core_hour: 1\n").value_or(Prices()).currency, "USD");
  unlink(path.c_str());
}

}  // namespace
}  // namespace lockstep::server
