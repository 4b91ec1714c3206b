// cluster_rows ID [--rounds N]: measures a row of the control plane.
//
// Writes "RESULT {json}" for each comparison and "VERSION NAME TEXT" for what
// it was compared with; tests/bench/run reads them. Exits with 77 where a peer
// was not there.
#include "tests/bench/cluster_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

constexpr int kExitNotMeasured = 77;

struct Row {
  const char* id;
  Status (*run)(RowRun* run);
};
constexpr Row kRows[] = {
    {"L1", RunL1}, {"L2", RunL2}, {"Q1", RunQ1}, {"R4", RunR4}, {"F1", RunF1},
    {"F2", RunF2}, {"F3", RunF3}, {"F4", RunF4}, {"I1", RunI1}, {"O2", RunO2},
    {"O3", RunO3}, {"O4", RunO4}, {"Q3", RunQ3}, {"Q4", RunQ4}};

int Main(const Words& words) {
  if (words.size() == 2 && words[0] == "echo") return ServeEcho(words[1]);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (const Row& row : kRows) {
    if (words.empty() || words[0] != row.id) continue;
    RowRun run;
    if (words.size() == 3 && words[1] == "--rounds") {
      run.rounds = std::atoi(words[2].c_str());
    }
    Status status = row.run(&run);
    if (status.ok()) status = run.missing;
    if (status.ok()) return 0;
    const bool missing = status.code() == StatusCode::kNotFound;
    fmt::print("{}: {}{}\n", row.id, missing ? "skipped: " : "",
               Message(status));
    return missing ? kExitNotMeasured : 1;
  }
  fmt::print(stderr, "usage: cluster_rows ID [--rounds N]\n");
  return 2;
}

}  // namespace

Status RowRun::Start(int workers) {
  LOCKSTEP_ASSIGN_OR_RETURN(ours, BenchCluster::Start(workers));
  return OkStatus();
}

Status RowRun::StartSlurm() {
  auto started = SlurmPeer::Start();
  if (started.status().code() == StatusCode::kNotFound) {
    missing = started.status();
    return OkStatus();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(slurm, std::move(started));
  fmt::print("VERSION slurm {}\n", slurm->version());
  return OkStatus();
}

void RowRun::Report(const Comparison& c) {
  if (c.theirs.empty() || c.theirs[0].empty()) {
    std::vector<double> all;
    for (const auto& round : c.ours) {
      all.insert(all.end(), round.begin(), round.end());
    }
    std::sort(all.begin(), all.end());
    fmt::print("{}: ours p50 {:.6g} {}; no peer\n", c.id,
               all.empty() ? 0 : all[(all.size() - 1) / 2], c.unit);
    return;
  }
  const nlohmann::json json = {{"id", c.id},
                               {"peer", c.peer},
                               {"ours", c.ours},
                               {"theirs", c.theirs},
                               {"ranks", c.ranks},
                               {"bytes", c.bytes},
                               {"verified", c.verified},
                               {"unit", c.unit}};
  fmt::print("RESULT {}\n", json.dump());
}

StatusOr<std::vector<Rounds>> TakeByTurns(const RowRun& run, int rounds,
                                          int samples,
                                          const std::vector<Sampler>& sides) {
  if (run.rounds > 0) rounds = run.rounds;
  std::vector<Rounds> taken(sides.size());
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<double>> of_round(sides.size());
    for (int i = 0; i < samples; ++i) {
      for (size_t turn = 0; turn < sides.size(); ++turn) {
        const size_t side =
            (turn + static_cast<size_t>(round + i)) % sides.size();
        if (!sides[side]) continue;
        LOCKSTEP_ASSIGN_OR_RETURN(of_round[side].emplace_back(), sides[side]());
      }
    }
    if (round == 0 && rounds > 3) continue;
    for (size_t side = 0; side < sides.size(); ++side) {
      taken[side].push_back(std::move(of_round[side]));
    }
  }
  return taken;
}

}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::SilenceRpcLog();
  return lockstep::Main(lockstep::Words(argv + 1, argv + argc));
}
