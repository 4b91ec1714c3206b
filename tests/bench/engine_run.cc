#include "tests/bench/engine_run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "tests/bench/core_distance.h"
#include "tests/bench/engine_limits.h"
#include "tests/bench/machine_load.h"
#include "tests/bench/probe_run.h"

namespace lockstep {
namespace {

constexpr int kMostStalls = 2;
constexpr Duration kRoundWatchdog = std::chrono::seconds(30);
constexpr Duration kCalibrationWatchdog = std::chrono::seconds(8);

// What is best for one size.
struct Choice {
  const Contender* contender = nullptr;
  int variant = 0;
  double seconds = 1e18;
  std::string Label() const {
    const std::string& variant_name = contender->variants[variant];
    return contender->label + (variant_name.empty() ? "" : " " + variant_name);
  }
};

double Median(const std::vector<double>& values) {
  return Percentile(values, 0.5);
}

class Engine {
 public:
  Engine(const EngineBench& bench, const EngineOptions& options)
      : bench_(bench),
        options_(options),
        busy_(options.on_busy, options.rounds) {
    if (!options_.backend.empty()) {
      ours_ = bench_.ours;
      for (size_t i = 0; i + 1 < ours_.arguments.size(); ++i) {
        if (ours_.arguments[i] == "--backend") {
          ours_.arguments[i + 1] = options_.backend;
        }
      }
      ours_.label = options_.backend;
    } else {
      ours_ = bench_.ours;
    }
    for (const EngineRow& row : bench_.rows) {
      if (row.bytes >= options_.least_bytes &&
          row.bytes <= options_.most_bytes) {
        rows_.push_back(row);
      }
    }
  }

  StatusOr<std::vector<BenchResult>> Run() {
    fmt::print("{}: {}, {} ranks\n", bench_.id, bench_.what, bench_.ranks);
    if (!bench_.line_rate.empty()) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          hosts_, BenchHosts::Make(bench_.ranks, bench_.line_rate));
    }
    LOCKSTEP_RETURN_IF_ERROR(Calibrate());
    Begin();
    for (int round = 0; round < options_.rounds;) {
      LOCKSTEP_ASSIGN_OR_RETURN(const Taken taken, Round(round));
      if (taken == Taken::kPeerFailed) {
        Begin();
        busy_.Restart();
        round = 0;
      } else if (taken == Taken::kYes) {
        ++round;
      }
    }
    Finish();
    return std::move(results_);
  }

 private:
  ProbeJob Job(const Contender& contender, Duration watchdog) const {
    ProbeJob job;
    job.contender = &contender;
    job.ranks = bench_.ranks;
    job.hosts = hosts_.get();
    job.watchdog = watchdog;
    return job;
  }

  // Again where processors that share a cache parted meanwhile.
  StatusOr<ProbeResult> RunNear(const ProbeJob& job) {
    for (;;) {
      distance_.WaitUntilNear();
      LOCKSTEP_ASSIGN_OR_RETURN(ProbeResult result, RunProbe(job));
      if (!result.failure.ok() || !distance_.HaveParted()) return result;
    }
  }

  // Tries everybody on every size of theirs.
  Status Calibrate() {
    choices_.assign(rows_.size(), {});
    for (size_t peer = 0; peer < bench_.peers.size(); ++peer) {
      std::vector<size_t> of_peer;
      for (size_t i = 0; i < rows_.size(); ++i) {
        if (rows_[i].peer == peer) of_peer.push_back(i);
      }
      if (of_peer.empty()) continue;
      for (const Contender& contender : bench_.peers[peer].contenders) {
        if (options_.likely_only && !contender.likely) continue;
        LOCKSTEP_RETURN_IF_ERROR(Try(contender, of_peer));
      }
      for (const size_t row : of_peer) {
        std::vector<Choice>& choices = choices_[row];
        std::sort(choices.begin(), choices.end(),
                  [](const Choice& a, const Choice& b) {
                    return a.seconds > b.seconds;
                  });
        if (choices.empty()) {
          return NotFound("{}: none of its settings ran{}",
                          bench_.peers[peer].name, last_failure_);
        }
      }
    }
    return OkStatus();
  }

  Status Try(const Contender& contender, const std::vector<size_t>& of_peer) {
    if (!contender.starter.empty() &&
        std::system(("command -v " + contender.starter[0] + " >/dev/null 2>&1")
                        .c_str()) != 0) {
      return NotFound("there is no {}; ./deploy/install-deps --tests",
                      contender.starter[0]);
    }
    if (!HasProgram(contender)) {
      last_failure_ = fmt::format(
          "; there is no {}, as its packages were missing when the benchmarks "
          "were built: ./deploy/install-deps --tests --bench",
          contender.program);
      return OkStatus();
    }
    ProbeJob job = Job(contender, kCalibrationWatchdog);
    std::vector<size_t> row_of;  // by case
    for (const size_t row : of_peer) {
      if (stalls_[{contender.family, rows_[row].bytes}] >= kMostStalls) {
        continue;
      }
      for (size_t v = 0; v < contender.variants.size(); ++v) {
        job.cases.push_back({rows_[row].bytes,
                             SamplesFor(rows_[row].bytes, true),
                             static_cast<int>(v)});
        row_of.push_back(row);
      }
    }
    if (job.cases.empty()) return OkStatus();
    LOCKSTEP_ASSIGN_OR_RETURN(const ProbeResult result, RunNear(job));
    if (!result.failure.ok()) NoteFailure(job, result);
    for (size_t i = 0; i < result.finished; ++i) {
      const double seconds = Median(result.seconds[i]);
      const int variant = job.cases[i].variant;
      if (options_.verbose) {
        fmt::print("  {:>9} B {:10.2f} us  {} {}{}\n", job.cases[i].bytes,
                   seconds * 1e6, contender.label, contender.variants[variant],
                   result.right[i] ? "" : "  WRONG");
      }
      if (!result.right[i]) continue;
      choices_[row_of[i]].push_back({&contender, variant, seconds});
    }
    return OkStatus();
  }

  void NoteFailure(const ProbeJob& job, const ProbeResult& result) {
    last_failure_ = "; " + Message(result.failure);
    if (result.finished == job.cases.size()) return;
    const uint64_t bytes = job.cases[result.finished].bytes;
    fmt::print("left out from {} bytes on: {}\n", bytes,
               Message(result.failure));
    if (!job.contender->family.empty()) {
      ++stalls_[{job.contender->family, bytes}];
    }
  }

  // Anew, against the peers that are the best now.
  void Begin() {
    results_.clear();
    bare_seconds_.clear();
    for (size_t i = 0; i < rows_.size(); ++i) {
      BenchResult result;
      result.id = bench_.id;
      result.bytes = rows_[i].bytes;
      result.ranks = bench_.ranks;
      result.peer =
          bench_.peers[rows_[i].peer].name + ": " + choices_[i].back().Label();
      result.verified = true;
      result.must = rows_[i].must;
      result.aim = rows_[i].aim;
      fmt::print("{:>9} bytes against {}\n  {}\n", result.bytes, result.peer,
                 CommandOf(JobOf(i, false)));
      results_.push_back(std::move(result));
    }
    fmt::print("{} rounds, the first one dropped\n", options_.rounds);
    std::fflush(stdout);
  }

  ProbeJob JobOf(size_t row, bool ours) const {
    const Contender& contender = ours ? ours_ : *choices_[row].back().contender;
    ProbeJob job = Job(contender, kRoundWatchdog);
    const int variant = ours ? static_cast<int>(ours_.variants.size()) - 1
                             : choices_[row].back().variant;
    job.cases = {
        {rows_[row].bytes, SamplesFor(rows_[row].bytes, false), variant}};
    return job;
  }

  // kNo: the machine was busy. kPeerFailed: one stalled in a way of its own;
  // its next best setting takes its place, and the rounds begin anew.
  enum class Taken { kYes, kNo, kPeerFailed };
  StatusOr<Taken> Round(int round) {
    const CpuReading before = ReadCpu();
    bare_round_.clear();
    if (round % 2 == 0) LOCKSTEP_RETURN_IF_ERROR(RunBare());
    std::vector<ProbeResult> sides[2];  // ours, peers'
    for (size_t row = 0; row < rows_.size(); ++row) {
      for (int turn = 0; turn < 2; ++turn) {
        const int side = (turn + round) % 2;
        LOCKSTEP_ASSIGN_OR_RETURN(ProbeResult result,
                                  RunNear(JobOf(row, side == 0)));
        if (side == 0) LOCKSTEP_RETURN_IF_ERROR(result.failure);
        if (!result.failure.ok()) {
          fmt::print("left out: {}\n", Message(result.failure));
          choices_[row].pop_back();
          if (choices_[row].empty()) return result.failure;
          return Taken::kPeerFailed;
        }
        sides[side].push_back(std::move(result));
      }
    }
    if (round % 2 == 1) LOCKSTEP_RETURN_IF_ERROR(RunBare());
    const CpuShares shares = SharesBetween(before, ReadCpu());
    const BusyRounds::Next next = busy_.Judge(shares, round == 0);
    if (IsBusy(shares)) {
      fmt::print("round {}: {:.1f} % used by others, {:.1f} % stolen{}\n",
                 round, 100 * shares.foreign, 100 * shares.stolen,
                 next == BusyRounds::Next::kRepeat ? ": again" : "");
    }
    if (next == BusyRounds::Next::kRepeat) return Taken::kNo;
    if (next == BusyRounds::Next::kGiveUp) {
      return Unavailable(
          "the machine stays busy: {} rounds were repeated; --force takes "
          "them as they are",
          busy_.repeated());
    }
    KeepBare(round);
    for (size_t row = 0; row < rows_.size(); ++row) {
      BenchResult& result = results_[row];
      result.verified =
          result.verified && sides[0][row].right[0] && sides[1][row].right[0];
      if (round == 0) {
        fmt::print("ours, {} bytes: {}", result.bytes,
                   sides[0][row].output.empty() ? ours_.label + "\n"
                                                : sides[0][row].output);
        continue;
      }
      result.ours_seconds.push_back(std::move(sides[0][row].seconds[0]));
      result.peer_seconds.push_back(std::move(sides[1][row].seconds[0]));
    }
    return Taken::kYes;
  }

  // What no engine could do without: before the sides, after them in the next
  // round.
  Status RunBare() {
    if (bench_.bare.program.empty()) return OkStatus();
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (rows_[row].bytes < kUncached) continue;
      ProbeJob job = Job(bench_.bare, kRoundWatchdog);
      const SampleCount count = SamplesFor(rows_[row].bytes, false);
      const size_t variants = bench_.bare.variants.size();
      for (size_t v = 0; v < variants; ++v) {
        job.cases.push_back({rows_[row].bytes, count, static_cast<int>(v)});
      }
      LOCKSTEP_ASSIGN_OR_RETURN(const ProbeResult result, RunNear(job));
      LOCKSTEP_RETURN_IF_ERROR(result.failure);
      for (size_t v = 0; v < variants; ++v) {
        if (!result.right[v]) return Internal("bare_reduce: a wrong sum");
        bare_round_[{row, v}] = result.seconds[v];
      }
    }
    return OkStatus();
  }

  void KeepBare(int round) {
    for (const auto& [place, seconds] : bare_round_) {
      if (round == 0) continue;
      std::vector<double>& all = bare_seconds_[place];
      all.insert(all.end(), seconds.begin(), seconds.end());
    }
  }

  // Its best is nearer to what can be reached than what MeasureLimit knows.
  void SetBareLimit(size_t row) {
    BenchResult& result = results_[row];
    double best = 1e18;
    for (size_t v = 0; v < bench_.bare.variants.size(); ++v) {
      const auto found = bare_seconds_.find({row, v});
      if (found == bare_seconds_.end()) continue;
      const double seconds = Median(found->second);
      fmt::print("{} B, {}, {}: {:.2f} us\n", result.bytes, bench_.bare.label,
                 bench_.bare.variants[v], seconds * 1e6);
      if (seconds >= best) continue;
      best = seconds;
      result.limit_seconds = seconds;
      result.limit_what =
          fmt::format("{} {}, waiting {}, by turns with both sides",
                      bench_.ranks, bench_.bare.label, bench_.bare.variants[v]);
    }
  }

  void Finish() {
    for (BenchResult& result : results_) {
      result.checked =
          "every rank's last sum of each round against float64, both sides";
      result.repeated_rounds = busy_.repeated();
      result.busy_rounds = busy_.kept_busy();
      result.parted_runs = distance_.parted();
      result.kept_parted_runs = distance_.kept();
      distance_.WaitUntilNear();
      MeasureLimit(bench_, &result);
      SetBareLimit(&result - results_.data());
    }
    if (distance_.always_apart()) {
      fmt::print("two processors have no common cache\n");
    } else if (distance_.parted() > 0) {
      fmt::print(
          "{} runs of either side done again: processors that share a "
          "cache parted; {} kept after {} times\n",
          distance_.parted(), distance_.kept(), CoreDistance::kMostAgain);
    }
    PrintResults(results_);
  }

  const EngineBench& bench_;
  const EngineOptions& options_;
  Contender ours_;
  std::vector<EngineRow> rows_;
  std::unique_ptr<BenchHosts> hosts_;
  std::vector<std::vector<Choice>> choices_;  // by row, the best at the end
  std::string last_failure_;
  // How many of a family stood still at a size.
  std::map<std::pair<std::string, uint64_t>, int> stalls_;
  BusyRounds busy_;
  CoreDistance distance_;
  std::vector<BenchResult> results_;
  // By row and variant: of this round, and of all that were taken.
  std::map<std::pair<size_t, size_t>, std::vector<double>> bare_round_;
  std::map<std::pair<size_t, size_t>, std::vector<double>> bare_seconds_;
};

}  // namespace

StatusOr<std::vector<BenchResult>> RunEngineBench(
    const EngineBench& bench, const EngineOptions& options) {
  Engine engine(bench, options);
  return engine.Run();
}

}  // namespace lockstep
