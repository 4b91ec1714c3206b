// The machine, and results as JSON.
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "tests/bench/report.h"

namespace lockstep {
namespace {

using nlohmann::json;

std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value of the first line "NAME ...: VALUE" of a file in /proc.
std::string ProcField(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(name, 0) != 0) continue;
    const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

std::string Cpu() {
  const char* const info = "/proc/cpuinfo";
  const std::string model = ProcField(info, "model name");
  return model.empty() ? "unknown" : model;
}

// "25.1.1": names that hypervisors give say less.
std::string CpuFamily() {
  const char* const info = "/proc/cpuinfo";
  return fmt::format("{}.{}.{}", ProcField(info, "cpu family"),
                     ProcField(info, "model\t"), ProcField(info, "stepping"));
}

std::string Caches() {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    const std::string dir =
        fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string size = FirstLine((dir + "size").c_str());
    if (size.empty()) break;
    text += fmt::format("{}L{} {} {}", text.empty() ? "" : ", ",
                        FirstLine((dir + "level").c_str()),
                        FirstLine((dir + "type").c_str()), size);
  }
  return text.empty() ? "unknown" : text;
}

// Each round's.
std::vector<double> Medians(const std::vector<std::vector<double>>& rounds) {
  std::vector<double> medians;
  for (const auto& round : rounds) medians.push_back(Percentile(round, 0.5));
  return medians;
}

double P99(const std::vector<std::vector<double>>& rounds) {
  std::vector<double> all;
  for (const auto& round : rounds) {
    all.insert(all.end(), round.begin(), round.end());
  }
  return Percentile(std::move(all), 0.99);
}

json EntryOf(const BenchResult& result) {
  const Ratio ratio = RatioOf(result);
  const std::string unit =
      result.unit == BenchResult::Unit::kSeconds ? "seconds" : "bytes";
  size_t samples = 0;
  for (const auto& round : result.ours_seconds) samples += round.size();
  json entry = {
      {"id", result.id},
      {"bytes", result.bytes},
      {"ranks", result.ranks},
      {"peer", result.peer},
      {"rounds", result.ours_seconds.size()},
      {"samples", samples},
      {"ours_" + unit, OursMedian(result)},
      {"ours_p99_" + unit, P99(result.ours_seconds)},
      {"ours_rounds_" + unit, Medians(result.ours_seconds)},
      {"peer_" + unit, PeerMedian(result)},
      {"peer_p99_" + unit, P99(result.peer_seconds)},
      {"peer_rounds_" + unit, Medians(result.peer_seconds)},
      {"ratio", ratio.value},
      {"ratio_is",
       result.paired ? "the median of ratios" : "the ratio of medians"},
      {"ratio_low", ratio.low},
      {"ratio_high", ratio.high},
      {"verified", result.verified},
      {"repeated_rounds", result.repeated_rounds},
      {"busy_rounds", result.busy_rounds},
      {"parted_runs", result.parted_runs},
      {"kept_parted_runs", result.kept_parted_runs},
  };
  if (!result.checked.empty()) entry["checked"] = result.checked;
  if (result.must > 0) {
    entry["must"] = result.must;
    entry["aim"] = result.aim;
    entry["met"] = result.verified && ratio.low >= result.must;
  }
  if (result.limit_seconds > 0) {
    entry["limit_seconds"] = result.limit_seconds;
    entry["limit_what"] = result.limit_what;
    entry["limit_ratio"] = PeerMedian(result) / result.limit_seconds;
  }
  return entry;
}

}  // namespace

std::map<std::string, std::string> DescribeMachine() {
  utsname system{};
  uname(&system);
  // Without what the host's builder has added.
  const std::string release = system.release;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  const std::string cpu_max = FirstLine("/sys/fs/cgroup/cpu.max");
  return {
      {"cpu", Cpu()},
      {"cpu_family", CpuFamily()},
      {"caches", Caches()},
      {"cores", std::to_string(CPU_COUNT(&cpus))},
      {"memory", ProcField("/proc/meminfo", "MemTotal")},
      {"kernel", fmt::format("{} {}", system.sysname,
                             release.substr(0, release.find('-')))},
      {"cgroup_cpu_max", cpu_max.empty() ? "none" : cpu_max},
      {"load_average", FirstLine("/proc/loadavg")},
      {"time", FormatWallTime(SystemClock().Now().wall)},
  };
}

Status AddToJson(const std::string& path,
                 const std::map<std::string, std::string>& versions,
                 const std::vector<BenchResult>& results,
                 const std::map<std::string, std::string>& seeds) {
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
  document["seeds"]["bootstrap"] = std::to_string(kBootstrapSeed);
  for (const auto& [name, seed] : seeds) document["seeds"][name] = seed;
  if (!document["results"].is_array()) document["results"] = json::array();
  for (const BenchResult& result : results) {
    document["results"].push_back(EntryOf(result));
  }
  return RealFileSystem()->WriteAtomic(path, document.dump(2) + "\n");
}

}  // namespace lockstep
