#include "server/metrics/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/fake_clock.h"

namespace lockstep::server {
namespace {

using nlohmann::json;

NodeSnapshot Node(const std::string& name, const std::string& http,
                  const std::string& address = "10.0.0.7") {
  NodeSnapshot node;
  node.member.info.name = name;
  node.member.info.http_address = http;
  node.member.info.address = address;
  node.member.info.pool = "h100";
  node.member.state = NodeState::kReady;
  node.member.last_beat = FakeClock().Now().mono;
  return node;
}

json Targets(const std::vector<NodeSnapshot>& nodes,
             const std::string& own = "", Duration later = {}) {
  Time now = FakeClock().Now();
  now.mono += later;
  return json::parse(TargetsJson(nodes, {"lab", own}, now));
}

TEST(DiscoveryTest, APortOnLoopbackNamesTheKeysThatHelp) {
  EXPECT_THAT(
      UnreachableHttp(Node("n", "127.0.0.1:9464").member.info),
      testing::HasSubstr("give the daemon http_address and web_config"));
  EXPECT_EQ(UnreachableHttp(Node("n", "10.0.0.7:9464").member.info), "");
}

TEST(DiscoveryTest, NobodyIsAnEmptyList) {
  EXPECT_EQ(TargetsJson({}, {"lab", ""}, FakeClock().Now()), "[]\n");
}

TEST(DiscoveryTest, AWorkerWithGpusIsTwoTargets) {
  NodeSnapshot node = Node("n7", "10.0.0.7:9464");
  node.member.info.gpus.resize(1);
  EXPECT_EQ(Targets({node}), json::parse(R"([
    {"targets": ["10.0.0.7:9464"],
     "labels": {"__metrics_path__": "/metrics", "__scheme__": "https",
                "__meta_lockstep_role": "worker", "job": "lockstep-worker",
                "__meta_lockstep_node": "n7", "__meta_lockstep_pool": "h100",
                "node": "n7", "pool": "h100", "cluster": "lab"}},
    {"targets": ["10.0.0.7:9464"],
     "labels": {"__metrics_path__": "/metrics/dcgm", "__scheme__": "https",
                "__meta_lockstep_role": "dcgm", "job": "lockstep-dcgm",
                "__meta_lockstep_node": "n7", "__meta_lockstep_pool": "h100",
                "node": "n7", "pool": "h100", "cluster": "lab"}}])"));
}

TEST(DiscoveryTest, TheCoordinatorHasNoNode) {
  EXPECT_EQ(Targets({}, "127.0.0.1:7480"), json::parse(R"([
    {"targets": ["127.0.0.1:7480"],
     "labels": {"__metrics_path__": "/metrics", "__scheme__": "http",
                "__meta_lockstep_role": "coordinator",
                "job": "lockstep-coordinator", "cluster": "lab"}}])"));
}

TEST(DiscoveryTest, OnlyWhatCanBeReached) {
  const struct {
    const char* http;
    const char* address;
    const char* target;  // Empty: none.
  } cases[] = {
      {"127.0.0.1:9464", "127.0.0.1", "127.0.0.1:9464"},
      // Another host's port of that number answers there.
      {"127.0.0.1:9464", "10.0.0.7", ""},
      {"0.0.0.0:9464", "10.0.0.7", "10.0.0.7:9464"},
      {"[::]:9464", "fd00::7", "[fd00::7]:9464"},
      {"host-a:9464", "10.0.0.7", "host-a:9464"},
      {"", "10.0.0.7", ""},
      {"nonsense", "10.0.0.7", ""},
      {"10.0.0.7:0", "10.0.0.7", ""},
  };
  for (const auto& c : cases) {
    const json targets = Targets({Node("n", c.http, c.address)});
    if (*c.target == '\0') {
      EXPECT_EQ(targets, json::array()) << c.http;
    } else {
      ASSERT_EQ(targets.size(), 1u) << c.http;
      EXPECT_EQ(targets[0]["targets"], json::array({c.target}));
    }
  }
}

TEST(DiscoveryTest, TlsOnLoopbackIsHttps) {
  for (const bool tls : {false, true}) {
    NodeSnapshot node = Node("n", "127.0.0.1:9464", "127.0.0.1");
    node.member.info.http_tls = tls;
    const json targets = json::parse(
        TargetsJson({node}, {"lab", "127.0.0.1:7480", tls}, FakeClock().Now()));
    ASSERT_EQ(targets.size(), 2u);
    for (const json& target : targets) {
      EXPECT_EQ(target["labels"]["__scheme__"], tls ? "https" : "http");
    }
  }
}

TEST(DiscoveryTest, ALostNodeStaysForAWhile) {
  for (const NodeState state : kAllNodeStates) {
    NodeSnapshot node = Node("n", "10.0.0.7:9464");
    node.member.state = state;
    EXPECT_EQ(Targets({node}, "", kLostTargetStays).size(), 1u);
    EXPECT_EQ(
        Targets({node}, "", kLostTargetStays + std::chrono::seconds(1)).size(),
        state == NodeState::kLost ? 0u : 1u)
        << Name(state);
  }
}

}  // namespace
}  // namespace lockstep::server
