// `lockstep bench` and what it hands to lockstep-bench.
#include <gmock/gmock.h>

#include "client/cli/bench_hosts.h"
#include "client/cli/cli_fixture.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class BenchTest : public CliTest {
 protected:
  void Serve(const std::string& name, v1::JobState state) {
    server_->Update([&](FakeAnswers* a) {
      a->jobs = {Ended(name, state)};
      for (const char* node : {"a", "b", "c"})
        a->nodes.push_back(Host(node, 6));
    });
  }
  static v1::Node Host(const std::string& name, double cpus,
                       v1::NodeState state = v1::NODE_STATE_READY) {
    v1::Node node;
    node.set_name(name);
    node.set_state(state);
    node.mutable_capacity()->set_cpus(cpus);
    return node;
  }
  v1::JobSpec Submitted() {
    const FakeAnswers answers = server_->Answers();
    EXPECT_FALSE(answers.submits.empty());
    return answers.submits.empty() ? v1::JobSpec()
                                   : answers.submits.back().spec();
  }
};

TEST_F(BenchTest, WithHostsItIsAJob) {
  Serve("b", v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Run({"bench", "allreduce", "-b", "8", "--hosts", "3", "-g", "2",
                 "--name=b", "-e", "1M", "--json", "out.json"}),
            0)
      << err_.str();
  const v1::JobSpec spec = Submitted();
  EXPECT_THAT(spec.argv(), ElementsAre(dir_ + "/lockstep-bench", "allreduce",
                                       "-b", "8", "-e", "1M", "--json-line"));
  EXPECT_EQ(spec.kind(), v1::JOB_KIND_NATIVE);
  EXPECT_EQ(spec.output_directory(), "");
  ASSERT_EQ(spec.roles_size(), 2);
  EXPECT_EQ(spec.roles(1).count(), 2);
  EXPECT_EQ(spec.roles(0).ranks_per_task(), 2);
  // All of a host.
  EXPECT_EQ(spec.roles(0).resources().cpus(), 6);
  EXPECT_EQ(spec.roles(1).resources().cpus(), 6);
  EXPECT_EQ(spec.restart_budget(), 0);
  EXPECT_EQ(Run({"bench", "allreduce", "--hosts", "3", "-g", "2", "--name=b",
                 "--cpus", "1", "--pool", "p"}),
            0);
  EXPECT_EQ(Submitted().roles(0).resources().cpus(), 1);
  EXPECT_EQ(Submitted().pool(), "p");
}

TEST_F(BenchTest, TheJobsCodeIsIts) {
  Serve("b", v1::JOB_STATE_FAILED);
  EXPECT_EQ(Run({"bench", "all", "--hosts=1", "--name", "b"}), 3);
  EXPECT_THAT(err_.str(), HasSubstr("b FAILED"));
}

TEST_F(BenchTest, WithoutHostsTheProgramBesideItRuns) {
  EXPECT_EQ(Run({"bench", "allreduce", "-b", "8"}), kExitNotFound);
  EXPECT_THAT(err_.str(), HasSubstr("no lockstep-bench next to this program"));
  EXPECT_EQ(Run({"bench", "allreduce", "--gpus", "1"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--hosts N"));
  EXPECT_EQ(Run({"bench", "allreduce", "--hosts", "2", "-g", "two"}),
            kExitUsage);
  EXPECT_EQ(Run({"bench", "allreduce", "--hosts", "0"}), kExitUsage);
  EXPECT_EQ(Run({"bench", "allreduce", "--hosts", "a,b"}), kExitUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--hosts: a,b is not a number of hosts"));
}

TEST_F(BenchTest, HelpBehindWhatIsMeasuredIsTheProgramsOwn) {
  for (const char* const help : {"--help", "-h"}) {
    EXPECT_EQ(Run({"bench", help}), 0);
    EXPECT_THAT(out_.str(), HasSubstr("--hosts"));
    EXPECT_EQ(Run({"bench", "--hosts", "2", help}), 0);
    EXPECT_THAT(out_.str(), HasSubstr("--hosts"));
    // There is none beside this test.
    EXPECT_EQ(Run({"bench", "step", help}), kExitNotFound);
    EXPECT_THAT(err_.str(), HasSubstr("no lockstep-bench next to"));
    EXPECT_EQ(out_.str(), "");
  }
  // Nor is a job made of it, whatever stands before.
  for (const char* const help : {"--help", "--version", "--help-man"}) {
    EXPECT_EQ(Run({"bench", "step", "--hosts", "2", "--gpus", "1", help}),
              kExitNotFound)
        << help;
  }
  EXPECT_TRUE(server_->Answers().submits.empty());
}

TEST_F(BenchTest, TooFewHostsAreNamedBeforeAnythingIsSubmitted) {
  Serve("b", v1::JOB_STATE_SUCCEEDED);
  server_->Update([&](FakeAnswers* a) {
    a->nodes.push_back(Host("d", 6, v1::NODE_STATE_DRAINED));
  });
  EXPECT_NE(Run({"bench", "all", "--hosts", "4"}), 0);
  EXPECT_THAT(err_.str(),
              HasSubstr("--hosts 4: 3 hosts of the cluster take work: a, b, c; "
                        "not: d (DRAINED)"));
  EXPECT_TRUE(server_->Answers().submits.empty());
}

TEST_F(BenchTest, HostsAreChosenByTheirCores) {
  const std::vector<v1::Node> nodes = {Host("small", 4), Host("large", 16),
                                       Host("mid", 10)};
  EXPECT_EQ(ChooseBenchHosts(nodes, 1, "")->cpus, 16);
  EXPECT_EQ(ChooseBenchHosts(nodes, 2, "")->cpus, 10);
  EXPECT_EQ(ChooseBenchHosts(nodes, 2, "")->note, "");
  const auto three = ChooseBenchHosts(nodes, 3, "");
  EXPECT_EQ(three->cpus, 4);
  EXPECT_THAT(three->note, HasSubstr("large has room for two tasks"));
  EXPECT_THAT(Message(ChooseBenchHosts(nodes, 1, "x").status()),
              HasSubstr("0 hosts of pool \"x\" take work"));
}

}  // namespace
}  // namespace lockstep::cli
