// What a site's monitoring sees while a job runs.
#include <httplib.h>

#include <algorithm>
#include <sstream>

#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class MetricsTest : public ClusterTest {
 protected:
  std::string Page(const std::string& daemon, const std::string& path) {
    const auto address = cluster()->http_address(daemon);
    EXPECT_TRUE(address.ok()) << address.status();
    if (!address.ok()) return "";
    httplib::Client http("http://" + *address);
    const auto result = http.Get(path);
    EXPECT_TRUE(result) << daemon << path;
    if (!result) return "";
    EXPECT_EQ(result->status, 200) << daemon << path;
    return result->body;
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

}  // namespace
}  // namespace lockstep
