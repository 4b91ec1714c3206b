// Notifications of a real cluster to a real HTTP and a real SMTP server.
#include <signal.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "common/os/process.h"
#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class NotifyTest : public ClusterTest {
 protected:
  NotifyTest() { manual_start_ = true; }

  void StartReceiver() {
    const char* const source = getenv("LOCKSTEP_SOURCE");
    ASSERT_NE(source, nullptr) << "ctest sets it";
    SpawnOptions options;
    options.program = "python3";
    options.argv = {"python3",
                    JoinPath(source, "tests/cluster/notify_receiver.py"),
                    root(), "s3cret"};
    options.env = CurrentEnvironment();
    auto process = Spawn(options);
    ASSERT_TRUE(process.ok()) << process.status();
    receiver_ = *std::move(process);
    ASSERT_TRUE(Eventually([this] { return !Text("ports").empty(); }));
    std::istringstream(Text("ports")) >> http_ >> smtp_;
  }
  // "" while there is no such file.
  std::string Text(const std::string& name) const {
    return RealFileSystem()->Read(Path(name)).value_or("");
  }
  void TearDown() override {
    if (receiver_) (void)StopProcess(*receiver_, Duration{});
    ClusterTest::TearDown();
  }
  void WriteReceivers() {
    WriteFile(Path("secret"), "s3cret\n");
    WriteFile(Path("receivers.yaml"),
              "url: https://lab:7480\n"
              "receivers:\n"
              "- name: hook\n"
              "  webhook: {url: 'http://127.0.0.1:" +
                  http_ + "', secret_file: " + Path("secret") +
                  "}\n"
                  "- name: owner\n"
                  "  kinds: [failed, stalled]\n"
                  "  labels: {team: vision}\n"
                  "  mail: {server: 'smtp://127.0.0.1:" +
                  smtp_ + "', from: l@lab, to: ['{user}@lab']}\n");
    options_.extra_arguments["coordinator"] = {"--notify",
                                               Path("receivers.yaml")};
  }
  std::vector<nlohmann::json> Lines(const std::string& name) {
    std::vector<nlohmann::json> lines;
    std::istringstream text(Text(name));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(nlohmann::json::parse(line, nullptr, false));
    }
    return lines;
  }
  // The texts of the webhooks about a job, by kind.
  std::multimap<std::string, std::string> Told(const std::string& job) {
    std::multimap<std::string, std::string> told;
    for (const nlohmann::json& line : Lines("webhooks")) {
      if (line.value("job", "") == job) {
        told.emplace(line.value("kind", ""), line.value("text", ""));
      }
    }
    return told;
  }

  std::optional<Process> receiver_;
  std::string http_;
  std::string smtp_;
};

TEST_F(NotifyTest, OwnersAreToldWhyAndNothingIsLost) {
  StartReceiver();
  WriteReceivers();
  StartCluster();
  v1::JobSpec spec =
      Shell("hangs", 1,
            "for i in $(seq 20); do echo \"step $i/100\"; sleep 0.1; done; "
            "exec " +
                TestBinary("hang_program") + " " + root() + " 0 lock");
  spec.mutable_stall_after()->set_seconds(2);
  (*spec.mutable_labels())["team"] = "vision";
  Submit(spec);
  ASSERT_TRUE(Eventually([&] { return Told("hangs").contains("stalled"); }));
  const auto hangs = Told("hangs");
  EXPECT_TRUE(hangs.contains("started"));
  EXPECT_THAT(hangs.find("stalled")->second, HasSubstr("hang_program.cc:"));
  ASSERT_TRUE(Eventually([&] { return !Lines("mails").empty(); }));
  const nlohmann::json mail = Lines("mails")[0];
  EXPECT_EQ(mail["to"], "local@lab");
  EXPECT_THAT(mail["subject"], HasSubstr("job hangs stands still"));
  EXPECT_THAT(mail["text"], HasSubstr("hang_program.cc:"));
  EXPECT_THAT(mail["text"], HasSubstr("lockstep jobs why hangs"));
  EXPECT_THAT(mail["text"], HasSubstr("https://lab:7480/jobs/hangs"));

  // While the receiver stands still, a job fails and the coordinator is killed.
  ASSERT_TRUE(SendSignal(*receiver_, SIGSTOP).ok());
  Submit(Shell("fails", 1, "echo no data >&2; exit 7"));
  WaitEnd("fails", v1::JOB_STATE_FAILED);
  KillDaemon("coordinator");
  StartDaemon("coordinator");
  ASSERT_TRUE(SendSignal(*receiver_, SIGCONT).ok());
  ASSERT_TRUE(Eventually([&] { return Told("fails").contains("failed"); }));
  EXPECT_THAT(Told("fails").find("failed")->second, HasSubstr("exit code 7"));
}

}  // namespace
}  // namespace lockstep
