// F4: a package of 200 MB of random bytes, from its folder to the first
// instruction of a rank on each of two nodes, beside `cp` and sha256sum of the
// same bytes: the least that bringing and checking one copy costs.
//
// A coordinator and two worker daemons with caches of their own, all on this
// machine's one disk: the bytes are packed, sent, stored and synced once, and
// fetched, checked and unpacked twice. New bytes each round, which nobody has
// seen; the first round is dropped.
//   F4       from the folder: packing included
//   F4-sent  from the packed file: upload, fetch, unpack, start
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "common/base/file.h"
#include "tests/bench/front_door.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

constexpr uint64_t kBytes = 200'000'000;
constexpr int kRounds = 6;
constexpr int kRanks = 2;

Status WriteRandom(const std::string& path, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(kBytes, '\0');
  for (size_t i = 0; i + sizeof(uint64_t) <= bytes.size();
       i += sizeof(uint64_t)) {
    const uint64_t word = random();
    bytes.replace(i, sizeof(word), reinterpret_cast<const char*>(&word),
                  sizeof(word));
  }
  return RealFileSystem()->WriteAtomic(path, bytes);
}

class Bench {
 public:
  Status Run(const std::string& json);

 private:
  struct Ours {
    double pack = 0;
    double upload = 0;
    double start = 0;  // From submission to the ranks.
  };
  StatusOr<Ours> Round(int round);
  StatusOr<double> Floor() const;
  void PrintParts(const v1::Job& job) const;

  BenchDir dir_;
  Board board_{dir_.path() + "/board", kRounds* kRanks};
  std::unique_ptr<BenchCluster> ours_;
  std::string folder_;
};

StatusOr<Bench::Ours> Bench::Round(int round) {
  Client* const client = ours_->client();
  const auto since = [](int64_t start) {
    return static_cast<double>(MonotonicNanos() - start) / 1e9;
  };
  Ours took;
  PackOptions pack;
  pack.prefix = "trainer";
  int64_t start = MonotonicNanos();
  LOCKSTEP_ASSIGN_OR_RETURN(const PackedPackage packed,
                            PackFolder(folder_, pack));
  took.pack = since(start);
  start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(Upload(client, packed));
  took.upload = since(start);
  start = MonotonicNanos();
  const v1::Package package = PackageMessage(packed);
  const int slot = round * kRanks;
  const std::string name = "big" + std::to_string(round);
  LOCKSTEP_RETURN_IF_ERROR(
      client
          ->SubmitTraining(BenchTraining(name, package, "probe", kRanks - 1,
                                         {board_.path(), std::to_string(slot)}),
                           {package})
          .status());
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t last, board_.WaitAll(slot, kRanks));
  took.start = static_cast<double>(last - start) / 1e9;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const v1::Job job,
      client->WaitJob(name, std::chrono::seconds(60), nullptr));
  if (job.state() != v1::JOB_STATE_SUCCEEDED) {
    return Internal("{}: {}", name, job.cause().message());
  }
  fmt::print(
      "round {}: packed in {:.2f} s, uploaded in {:.2f} s, running "
      "{:.2f} s after that\n",
      round, took.pack, took.upload, took.start);
  PrintParts(job);
  return took;
}

// Where the time on the nodes went.
void Bench::PrintParts(const v1::Job& job) const {
  if (job.attempts().empty()) return;
  for (const v1::TaskStatus& task : job.attempts(0).tasks()) {
    std::vector<std::string> parts;
    for (const v1::PhaseDuration& part : task.preparation().parts()) {
      parts.push_back(
          fmt::format("{} {:.0f} ms", part.phase(),
                      1e3 * static_cast<double>(part.duration().seconds()) +
                          1e-6 * static_cast<double>(part.duration().nanos())));
    }
    fmt::print("  {}: {}\n", task.node(), fmt::join(parts, ", "));
  }
}

StatusOr<double> Bench::Floor() const {
  const std::string copy = dir_.path() + "/copy";
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(
      RunProgram({"cp", folder_ + "/data.bin", copy}, CurrentEnvironment()));
  LOCKSTEP_RETURN_IF_ERROR(
      RunProgram({"sha256sum", copy}, CurrentEnvironment()));
  const double took = static_cast<double>(MonotonicNanos() - start) / 1e9;
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->RemoveAll(copy));
  return took;
}

Status Bench::Run(const std::string& json) {
  LocalClusterOptions options;
  options.workers = 2;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(ours_, BenchCluster::Start(options));
  LOCKSTEP_RETURN_IF_ERROR(
      UseBenchSite(ours_.get(), 1, {{"probe", BenchProgram("launch_probe")}}));
  LOCKSTEP_ASSIGN_OR_RETURN(folder_, WriteTrainer(dir_.path()));
  BenchResult all;
  all.id = "F4";
  all.bytes = kBytes;
  all.ranks = kRanks;
  all.peer = "cp and sha256sum of the same bytes";
  all.verified = true;
  BenchResult sent = all;
  sent.id = "F4-sent";
  for (int round = 0; round < kRounds; ++round) {
    LOCKSTEP_RETURN_IF_ERROR(WriteRandom(folder_ + "/data.bin", round + 1));
    // What the last round and this one wrote is no part of either side.
    sync();
    LOCKSTEP_ASSIGN_OR_RETURN(const double floor, Floor());
    LOCKSTEP_ASSIGN_OR_RETURN(const Ours ours, Round(round));
    if (round == 0) continue;
    const double from_packed = ours.upload + ours.start;
    all.ours_seconds.push_back({ours.pack + from_packed});
    sent.ours_seconds.push_back({from_packed});
    all.peer_seconds.push_back({floor});
    sent.peer_seconds.push_back({floor});
  }
  PrintResults({all, sent});
  for (const BenchResult& result : {all, sent}) {
    std::vector<double> times;
    for (const auto& round : result.ours_seconds) times.push_back(round[0]);
    fmt::print("{}: {:.0f} MB/s to both nodes together\n", result.id,
               kRanks * kBytes / 1e6 / Percentile(times, 0.5));
  }
  if (json.empty()) return OkStatus();
  return AddToJson(json, {}, {all, sent});
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  lockstep::Bench bench;
  return lockstep::BenchMain(bench.Run(flags.json));
}
