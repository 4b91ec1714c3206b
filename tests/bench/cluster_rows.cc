// cluster_rows ID [--rounds N] [--only PART]: measures a row of the control
// plane.
//
// Writes "RESULT {json}" for each comparison and "VERSION NAME TEXT" for what
// it was compared with; tests/bench/run reads them. Exits with 77 where a peer
// was not there.
#include "tests/bench/cluster_rows.h"

#include <fmt/format.h>

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
    {"L1", RunL1}, {"L2", RunL2}, {"Q1", RunQ1}, {"R4", RunR4},
    {"F1", RunF1}, {"F2", RunF2}, {"F3", RunF3}, {"F4", RunF4},
    {"I1", RunI1}, {"O2", RunO2}, {"O3", RunO3}, {"O4", RunO4},
    {"Q3", RunQ3}, {"Q4", RunQ4}, {"R5", RunR5}, {"R6", RunR6}};

int Main(const Words& words) {
  if (words.size() == 4 && words[0] == "echo") {
    return ServeEcho(words[1], words[2].c_str(), std::atoi(words[3].c_str()));
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (const Row& row : kRows) {
    if (words.empty() || words[0] != row.id) continue;
    RowRun run;
    for (size_t i = 1; i + 1 < words.size(); i += 2) {
      if (words[i] == "--rounds") run.rounds = std::atoi(words[i + 1].c_str());
      if (words[i] == "--only") run.only = words[i + 1];
    }
    Status status = row.run(&run);
    if (status.ok()) status = run.missing;
    if (status.ok()) return 0;
    const bool missing = status.code() == StatusCode::kNotFound;
    fmt::print("{}: {}{}\n", row.id, missing ? "skipped: " : "",
               Message(status));
    return missing ? kExitNotMeasured : 1;
  }
  fmt::print(stderr, "usage: cluster_rows ID [--rounds N] [--only PART]\n");
  return 2;
}

}  // namespace

Sampler Timed(std::function<Status()> act) {
  return [act = std::move(act)]() -> StatusOr<double> {
    const int64_t start = MonotonicNanos();
    LOCKSTEP_RETURN_IF_ERROR(act());
    return SecondsSince(start);
  };
}

Status RowRun::Start(int workers, const std::string& site) {
  LOCKSTEP_ASSIGN_OR_RETURN(ours, BenchCluster::Start(workers, site));
  return OkStatus();
}

Status RowRun::StartBoth(int workers) {
  LOCKSTEP_RETURN_IF_ERROR(Start(workers));
  auto started = SlurmPeer::Start();
  if (started.status().code() == StatusCode::kNotFound) {
    missing = started.status();
    return OkStatus();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(slurm, std::move(started));
  fmt::print("VERSION slurm {}\n", slurm->version());
  return OkStatus();
}

std::string RowRun::Slurm(const std::string& what) const {
  return (slurm ? slurm->version() : "no Slurm") + " " + what;
}

Status RowRun::Take(int count, int samples,
                    const std::vector<Sampler>& samplers) {
  if (rounds > 0) count = rounds;
  sides.assign(samplers.size(), {});
  for (int round = 0; round < count; ++round) {
    std::vector<std::vector<double>> of_round(sides.size());
    for (int i = 0; i < samples; ++i) {
      for (size_t turn = 0; turn < sides.size(); ++turn) {
        const size_t side =
            (turn + static_cast<size_t>(round + i)) % sides.size();
        if (!samplers[side]) continue;
        LOCKSTEP_ASSIGN_OR_RETURN(of_round[side].emplace_back(),
                                  samplers[side]());
      }
    }
    if (round == 0 && count > 3) continue;
    for (size_t side = 0; side < sides.size(); ++side) {
      sides[side].push_back(std::move(of_round[side]));
    }
  }
  return OkStatus();
}

void RowRun::Report(const Comparison& c) const {
  const Rounds& mine = sides[c.ours];
  const Rounds& theirs = sides[c.theirs];
  if (theirs.empty() || theirs[0].empty()) {
    std::vector<double> all;
    for (const auto& round : mine) {
      all.insert(all.end(), round.begin(), round.end());
    }
    fmt::print("{}: ours p50 {:.6g} {}; no peer\n", c.id, Percentile(all, 50),
               c.unit);
    return;
  }
  const nlohmann::json json = {{"id", c.id},
                               {"peer", c.peer},
                               {"ours", mine},
                               {"theirs", theirs},
                               {"ranks", c.ranks},
                               {"bytes", c.bytes},
                               {"verified", !c.verified || *c.verified},
                               {"unit", c.unit}};
  fmt::print("RESULT {}\n", json.dump());
}

Status RowRun::Compare(int count, int samples,
                       const std::vector<Sampler>& samplers,
                       const std::vector<Comparison>& comparisons,
                       const std::vector<double>* noted) {
  LOCKSTEP_RETURN_IF_ERROR(Take(count, samples, samplers));
  if (noted != nullptr) {
    Rounds side;
    for (size_t i = noted->size() - sides[0].size(); i < noted->size(); ++i) {
      side.push_back({(*noted)[i]});
    }
    sides.push_back(std::move(side));
  }
  for (const Comparison& comparison : comparisons) Report(comparison);
  return OkStatus();
}

}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::cli::SilenceRpcLog();
  return lockstep::Main(lockstep::Words(argv + 1, argv + argc));
}
