// What the driver library for tests is to say: the environment and the file
// that fake_nvml.cc describes, and the readings that they change.
#ifndef LOCKSTEP_WORKER_DEVICES_FAKE_NVML_CONFIG_H_
#define LOCKSTEP_WORKER_DEVICES_FAKE_NVML_CONFIG_H_

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::worker::devices::fake {

inline constexpr int kSuccess = 0;
inline constexpr int kInvalidArgument = 2;
inline constexpr int kNotSupported = 3;
[[maybe_unused]] inline constexpr int kInsufficientSize = 7;
inline constexpr int kDriverNotLoaded = 9;
inline constexpr int kTimeout = 10;
inline constexpr int kGpuIsLost = 15;

// The readings of an idle GPU; `set` changes them. Never destroyed: a thread
// that was left behind in here may have read them last.
using Readings = std::map<std::string, unsigned long long>;
inline const Readings& kNames = *new Readings{
    {"utilization", 75},    // %
    {"memory_access", 30},  // %
    {"sm_activity", 61},    // %, between two samples.
    {"tensor_activity", 42},
    {"memory_activity", 25},
    {"memory_used", 4ull << 30},  // Bytes.
    {"memory_reserved", 512ull << 20},
    {"power", 70500},         // mW
    {"power_limit", 300000},  // mW
    {"energy", 1000000},      // mJ
    {"temperature", 55},      // C
    {"memory_temperature", 60},
    {"sm_clock", 1500},  // MHz
    {"memory_clock", 1200},
    {"sm_clock_max", 1980},
    {"memory_clock_max", 2619},
    {"throttle", 0},    // nvmlClocksEventReason...
    {"pcie_tx", 1000},  // KiB/s
    {"pcie_rx", 2000},
    {"pcie_replays", 0},
    {"pcie_generation", 4},
    {"pcie_width", 16},
    {"pcie_width_max", 16},
    {"nvlinks", 18},      // Active ones, of 18.
    {"nvlink_tx", 5000},  // KiB
    {"nvlink_rx", 6000},
    {"nvlink_crc_flit", 0},
    {"nvlink_crc_data", 0},
    {"nvlink_replay", 0},
    {"nvlink_recovery", 0},
    {"ecc_corrected_volatile", 0},
    {"ecc_uncorrected_volatile", 0},
    {"ecc_corrected_aggregate", 0},
    {"ecc_uncorrected_aggregate", 0},
    {"remapped_corrected", 0},
    {"remapped_uncorrected", 0},
    {"remap_pending", 0},
    {"remap_failure", 0},
};

struct Model {
  std::string name;
  unsigned long long memory;
  bool nvlink;
  bool hbm;    // With a sensor of its temperature.
  bool remap;  // Ampere and later.
  bool gpm;    // Hopper and later.
};

struct FakeProcess {
  unsigned gpu;
  unsigned pid;
  unsigned long long bytes;
};
struct Config {
  unsigned gpus = 0;
  std::string model = "T4";
  std::map<std::pair<unsigned, std::string>, unsigned long long> values;
  std::set<std::string> unsupported;
  std::set<std::string> hangs;
  std::set<unsigned> lost;
  std::vector<std::pair<unsigned, unsigned long long>> xids;
  std::vector<FakeProcess> processes;
};

inline std::atomic<int> open_count{0};

inline constexpr unsigned kAll = 1u << 30;

inline unsigned GpuOf(const std::string& word) {
  return word == "all" ? kAll : static_cast<unsigned>(atoi(word.c_str()));
}

inline Config Parse(const char* path) {
  Config config;
  if (const char* n = getenv("FAKE_NVML_GPUS")) {
    config.gpus = static_cast<unsigned>(atoi(n));
  }
  if (const char* model = getenv("FAKE_NVML_MODEL")) config.model = model;
  if (path == nullptr) return config;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what, a, b, c;
    words >> what >> a >> b >> c;
    const unsigned long long number =
        strtoull((what == "xid" ? b : c).c_str(), nullptr, 0);
    if (what == "gpus") config.gpus = static_cast<unsigned>(atoi(a.c_str()));
    if (what == "model") config.model = a;
    if (what == "set" && kNames.count(b) > 0) {
      config.values[{GpuOf(a), b}] = number;
    }
    if (what == "unsupported") config.unsupported.insert(a);
    if (what == "hang") config.hangs.insert(a);
    if (what == "lost") config.lost.insert(GpuOf(a));
    if (what == "process") {
      config.processes.push_back(
          {GpuOf(a), static_cast<unsigned>(atoi(b.c_str())), number});
    }
    if (what == "xid") config.xids.push_back({GpuOf(a), number});
  }
  return config;
}

// As the file is now.
inline Config Now() {
  static std::mutex* const mu = new std::mutex;
  static Config* const config = new Config;
  static struct stat last;
  static bool known = false;
  const char* path = getenv("FAKE_NVML_FILE");
  const std::lock_guard<std::mutex> lock(*mu);
  struct stat now {};
  if (path != nullptr && stat(path, &now) != 0) path = nullptr;
  // Without a file it is the environment, which a test may change.
  if (path == nullptr || !known || now.st_ino != last.st_ino ||
      now.st_size != last.st_size ||
      memcmp(&now.st_mtim, &last.st_mtim, sizeof(now.st_mtim)) != 0) {
    *config = Parse(path);
    last = now;
    known = path != nullptr;
  }
  return *config;
}

inline Model ModelOf(const Config& config) {
  if (config.model == "T4")
    return {"Tesla T4", 16ull << 30, false, false, false, false};
  if (config.model == "V100") {
    return {"Tesla V100-SXM2-16GB", 16ull << 30, true, true, false, false};
  }
  if (config.model == "H100") {
    return {"NVIDIA H100 80GB HBM3", 80ull << 30, true, true, true, true};
  }
  return {config.model, 16ull << 30, false, false, false, false};
}

// What every function does first: hangs, and says whether to go on.
inline int Enter(const char* function) {
  for (;;) {
    const Config config = Now();
    if (config.hangs.count("all") == 0 && config.hangs.count(function) == 0) {
      return config.unsupported.count(function) > 0 ? kNotSupported : kSuccess;
    }
    usleep(2000);
  }
}

inline unsigned IndexOf(void* device) {
  return static_cast<unsigned>(reinterpret_cast<size_t>(device)) - 1;
}

inline int EnterGpu(const char* function, void* device) {
  const int entered = Enter(function);
  if (entered != kSuccess) return entered;
  return Now().lost.count(IndexOf(device)) > 0 ? kGpuIsLost : kSuccess;
}

inline unsigned long long Value(void* device, const char* name) {
  const Config config = Now();
  for (const unsigned gpu : {IndexOf(device), kAll}) {
    const auto it = config.values.find({gpu, name});
    if (it != config.values.end()) return it->second;
  }
  return kNames.at(name);
}

[[maybe_unused]] inline int Put(const char* function, void* device,
                                const char* name, unsigned int* value) {
  const int entered = EnterGpu(function, device);
  if (entered == kSuccess) {
    *value = static_cast<unsigned int>(Value(device, name));
  }
  return entered;
}

}  // namespace lockstep::worker::devices::fake

#endif  // LOCKSTEP_WORKER_DEVICES_FAKE_NVML_CONFIG_H_
