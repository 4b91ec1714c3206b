// A real Prometheus, with the configuration and the rules that we ship, beside
// real daemons while a job runs. What is asked of it is in ask_prometheus.py,
// which reads dashboards, rules and catalogues.
//
// Eight GPUs come from the fake driver library; the job holds two.
#include <fmt/format.h>
#include <stdlib.h>

#include <iostream>

#include "client/local/ports.h"
#include "tests/cluster/fixture.h"

namespace lockstep::cli {
namespace {

// Replaces all of `what`; a failure of the test when there is none: then the
// example has changed and would not be tested.
void Replace(std::string* text, const std::string& what,
             const std::string& with) {
  EXPECT_NE(text->find(what), std::string::npos) << what;
  for (size_t at = 0; (at = text->find(what, at)) != std::string::npos;) {
    text->replace(at, what.size(), with);
    at += with.size();
  }
}

class PrometheusTest : public ClusterTest {
 protected:
  PrometheusTest() {
    const char* const source = getenv("LOCKSTEP_SOURCE");
    source_ = source != nullptr ? source : ".";
    // Daemons inherit it.
    setenv("FAKE_NVML_GPUS", "8", 1);
    setenv("FAKE_NVML_MODEL", "H100", 1);  // Has the most readings.
    setenv("FAKE_NVML_FILE", DriverFile().c_str(), 1);
    options_.gpus = 8;
    for (const char* worker : {"worker-0", "worker-1"}) {
      options_.extra_arguments[worker] = {"--nvml-library", LOCKSTEP_FAKE_NVML};
    }
  }

  void TearDown() override {
    if (prometheus_.process.pidfd) {
      const auto exit =
          StopProcess(prometheus_.process, std::chrono::seconds(10));
      EXPECT_TRUE(exit.ok()) << exit.status();
      if (HasFailure()) {
        std::cerr << "---- prometheus\n" << ReadFile(prometheus_.err) << "\n";
      }
    }
    ClusterTest::TearDown();
  }

  // The shipped example, with a second where it says 15, and our ports.
  void StartPrometheus() {
    const std::string shipped = source_ + "/deploy/prometheus/";
    std::string config = ReadFile(shipped + "prometheus.yml");
    const auto http = cluster()->http_address("coordinator");
    ASSERT_TRUE(http.ok()) << http.status();
    Replace(&config, "127.0.0.1:7480", *http);
    for (const char* daemon : {"coordinator", "worker"}) {
      Replace(&config, fmt::format("/var/lib/lockstep/{}-http/token", daemon),
              cluster()->http_token_file());
    }
    Replace(&config, "cluster: main",
            "cluster: " + cluster()->record().cluster);
    Replace(&config, "_interval: 15s", "_interval: 1s");
    Replace(&config, "scrape_timeout: 10s", "scrape_timeout: 1s");
    Replace(&config, "refresh_interval: 30s", "refresh_interval: 1s");
    const std::string dir = Path("prometheus");
    ASSERT_TRUE(RealFileSystem()->MakeDirs(dir).ok());
    WriteFile(dir + "/prometheus.yml", config);
    for (const char* rules : {"/alert_rules.yml", "/recording_rules.yml"}) {
      WriteFile(dir + rules, ReadFile(shipped + rules));
    }
    const auto ports = ChoosePorts(1);
    ASSERT_TRUE(ports.ok()) << ports.status();
    address_ = fmt::format("127.0.0.1:{}", ports->front());
    // It ends with this process, whatever ends that.
    prometheus_ =
        StartCommand({"setpriv", "--pdeathsig", "KILL", LOCKSTEP_PROMETHEUS,
                      "--config.file=" + dir + "/prometheus.yml",
                      "--storage.tsdb.path=" + dir + "/data",
                      "--web.listen-address=" + address_});
  }

  // Of the fake driver; may change while it runs.
  std::string DriverFile() const { return Path("driver"); }

  // Fails the test with what ask_prometheus.py finds.
  void Ask(const std::vector<std::string>& more,
           const std::string& job = "watched") {
    std::vector<std::string> argv = {
        LOCKSTEP_PYTHON,
        "-B",
        source_ + "/tests/observability/ask_prometheus.py",
        "--prometheus=http://" + address_,
        std::string("--promtool=") + LOCKSTEP_PROMTOOL,
        "--cluster=" + cluster()->record().cluster,
        "--token-file=" + cluster()->http_token_file(),
        "--job=" + job,
        "--workers=worker-0,worker-1"};
    argv.insert(argv.end(), more.begin(), more.end());
    const CommandResult asked = RunCommand(argv, {"LOCKSTEP_SOURCE=" + source_},
                                           std::chrono::seconds(120));
    EXPECT_EQ(asked.code, 0) << asked.out << asked.err;
    // How long it took.
    if (asked.code == 0) std::cout << asked.out;
  }

  // A program of Python with one rank.
  v1::JobSpec Python(const std::string& name, int gpus,
                     const std::string& program) {
    v1::JobSpec spec = Program(name, 1, {LOCKSTEP_PYTHON, "-c", program});
    (*spec.mutable_environment())["PYTHONPATH"] = LOCKSTEP_PYTHON_PACKAGE;
    (*spec.mutable_environment())["PYTHONDONTWRITEBYTECODE"] = "1";
    spec.mutable_roles(0)->mutable_resources()->set_gpus(gpus);
    return spec;
  }

  std::string source_;
  std::string address_;
  Command prometheus_;
};

TEST_F(PrometheusTest, AnswersWhatDashboardsAndAlertsAsk) {
  StartPrometheus();
  v1::JobSpec spec =
      Steps("watched", 2, {"--steps", "1000000", "--step_ms", "5"});
  for (v1::RoleSpec& role : *spec.mutable_roles()) {
    role.mutable_resources()->set_gpus(1);
  }
  Submit(spec);
  WaitUntil("watched", "steps", [](const v1::Job& job) {
    return job.progress().chief().committed_step() > 0;
  });
  const auto ordered = client()->RequestCheckpoint("watched");
  EXPECT_TRUE(ordered.ok()) << ordered.status();
  if (HasFailure()) return;
  Ask({});
  Ask({"--kind=native"});

  // A GPU falls off the bus.
  WriteFile(DriverFile(), "xid 0 79\n");
  Ask({"--alert=LockstepGPUXid"});
}

// The rank of a program that has not joined shows what the daemon sees of it.
constexpr char kApart[] = R"(
import time
step = 0
while True:
    step += 1
    print('step', step, 'loss', 1 / step, flush=True)
    time.sleep(0.05)
)";
// One that has joined, and reports all that there is.
constexpr char kJoined[] = R"(
import os, time
import lockstep
session = lockstep.join()
session.progress(total_steps=10**9, epoch=1)
for step in range(10**9):
    with session.step(samples=8, loss=1 / (step + 1)):
        for phase in ('input', 'compute', 'allreduce', 'optimizer'):
            with session.phase(phase):
                time.sleep(0.003)
    session.report(accuracy=0.5, flops_per_sample=1e6)
    if step % 100 == 1:
        with session.phase('checkpoint'):
            time.sleep(0.01)
        session.checkpoint_saved(step, os.getcwd(), 1)
)";

TEST_F(PrometheusTest, NoPanelOfAProgramIsEmptyUnlessItSaysSo) {
  const std::string package = LOCKSTEP_PYTHON_PACKAGE;
  if (package.empty()) GTEST_SKIP() << "no package for Python in this build";
  StartPrometheus();
  Submit(Python("apart", 0, kApart));
  Submit(Python("joined", 1, kJoined));
  WaitFor("apart", v1::JOB_STATE_RUNNING);
  WaitUntil("joined", "steps", [](const v1::Job& job) {
    return job.progress().chief().committed_step() > 0;
  });
  if (HasFailure()) return;
  Ask({"--kind=unjoined"}, "apart");
  Ask({"--kind=joined"}, "joined");
}

}  // namespace
}  // namespace lockstep::cli
