// O2: a scrape of the coordinator's /metrics with 500 live jobs, beside
// prometheus-cpp's own Collect and TextSerializer of as many gauges.
//
// 200 scrapes one after another over one connection each, gzip asked for, as
// Prometheus does. The peer holds its numbers in a Registry; ours makes them
// from the coordinator's state.
#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <sstream>

#include "tests/bench/bench_cluster.h"
#include "tests/bench/report.h"
#include "tests/support/http_client.h"
#include "worker/data/gzip.h"

namespace lockstep {
namespace {

constexpr int kJobs = 500;
constexpr int kRounds = 5;
constexpr int kScrapes = 40;

int64_t CountSeries(const std::string& text) {
  int64_t series = 0;
  bool line_start = true;
  for (const char c : text) {
    if (line_start && c != '#' && c != '\n') ++series;
    line_start = c == '\n';
  }
  return series;
}

// `headers`: with the cluster's token.
StatusOr<std::string> Scrape(const std::string& address,
                             const std::string& headers) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const HttpReply reply,
      HttpGet(address, "/metrics", headers + "Accept-Encoding: gzip\r\n"));
  if (reply.status != 200) {
    return Unavailable("/metrics answers {}", reply.status);
  }
  return Gunzip(reply.body, "/metrics", 1 << 30);
}

Status Run(const std::string& json) {
  LocalClusterOptions options;
  options.workers = 2;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto ours, BenchCluster::Start(options));
  // Queued for ever: a series set of a live job each.
  for (int i = 0; i < kJobs; ++i) {
    auto spec = BenchCluster::Program("job" + std::to_string(i), 2, 1,
                                      {"/bin/sleep", "3600"});
    LOCKSTEP_RETURN_IF_ERROR(ours->client()->SubmitJob(spec).status());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string address,
                            ours->cluster()->http_address("coordinator"));
  const std::string token = BearerHeader(ours->cluster()->http_token_file());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string first, Scrape(address, token));
  const int64_t series = CountSeries(first);
  prometheus::Registry registry;
  for (int64_t i = 0; i < series; ++i) {
    prometheus::BuildGauge()
        .Name("peer_gauge_" + std::to_string(i % 100))
        .Help("One of a hundred families.")
        .Register(registry)
        .Add({{"job_id", "job" + std::to_string(i)}, {"state", "running"}})
        .Set(static_cast<double>(i) / 3);
  }
  BenchResult result;
  result.id = "O2";
  result.bytes = first.size();
  result.peer = fmt::format(
      "prometheus-cpp Collect and TextSerializer, {} gauges", series);
  result.verified = series > 10 * kJobs;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> mine, theirs;
    for (int i = 0; i < kScrapes; ++i) {
      int64_t start = MonotonicNanos();
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, Scrape(address, token));
      mine.push_back(static_cast<double>(MonotonicNanos() - start) / 1e9);
      start = MonotonicNanos();
      std::ostringstream out;
      prometheus::TextSerializer().Serialize(out, registry.Collect());
      result.verified &= CountSeries(out.str()) == series;
      theirs.push_back(static_cast<double>(MonotonicNanos() - start) / 1e9);
    }
    result.ours_seconds.push_back(mine);
    result.peer_seconds.push_back(theirs);
  }
  fmt::print("{} series\n", series);
  PrintResults({result});
  if (json.empty()) return OkStatus();
  return AddToJson(json, {}, {result});
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  return lockstep::BenchMain(lockstep::Run(flags.json));
}
