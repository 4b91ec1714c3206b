// O3: 1 GiB of 100-byte lines from one rank until a follower has every byte,
// beside srun forwarding the same to its stdout. Ours also keeps them: in the
// node's files (rotated) and on the coordinator's disk. What arrives is
// compared by its number of lines and its CRC32C, on the way; what the log
// store leaves out by its limits is announced by a line of its own.
#include <algorithm>
#include <string_view>

#include "common/base/crc32c.h"
#include "tests/bench/bench_cluster.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

constexpr int kRounds = 3;
constexpr int64_t kLines = (int64_t{1} << 30) / 100;

// Prints `kLines` numbered lines of 99 characters.
std::vector<std::string> Writer() {
  return {BenchProgram("line_writer"), std::to_string(kLines)};
}

struct Seen {
  int64_t lines = 0;
  uint32_t crc = 0;
  double seconds = 0;

  void Add(std::string_view text) {
    lines += std::count(text.begin(), text.end(), '\n');
    crc = ExtendCrc32c(crc, text.data(), text.size());
  }
};

// What line_writer writes.
Seen Expected() {
  Seen seen;
  for (int64_t i = 0; i < kLines; ++i) {
    seen.Add(fmt::format("{:015} {:x<83}\n", i, ""));
  }
  return seen;
}

StatusOr<Seen> Ours(BenchCluster* bench, int round) {
  const std::string name = "lines" + std::to_string(round);
  const int64_t start = MonotonicNanos();
  LOCKSTEP_RETURN_IF_ERROR(
      bench->client()
          ->SubmitJob(BenchCluster::Program(name, 1, 1, Writer()))
          .status());
  Seen seen;
  LogOptions options;
  options.name = name;
  options.follow = true;
  options.timeout = std::chrono::seconds(300);
  LOCKSTEP_RETURN_IF_ERROR(bench->client()->StreamLogs(
      options,
      [&](const v1::LogLine& line) {
        if (line.text().size() != 99) return true;  // An announcement.
        seen.Add(line.text() + "\n");
        return true;
      },
      nullptr));
  seen.seconds = static_cast<double>(MonotonicNanos() - start) / 1e9;
  return seen;
}

StatusOr<Seen> Slurm(SlurmPeer* slurm) {
  std::vector<std::string> argv = {"srun", "--quiet", "-n1"};
  for (const std::string& word : Writer()) argv.push_back(word);
  const int64_t start = MonotonicNanos();
  Seen seen;
  LOCKSTEP_RETURN_IF_ERROR(
      StreamOutput(argv, slurm->environment(), std::chrono::seconds(600),
                   [&](std::string_view piece) { seen.Add(piece); }));
  seen.seconds = static_cast<double>(MonotonicNanos() - start) / 1e9;
  return seen;
}

Status Run(const std::string& json) {
  LocalClusterOptions options;
  options.workers = 1;
  options.cpus = 2;
  options.gpus = 0;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto ours, BenchCluster::Start(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto slurm, SlurmPeer::Start());
  const Seen expected = Expected();
  BenchResult result;
  result.id = "O3";
  result.bytes = 1 << 30;
  result.ranks = 1;
  result.peer = slurm->version() + " srun -n1";
  result.verified = true;
  for (int round = 0; round < kRounds; ++round) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Seen a, Ours(ours.get(), round));
    LOCKSTEP_ASSIGN_OR_RETURN(const Seen b, Slurm(slurm.get()));
    fmt::print(
        "round {}: ours {} of {} lines in {:.1f} s, srun {} in {:.1f} s\n",
        round, a.lines, kLines, a.seconds, b.lines, b.seconds);
    result.verified &= a.lines == kLines && a.crc == expected.crc &&
                       b.lines == kLines && b.crc == expected.crc;
    result.ours_seconds.push_back({a.seconds});
    result.peer_seconds.push_back({b.seconds});
  }
  PrintResults({result});
  if (json.empty()) return OkStatus();
  return AddToJson(json, {{"slurm", slurm->version()}}, {result});
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const lockstep::BenchFlags flags = lockstep::ParseBenchFlags(argc, argv);
  lockstep::SilenceRpcLog();
  return lockstep::BenchMain(lockstep::Run(flags.json));
}
