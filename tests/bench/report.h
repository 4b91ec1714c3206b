// What every benchmark says about itself: the machine, the ratio of two sides
// with its confidence, and a JSON file that several programs add to.
#ifndef LOCKSTEP_TESTS_BENCH_REPORT_H_
#define LOCKSTEP_TESTS_BENCH_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// `quantile` in [0, 1] by the nearest rank; 0 for no values.
double Percentile(std::vector<double> values, double quantile);

struct Ratio {
  double value = 0;
  // 95 % interval.
  double low = 0;
  double high = 0;
};

// peer / ours of the medians: above 1 means that ours is faster. The interval
// is a bootstrap of 10,000 draws over rounds: samples of one round share the
// state of the machine and are not independent. `ours` and `peer` hold the
// samples of each round, equally many rounds, none empty.
Ratio RatioOfMedians(const std::vector<std::vector<double>>& ours,
                     const std::vector<std::vector<double>>& peer,
                     uint64_t seed);

// As RatioOfMedians, but the median of each sample's own ratio: the i-th of a
// round's were taken one right after the other, on what both have in common, so
// that what the machine did meanwhile is in both. REQUIRES: of both equally
// many in each round.
Ratio MedianOfRatios(const std::vector<std::vector<double>>& ours,
                     const std::vector<std::vector<double>>& peer,
                     uint64_t seed);

struct BenchResult {
  std::string id;
  uint64_t bytes = 0;
  int ranks = 0;
  std::string peer;  // what it is compared with, and its settings
  std::vector<std::vector<double>> ours_seconds;  // by round
  std::vector<std::vector<double>> peer_seconds;
  bool verified = false;
  // What the samples are; the JSON's names stay "..._seconds" for time only.
  enum class Unit { kSeconds, kBytes };
  Unit unit = Unit::kSeconds;
  // How, for people: "two ranks equal, ...".
  std::string checked = {};
  // What the ratio must be and would better be; 0: nothing was set.
  double must = 0;
  double aim = 0;
  // What nobody could take less than, measured in the same run, and what that
  // is; 0: not said.
  double limit_seconds = 0;
  std::string limit_what = {};
  // Rounds that were taken again, and those kept, because others used the
  // machine meanwhile.
  int repeated_rounds = 0;
  int busy_rounds = 0;
  // Runs of the benchmark, settings that were tried included, that were done
  // again, and those kept, because processors parted meanwhile
  // (core_distance.h).
  int parted_runs = 0;
  int kept_parted_runs = 0;
  // Both sides' samples were taken by turns in the same processes, or are
  // differences of such: what the machine did meanwhile is not in their ratio.
  bool by_turns = false;
  // The ratio is MedianOfRatios, not RatioOfMedians.
  bool paired = false;
};

inline constexpr uint64_t kBootstrapSeed = 1;

Ratio RatioOf(const BenchResult& result);

// Of all rounds together.
double OursMedian(const BenchResult& result);
double PeerMedian(const BenchResult& result);

// "1.23 ms", "25 MiB".
std::string FormatSeconds(double seconds);
std::string FormatBytes(uint64_t bytes);

// Prints one line a result, with medians, 99th percentiles and the ratio; after
// it how it was checked and its limit, where they are said.
void PrintResults(const std::vector<BenchResult>& results);

// CPU model, cores, caches, memory, kernel, limits, load: what a figure depends
// on.
std::map<std::string, std::string> DescribeMachine();

// Adds `results` to the JSON at `path`, or makes it:
// {machine, versions, seeds, results: [{id, bytes, ranks, peer, ours_seconds,
// peer_seconds, ratio, ratio_low, ratio_high, verified, ...}]}. Of the samples
// it keeps each round's median. FailedPrecondition where something else is at
// `path`.
Status AddToJson(const std::string& path,
                 const std::map<std::string, std::string>& versions,
                 const std::vector<BenchResult>& results,
                 const std::map<std::string, std::string>& seeds = {});

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_BENCH_REPORT_H_
