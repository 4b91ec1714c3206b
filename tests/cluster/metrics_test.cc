// What a site's monitoring sees while a job runs.
#include <algorithm>
#include <sstream>

#include "tests/cluster/fixture.h"
#include "tests/support/http_client.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MetricsTest : public ClusterTest {
 protected:
  std::string Page(const std::string& daemon, const std::string& path) {
    const auto address = cluster()->http_address(daemon);
    EXPECT_TRUE(address.ok()) << address.status();
    if (!address.ok()) return "";
    const auto reply =
        HttpGet(*address, path, BearerHeader(cluster()->http_token_file()));
    EXPECT_TRUE(reply.ok()) << daemon << reply.status();
    if (!reply.ok()) return "";
    EXPECT_EQ(reply->status, 200) << daemon << path;
    return reply->body;
  }
  // A sample whose line begins with `start`, holds all `labels` and is > 0.
  bool Has(const std::string& page, const std::string& start,
           const std::vector<std::string>& labels) {
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(start, 0) != 0) continue;
      const bool all = std::all_of(
          labels.begin(), labels.end(), [&](const std::string& label) {
            return line.find(label) != std::string::npos;
          });
      if (all && std::stod(line.substr(line.rfind(' '))) > 0) return true;
    }
    return false;
  }
};

TEST_F(MetricsTest, OfARunningJob) {
  Submit(Steps("watched", 2, {"--steps", "1000000", "--step_ms", "1"}));
  WaitUntil("watched", "steps", [](const v1::Job& job) {
    return job.progress().chief().committed_step() > 0;
  });
  EXPECT_TRUE(Eventually([&] {
    return Has(Page("coordinator", "/metrics"), "lockstep_job_step", {});
  })) << Page("coordinator", "/metrics");
  EXPECT_TRUE(Has(Page("coordinator", "/metrics"), "lockstep_nodes", {}));
  for (const char* worker : {"worker-0", "worker-1"}) {
    EXPECT_TRUE(Eventually([&] {
      return Has(Page(worker, "/metrics"), "lockstep_task_cpu_seconds_total",
                 {"watched", "role=", "index=", "rank="});
    })) << Page(worker, "/metrics");
    EXPECT_TRUE(Has(Page(worker, "/metrics"), "lockstep_task_memory_bytes",
                    {"watched"}));
    EXPECT_TRUE(
        Has(Page(worker, "/metrics"), "lockstep_host_cpu_seconds_total", {}));
  }
  for (const char* daemon : {"coordinator", "worker-0"}) {
    EXPECT_THAT(Page(daemon, "/-/healthy"), HasSubstr("healthy"));
    Page(daemon, "/-/ready");
    EXPECT_THAT(Page(daemon, "/version"), HasSubstr("0."));
  }
}

class AccessTest : public MetricsTest {
 protected:
  int Answer(const std::string& daemon, const std::string& path,
             const std::string& token = "") {
    const auto address = cluster()->http_address(daemon);
    EXPECT_TRUE(address.ok()) << address.status();
    if (!address.ok()) return 0;
    const auto reply =
        HttpGet(*address, path,
                token.empty() ? "" : "Authorization: Bearer " + token + "\r\n");
    EXPECT_TRUE(reply.ok()) << daemon << reply.status();
    return reply.ok() ? reply->status : 0;
  }
  std::string LogOf(const std::string& daemon) {
    return ReadFile(cluster()->layout().Log(daemon));
  }
};

TEST_F(AccessTest, TheTokenIsAskedForOnLoopback) {
  const std::string token_file = cluster()->http_token_file();
  const auto info = RealFileSystem()->Stat(token_file);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->mode & 0777, 0640u);
  std::string token = ReadFile(token_file);
  ASSERT_FALSE(token.empty());
  token.pop_back();
  for (const char* daemon : {"coordinator", "worker-0"}) {
    EXPECT_EQ(Answer(daemon, "/metrics"), 401) << daemon;
    EXPECT_EQ(Answer(daemon, "/metrics", "wrong"), 401) << daemon;
    EXPECT_EQ(Answer(daemon, "/metrics", token), 200) << daemon;
    EXPECT_EQ(Answer(daemon, "/-/healthy"), 200) << daemon;
    EXPECT_EQ(Answer(daemon, "/-/ready"), 200) << daemon;
    EXPECT_THAT(LogOf(daemon), Not(HasSubstr("without a token")));
  }
  for (const char* path : {"/", "/sd", "/version"}) {
    EXPECT_EQ(Answer("coordinator", path), 401) << path;
    EXPECT_EQ(Answer("coordinator", path, token), 200) << path;
  }
  // Each refusal is counted: two of /metrics, three of the others.
  const auto page =
      HttpGet(cluster()->http_address("coordinator").value_or(""), "/metrics",
              "Authorization: Bearer " + token + "\r\n");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(page->body,
              HasSubstr("lockstep_http_requests_refused_total 5\n"));
}

TEST_F(AccessTest, ALinkLetsABrowserInOnce) {
  const CommandResult made = Lockstep({"ui", "--dir", cluster()->layout().dir});
  ASSERT_EQ(made.code, 0) << made.err;
  const auto address = cluster()->http_address("coordinator");
  ASSERT_TRUE(address.ok()) << address.status();
  const std::string start = "http://" + *address;
  ASSERT_EQ(made.out.compare(0, start.size(), start), 0) << made.out;
  const std::string link =
      made.out.substr(start.size(), made.out.find('\n') - start.size());
  const auto answer = HttpGet(*address, link);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 303) << answer->body;
  const std::string header = "Set-Cookie: ";
  const size_t at = answer->head.find(header);
  ASSERT_NE(at, std::string::npos) << answer->head;
  const size_t value = at + header.size();
  const std::string cookie =
      answer->head.substr(value, answer->head.find(';', value) - value);
  const auto page = HttpGet(*address, "/", "Cookie: " + cookie + "\r\n");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(Answer("coordinator", link), 403);

  // By hand, as for a daemon of a package.
  const CommandResult other =
      Lockstep({"ui", "--url", start + "/", "--token-file",
                cluster()->http_token_file()});
  ASSERT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(other.out.compare(0, start.size() + 2, start + "/-"), 0)
      << other.out;
  EXPECT_EQ(Answer("coordinator",
                   other.out.substr(start.size(),
                                    other.out.find('\n') - start.size())),
            303);
  EXPECT_EQ(Lockstep({"ui", "--url", start}).code, 2);
}

// As one that was made before there was a token.
class OpenTest : public AccessTest {
 protected:
  OpenTest() { options_.http_token = false; }
};

TEST_F(OpenTest, WhatIsNotConfiguredIsOpenAndSaysSoOnce) {
  for (const char* daemon : {"coordinator", "worker-0", "worker-1"}) {
    EXPECT_EQ(Answer(daemon, "/metrics"), 200);
    const std::string log = LogOf(daemon);
    const size_t first = log.find("without a token");
    EXPECT_NE(first, std::string::npos) << log;
    EXPECT_EQ(log.find("without a token", first + 1), std::string::npos);
  }
}

TEST_F(AccessTest, ANewTokenCountsWithoutARestart) {
  const std::string token = "another-token-altogether";
  ASSERT_TRUE(RealFileSystem()
                  ->WriteAtomic(cluster()->http_token_file(), token, 0640)
                  .ok());
  for (const char* daemon : {"coordinator", "worker-0"}) {
    EXPECT_TRUE(Eventually([&] {
      return Answer(daemon, "/metrics", token) == 200;
    })) << daemon;
  }
}

}  // namespace
}  // namespace lockstep
