// One of the all-reduce benchmarks A1 to A8: ours against its peers, by turns
// in fresh processes, in one run. Exits with 0, 1 for wrong data or a row that
// is missed, 2 for wrong usage, 77 where a peer is not there or the machine
// stays busy.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "tests/bench/engine_rows.h"
#include "tests/bench/engine_run.h"
#include "tests/bench/report.h"
#include "tests/bench/verdict.h"
#include "tests/bench/versions.h"

namespace lockstep {
namespace {

struct Flags {
  std::string id;
  std::string json;
  EngineOptions run;
  Gate gate;
};

constexpr char kUsage[] =
    "usage: engine_bench ID [--json FILE] [--rounds N] [--bytes N]\n"
    "  [--most-bytes N] [--force | --lenient] [--likely] [--gate FACTOR]\n"
    "  [--median] [--backend NAME] [--verbose]\n"
    "N rounds, at least 2, the first one dropped. A round in which others used "
    "the\nmachine is repeated, unless --force; with --lenient a few are, then "
    "they are\ntaken, and what is missed counts as not measured. --likely "
    "tries only those\nsettings of peers that were best somewhere. The gate "
    "is FACTOR of what must be,\non the lower end of the interval or on the "
    "median.\n";

std::optional<Flags> Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--force") {
      flags.run.on_busy = OnBusy::kTake;
    } else if (word == "--lenient") {
      flags.run.on_busy = OnBusy::kRepeatThenTake;
    } else if (word == "--likely") {
      flags.run.likely_only = true;
    } else if (word == "--median") {
      flags.gate.on_median = true;
    } else if (word == "--verbose") {
      flags.run.verbose = true;
    } else if (word == "--json" && has_value) {
      flags.json = argv[++i];
    } else if (word == "--rounds" && has_value) {
      flags.run.rounds = std::atoi(argv[++i]);
    } else if (word == "--gate" && has_value) {
      flags.gate.factor = std::atof(argv[++i]);
    } else if (word == "--backend" && has_value) {
      flags.run.backend = argv[++i];
    } else if (word == "--most-bytes" && has_value) {
      flags.run.most_bytes = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--bytes" && has_value) {
      flags.run.most_bytes = std::strtoull(argv[++i], nullptr, 10);
      flags.run.least_bytes = flags.run.most_bytes;
    } else if (flags.id.empty() && word[0] != '-') {
      flags.id = word;
    } else {
      return std::nullopt;
    }
  }
  if (flags.id.empty() || flags.run.rounds < 2) return std::nullopt;
  return flags;
}

Status Run(const EngineBench& bench, const Flags& flags) {
  const auto versions = EngineVersions();
  PrintFields(DescribeMachine());
  PrintFields(versions);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<BenchResult> results,
                            RunEngineBench(bench, flags.run));
  if (results.empty()) return InvalidArgument("no row of that size");
  if (!flags.json.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(AddToJson(
        flags.json, versions, results,
        {{"all-reduce input", "xorshift64*, 88172645463325252 + 977 * rank"}}));
  }
  const Verdict verdict = JudgeResults(results, flags.gate);
  for (const std::string& line : verdict.lines) fmt::print("{}\n", line);
  return verdict.status;
}

int Main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::optional<Flags> flags = Parse(argc, argv);
  if (!flags) {
    fmt::print(stderr, "{}", kUsage);
    return 2;
  }
  for (const EngineBench& bench : EngineBenches()) {
    if (bench.id != flags->id) continue;
    const Status status = Run(bench, *flags);
    if (!status.ok()) {
      fmt::print(stderr, "{}: {}\n", flags->id, Message(status));
    }
    return ExitCodeOf(status);
  }
  fmt::print(stderr, "no benchmark {}\n", flags->id);
  return 2;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) { return lockstep::Main(argc, argv); }
