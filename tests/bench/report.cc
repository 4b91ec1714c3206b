#include "tests/bench/report.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace lockstep {
namespace {

std::vector<double> Pool(const std::vector<std::vector<double>>& rounds) {
  std::vector<double> all;
  for (const auto& round : rounds) {
    all.insert(all.end(), round.begin(), round.end());
  }
  return all;
}

double Median(std::vector<double> values) {
  return Percentile(std::move(values), 0.5);
}

// What `estimate` makes of all samples of ours and of the peer, and its
// interval over draws of whole rounds, each with all its samples.
template <typename Estimate>
Ratio Bootstrap(const std::vector<std::vector<double>>& ours,
                const std::vector<std::vector<double>>& peer, uint64_t seed,
                const Estimate& estimate) {
  Ratio ratio;
  ratio.value = estimate(Pool(ours), Pool(peer));
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<size_t> pick(0, ours.size() - 1);
  std::vector<double> ratios;
  for (int draw = 0; draw < 10000; ++draw) {
    std::vector<double> a;
    std::vector<double> b;
    for (size_t i = 0; i < ours.size(); ++i) {
      const size_t round = pick(random);
      a.insert(a.end(), ours[round].begin(), ours[round].end());
      b.insert(b.end(), peer[round].begin(), peer[round].end());
    }
    ratios.push_back(estimate(std::move(a), std::move(b)));
  }
  ratio.low = Percentile(ratios, 0.025);
  ratio.high = Percentile(ratios, 0.975);
  return ratio;
}

std::string FormatSample(double value, BenchResult::Unit unit) {
  return unit == BenchResult::Unit::kSeconds
             ? FormatSeconds(value)
             : fmt::format("{:.1f} MiB", value / (1 << 20));
}

}  // namespace

std::string FormatSeconds(double seconds) {
  if (seconds < 1e-5) return fmt::format("{:.3f} us", seconds * 1e6);
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.3f} s", seconds);
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

Ratio RatioOf(const BenchResult& result) {
  return (result.paired ? MedianOfRatios : RatioOfMedians)(
      result.ours_seconds, result.peer_seconds, kBootstrapSeed);
}

double OursMedian(const BenchResult& result) {
  return Median(Pool(result.ours_seconds));
}

double PeerMedian(const BenchResult& result) {
  return Median(Pool(result.peer_seconds));
}

double Percentile(std::vector<double> values, double quantile) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(
      std::ceil(quantile * static_cast<double>(values.size())));
  const size_t index =
      std::min(rank > 0 ? rank - 1 : size_t{0}, values.size() - 1);
  std::nth_element(values.begin(),
                   values.begin() + static_cast<ptrdiff_t>(index),
                   values.end());
  return values[index];
}

Ratio RatioOfMedians(const std::vector<std::vector<double>>& ours,
                     const std::vector<std::vector<double>>& peer,
                     uint64_t seed) {
  return Bootstrap(
      ours, peer, seed,
      [](std::vector<double> ours_drawn, std::vector<double> peer_drawn) {
        return Median(std::move(peer_drawn)) / Median(std::move(ours_drawn));
      });
}

Ratio MedianOfRatios(const std::vector<std::vector<double>>& ours,
                     const std::vector<std::vector<double>>& peer,
                     uint64_t seed) {
  return Bootstrap(
      ours, peer, seed,
      [](const std::vector<double>& ours_drawn, std::vector<double> ratios) {
        for (size_t i = 0; i < ratios.size(); ++i) ratios[i] /= ours_drawn[i];
        return Median(std::move(ratios));
      });
}

void PrintResults(const std::vector<BenchResult>& results) {
  fmt::print("{:20} {:>9} {:>12} {:>12} {:>12} {:>12}  {:22} {}\n", "id",
             "bytes", "ours p50", "p99", "peer p50", "p99", "peer/ours (95 %)",
             "verified");
  for (const BenchResult& result : results) {
    const std::vector<double> ours = Pool(result.ours_seconds);
    const std::vector<double> peer = Pool(result.peer_seconds);
    const Ratio ratio = RatioOf(result);
    fmt::print(
        "{:20} {:>9} {:>12} {:>12} {:>12} {:>12}  {:.3f} [{:.3f}, {:.3f}]   "
        "{}\n",
        result.id, FormatBytes(result.bytes),
        FormatSample(Median(ours), result.unit),
        FormatSample(Percentile(ours, 0.99), result.unit),
        FormatSample(Median(peer), result.unit),
        FormatSample(Percentile(peer, 0.99), result.unit), ratio.value,
        ratio.low, ratio.high, result.verified ? "yes" : "NO");
    if (!result.checked.empty()) fmt::print("  checked: {}\n", result.checked);
    if (result.limit_seconds > 0) {
      fmt::print(
          "  limit: {}: {}; ours takes {:.3f} of it; in that time the ratio "
          "would be {:.3f}\n",
          result.limit_what, FormatSeconds(result.limit_seconds),
          Median(ours) / result.limit_seconds,
          Median(peer) / result.limit_seconds);
    }
  }
}

}  // namespace lockstep
