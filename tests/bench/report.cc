#include "tests/bench/report.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "common/base/clock.h"
#include "common/base/file.h"

namespace lockstep {
namespace {

using nlohmann::json;

std::vector<double> Pool(const std::vector<std::vector<double>>& rounds) {
  std::vector<double> all;
  for (const auto& round : rounds) {
    all.insert(all.end(), round.begin(), round.end());
  }
  return all;
}

double Median(const std::vector<double>& values) {
  return Percentile(values, 0.5);
}

std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) == 0) {
      return line.substr(line.find(':') + 2);
    }
  }
  return "unknown";
}

// "1.23 ms"
std::string FormatSeconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3f} ms", seconds * 1e3);
  return fmt::format("{:.3f} s", seconds);
}

std::string FormatSample(double value, BenchResult::Unit unit) {
  return unit == BenchResult::Unit::kSeconds
             ? FormatSeconds(value)
             : fmt::format("{:.1f} MiB", value / (1 << 20));
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

Ratio RatioOf(const BenchResult& result) {
  return RatioOfMedians(result.ours_seconds, result.peer_seconds, 1);
}

}  // namespace

double Percentile(std::vector<double> values, double quantile) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(
      std::ceil(quantile * static_cast<double>(values.size())));
  const size_t index =
      std::min(rank > 0 ? rank - 1 : size_t{0}, values.size() - 1);
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[index];
}

Ratio RatioOfMedians(const std::vector<std::vector<double>>& ours,
                     const std::vector<std::vector<double>>& peer,
                     uint64_t seed) {
  Ratio ratio;
  ratio.value = Median(Pool(peer)) / Median(Pool(ours));
  // A round's samples count as their median.
  std::vector<std::pair<double, double>> rounds;
  for (size_t i = 0; i < ours.size(); ++i) {
    rounds.emplace_back(Median(ours[i]), Median(peer[i]));
  }
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<size_t> pick(0, rounds.size() - 1);
  std::vector<double> ratios;
  for (int draw = 0; draw < 10000; ++draw) {
    std::vector<double> a;
    std::vector<double> b;
    for (size_t i = 0; i < rounds.size(); ++i) {
      const auto& round = rounds[pick(random)];
      a.push_back(round.first);
      b.push_back(round.second);
    }
    ratios.push_back(Median(b) / Median(a));
  }
  ratio.low = Percentile(ratios, 0.025);
  ratio.high = Percentile(ratios, 0.975);
  return ratio;
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
  }
}

std::map<std::string, std::string> DescribeMachine() {
  utsname system{};
  uname(&system);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  const std::string cpu_max = FirstLine("/sys/fs/cgroup/cpu.max");
  return {
      {"cpu", CpuModel()},
      {"cores", std::to_string(CPU_COUNT(&cpus))},
      {"kernel", fmt::format("{} {}", system.sysname, system.release)},
      {"cgroup_cpu_max", cpu_max.empty() ? "none" : cpu_max},
      {"load_average", FirstLine("/proc/loadavg")},
      {"time", FormatWallTime(SystemClock().Now().wall)},
  };
}

Status AddToJson(const std::string& path,
                 const std::map<std::string, std::string>& versions,
                 const std::vector<BenchResult>& results) {
  json document = json::object();
  if (std::ifstream file(path); file) {
    document = json::parse(file, nullptr, false);
    if (!document.is_object()) {
      return FailedPrecondition("{} is no JSON object: remove it", path);
    }
  }
  document["machine"] = DescribeMachine();
  for (const auto& [name, version] : versions) {
    document["versions"][name] = version;
  }
  if (!document["results"].is_array()) document["results"] = json::array();
  for (const BenchResult& result : results) {
    const std::vector<double> ours = Pool(result.ours_seconds);
    const std::vector<double> peer = Pool(result.peer_seconds);
    const Ratio ratio = RatioOf(result);
    const std::string unit =
        result.unit == BenchResult::Unit::kSeconds ? "seconds" : "bytes";
    document["results"].push_back({
        {"id", result.id},
        {"bytes", result.bytes},
        {"ranks", result.ranks},
        {"peer", result.peer},
        {"rounds", result.ours_seconds.size()},
        {"samples", ours.size()},
        {"ours_" + unit, Median(ours)},
        {"ours_p99_" + unit, Percentile(ours, 0.99)},
        {"peer_" + unit, Median(peer)},
        {"peer_p99_" + unit, Percentile(peer, 0.99)},
        {"ratio", ratio.value},
        {"ratio_low", ratio.low},
        {"ratio_high", ratio.high},
        {"verified", result.verified},
    });
  }
  return RealFileSystem()->WriteAtomic(path, document.dump(2) + "\n");
}

}  // namespace lockstep
