// The values of cloud.google.com/ai-platform/training/docs/machine-types,
// .../using-gpus and .../pricing. One ML unit is 0.49 USD. Peaks are from
// NVIDIA's data sheets, without sparsity: tensor cores in 16 bits if present,
// P100 in 16 bits, P4 and (one chip of a) K80 in 32 bits.
#include <cmath>

#include "common/training/machines.h"

namespace lockstep {
namespace {

constexpr char kK80[] = "NVIDIA_TESLA_K80";
constexpr char kP4[] = "NVIDIA_TESLA_P4";
constexpr char kP100[] = "NVIDIA_TESLA_P100";
constexpr char kT4[] = "NVIDIA_TESLA_T4";
constexpr char kV100[] = "NVIDIA_TESLA_V100";
constexpr char kA100[] = "NVIDIA_TESLA_A100";

// The available counts of a GPU, from `least` on.
std::vector<int32_t> Counts(int32_t least, int32_t most) {
  std::vector<int32_t> counts;
  for (const int32_t count : {1, 2, 4, 8}) {
    if (count >= least && count <= most) counts.push_back(count);
  }
  return counts;
}

// The GPUs that an n1 machine with `cpus` cores takes. Published for
// n1-standard and n1-highmem-2; other n1 machines of the same size are equal.
std::map<std::string, std::vector<int32_t>> Attachable(double cpus) {
  if (cpus <= 8) {
    return {{kK80, Counts(1, 8)},
            {kP4, Counts(1, 4)},
            {kP100, Counts(1, 4)},
            {kT4, Counts(1, 4)},
            {kV100, Counts(1, 8)}};
  }
  if (cpus <= 16) {
    return {{kK80, Counts(2, 8)},
            {kP4, Counts(1, 4)},
            {kP100, Counts(1, 4)},
            {kT4, Counts(1, 4)},
            {kV100, Counts(2, 8)}};
  }
  if (cpus <= 32) {
    return {{kK80, Counts(4, 8)},
            {kP4, Counts(2, 4)},
            {kP100, Counts(2, 4)},
            {kT4, Counts(2, 4)},
            {kV100, Counts(4, 8)}};
  }
  return {{kP4, Counts(4, 4)}, {kT4, Counts(4, 4)}, {kV100, Counts(8, 8)}};
}

struct Size {
  const char* name;
  double cpus;
  double memory_gib;
  std::optional<double> ml_units;
};
const Size kSizes[] = {
    {"n1-standard-4", 4, 15, 0.3878},    {"n1-standard-8", 8, 30, 0.7755},
    {"n1-standard-16", 16, 60, 1.5510},  {"n1-standard-32", 32, 120, 3.1020},
    {"n1-standard-64", 64, 240, 6.2041}, {"n1-standard-96", 96, 360, 9.3061},
    {"n1-highmem-2", 2, 13, 0.2416},     {"n1-highmem-4", 4, 26, {}},
    {"n1-highmem-8", 8, 52, 0.9665},     {"n1-highmem-16", 16, 104, {}},
    {"n1-highmem-32", 32, 208, {}},      {"n1-highmem-64", 64, 416, {}},
    {"n1-highmem-96", 96, 624, {}},      {"n1-highcpu-8", 8, 7.2, 0.5788},
    {"n1-highcpu-16", 16, 14.4, 1.1576}, {"n1-highcpu-32", 32, 28.8, 2.3151},
    {"n1-highcpu-64", 64, 57.6, {}},     {"n1-highcpu-96", 96, 86.4, {}},
};

// Names from before machine types.
struct Legacy {
  const char* name;
  const char* machine;
  const char* accelerator;
  int32_t count;
};
const Legacy kLegacy[] = {
    {"standard", "n1-standard-4", "", 0},
    {"large_model", "n1-highmem-8", "", 0},
    {"complex_model_s", "n1-highcpu-8", "", 0},
    {"complex_model_m", "n1-highcpu-16", "", 0},
    {"complex_model_l", "n1-highcpu-32", "", 0},
    {"standard_gpu", "n1-standard-8", kK80, 1},
    {"complex_model_m_gpu", "n1-standard-16", kK80, 4},
    {"complex_model_l_gpu", "n1-standard-32", kK80, 8},
    {"standard_p100", "n1-standard-8", kP100, 1},
    {"complex_model_m_p100", "n1-standard-16", kP100, 4},
    {"standard_v100", "n1-standard-8", kV100, 1},
    {"large_model_v100", "n1-highmem-8", kV100, 1},
    {"complex_model_m_v100", "n1-standard-16", kV100, 4},
    {"complex_model_l_v100", "n1-standard-32", kV100, 8},
};

}  // namespace

MachineTable DefaultMachineTable() {
  MachineTable table;
  table.accelerators = {
      {kK80, {"Tesla K80", 0.9184, 4.37}},
      {kP4, {"Tesla P4", 1.2245, 5.5}},
      {kP100, {"Tesla P100", 2.9796, 18.7}},
      {kT4, {"Tesla T4", 0.7143, 65}},
      {kV100, {"Tesla V100", 5.0612, 125}},
      {kA100, {"A100", {}, 312}},
      {"NVIDIA_L4", {"L4", {}, 121}},
      {"NVIDIA_H100_80GB", {"H100", {}, 989}},
      {"NVIDIA_H100_PCIE", {"H100 PCIe", {}, 756}},
      {"NVIDIA_H200_141GB", {"H200", {}, 989}},
  };
  for (const Size& size : kSizes) {
    MachineEntry& machine = table.machines[size.name];
    machine.nominal = {size.cpus,
                       std::llround(size.memory_gib * (int64_t{1} << 30))};
    machine.request = machine.nominal;
    machine.attachable = Attachable(size.cpus);
    machine.ml_units_per_hour = size.ml_units;
  }
  for (const Legacy& legacy : kLegacy) {
    MachineEntry machine = table.machines.at(legacy.machine);
    machine.attachable.clear();
    machine.accelerator = legacy.accelerator;
    machine.accelerator_count = legacy.count;
    table.machines[legacy.name] = machine;
  }
  table.tiers = {
      {"BASIC", {"n1-standard-4", "", 0, "", 0, "", 0}},
      {"STANDARD_1",
       {"n1-highcpu-8", "", 0, "n1-highcpu-8", 4, "n1-standard-4", 3}},
      {"PREMIUM_1",
       {"n1-highcpu-16", "", 0, "n1-highcpu-16", 19, "n1-highmem-8", 11}},
      {"BASIC_GPU", {"n1-standard-8", kK80, 1, "", 0, "", 0}},
  };
  return table;
}

}  // namespace lockstep
