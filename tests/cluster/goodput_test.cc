// Where the time of a job's ranks went, compared with what its program did.
#include <stdlib.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cluster/fixture.h"
#include "tests/support/http_client.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;
constexpr int kStallSeconds = 5;
// Each class, as a part of the job's rank-seconds.
constexpr double kAllowed = 0.005;

using TimeByClass = std::map<std::string, double>;

class GoodputTest : public ClusterTest {
 protected:
  // lockstep_job_rank_seconds_total of the only job, by class.
  TimeByClass Measured() {
    const auto address = cluster()->http_address("coordinator");
    EXPECT_TRUE(address.ok()) << address.status();
    if (!address.ok()) return {};
    const auto page = HttpGet(*address, "/metrics",
                              BearerHeader(cluster()->http_token_file()));
    EXPECT_TRUE(page.ok()) << page.status();
    if (!page.ok()) return {};
    TimeByClass seconds;
    std::istringstream lines(page->body);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("lockstep_job_rank_seconds_total{")) continue;
      const size_t begin = line.find("class=\"") + 7;
      seconds[line.substr(begin, line.find('"', begin) - begin)] =
          std::stod(line.substr(line.rfind(' ')));
    }
    return seconds;
  }
  nlohmann::json Truth(int rank, int attempt) {
    return nlohmann::json::parse(ReadFile(
        Path("truth-" + std::to_string(rank) + "-" + std::to_string(attempt))));
  }
  static double SecondsOf(const google::protobuf::Timestamp& time) {
    return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
  }
  static void AddPhases(const nlohmann::json& phases, TimeByClass* to) {
    static const std::map<std::string, std::string> kClasses = {
        {"optimizer", "compute"},
        {"allreduce", "communication"},
        {"compile", "compiling"}};
    for (const auto& [phase, seconds] : phases.items()) {
      const auto other = kClasses.find(phase);
      (*to)[other == kClasses.end() ? phase : other->second] +=
          seconds.get<double>();
    }
  }
  // What the rank did, and what was done for it.
  void AddRank(int rank, const v1::Job& job, TimeByClass* to) {
    const auto first = Truth(rank, 1);
    const auto second = Truth(rank, 2);
    const auto at = [](const nlohmann::json& truth, const char* name) {
      return truth[name].get<double>();
    };
    // Queued, prepared and started: all that is before its process.
    (*to)["before"] += at(first, "started") - SecondsOf(job.create_time());
    for (const auto& truth : {first, second}) {
      (*to)["unknown"] += at(truth, "joined") - at(truth, "started");
    }
    (*to)["starting"] += at(first, "stepping") - at(first, "joined");
    AddPhases(first["new"], to);
    (*to)["recovering"] += at(second, "started") - at(first, "ended");
    (*to)["starting"] += at(second, "stepping") - at(second, "joined");
    for (const auto& [phase, seconds] : second["repeated"].items()) {
      (*to)["redone"] += seconds.get<double>();
    }
    AddPhases(second["new"], to);
    // The limit passes before it is known that it stands still.
    (*to)["stalled"] +=
        at(second, "goes_on") - at(second, "stands") - kStallSeconds;
    (*to)["unknown"] += kStallSeconds;
    (*to)["unknown"] += at(second, "lingers");
    (*to)["idle"] += SecondsOf(job.end_time()) - at(second, "ended");
  }
};

TEST_F(GoodputTest, EverySecondIsInItsClass) {
  v1::JobSpec spec = Program("timed", kRanks,
                             {"python3",
                              std::string(getenv("LOCKSTEP_SOURCE")) +
                                  "/tests/cluster/goodput_program.py",
                              root()});
  (*spec.mutable_environment())["PYTHONPATH"] = Binary("../python");
  spec.mutable_stall_after()->set_seconds(kStallSeconds);
  const v1::Job job =
      RunJob(spec, v1::JOB_STATE_SUCCEEDED, std::chrono::seconds(240));
  TimeByClass measured = Measured();
  TimeByClass truth;
  for (int rank = 0; rank < kRanks; ++rank) AddRank(rank, job, &truth);
  for (const char* const early : {"queued", "preparing"}) {
    measured["before"] += measured[early];
    measured.erase(early);
  }
  const double wall =
      kRanks * (SecondsOf(job.end_time()) - SecondsOf(job.create_time()));
  double sum = 0;
  for (const auto& [name, seconds] : measured) sum += seconds;
  EXPECT_NEAR(sum, wall, wall * 0.001);
  for (const auto& [name, seconds] : measured) {
    std::cout << name << ": " << seconds << " s, in truth " << truth[name]
              << " s, apart " << 100 * std::abs(seconds - truth[name]) / wall
              << " %\n";
    EXPECT_NEAR(seconds, truth[name], kAllowed * wall) << name;
  }
}

}  // namespace
}  // namespace lockstep
