#include "common/training/machines.h"

#include <algorithm>
#include <limits>

#include "common/model/names.h"

namespace lockstep {
namespace {

constexpr double kMaxCpus = 65536;
constexpr int64_t kMaxMemory = int64_t{1} << 60;
constexpr int32_t kMaxGpus = 4096;  // For one machine.
// A job stores its machine's name and units, so the name is bounded.
constexpr size_t kMaxMachineName = 128;
constexpr double kMaxUnits = 1e9;
constexpr double kMaxTflops = 1e9;

template <typename T>
std::vector<std::string> Keys(const std::map<std::string, T>& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

// "; did you mean X?", or the list of all.
template <typename T>
std::string Instead(const std::string& name,
                    const std::map<std::string, T>& map) {
  const std::vector<std::string> known = Keys(map);
  const std::string nearest = Nearest(name, known);
  if (!nearest.empty()) return "did you mean " + nearest + "?";
  if (known.empty()) return "this site has none";
  return fmt::format("this site has {}", fmt::join(known, ", "));
}

std::string CountText(const std::vector<int32_t>& counts) {
  std::string text;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (i > 0) text += i + 1 == counts.size() ? " or " : ", ";
    text += std::to_string(counts[i]);
  }
  return text;
}

Status CheckSize(const MachineSize& size, const std::string& path) {
  if (size.cpus > 0 && size.cpus <= kMaxCpus && size.memory_bytes >= 0 &&
      size.memory_bytes <= kMaxMemory) {
    return OkStatus();
  }
  return InvalidArgument(
      "{}: must have more than 0 cpus, at most {:g}, and at most 1 EiB of "
      "memory",
      path, kMaxCpus);
}

Status CheckName(const std::string& kind, const std::string& name) {
  const auto is_control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  };
  if (!name.empty() && name.size() <= kMaxMachineName &&
      std::none_of(name.begin(), name.end(), is_control)) {
    return OkStatus();
  }
  std::string beginning = name.substr(0, 32);
  std::replace_if(beginning.begin(), beginning.end(), is_control, '?');
  return InvalidArgument(
      "{}: a name must have 1 to {} bytes and no control characters, unlike "
      "the one "
      "that begins with \"{}\"",
      kind, kMaxMachineName, beginning);
}

Status CheckUnits(const std::optional<double>& units, const std::string& path) {
  if (!units || (*units >= 0 && *units <= kMaxUnits)) return OkStatus();
  return InvalidArgument("{}.mlUnits: must be 0 to {:g}, not {:g}", path,
                         kMaxUnits, *units);
}

Status CheckMachineType(const MachineTable& table, const std::string& name,
                        const MachineEntry& machine) {
  const std::string path = "machines." + name;
  LOCKSTEP_RETURN_IF_ERROR(CheckName("machines", name));
  LOCKSTEP_RETURN_IF_ERROR(CheckUnits(machine.ml_units_per_hour, path));
  LOCKSTEP_RETURN_IF_ERROR(CheckSize(machine.nominal, path));
  LOCKSTEP_RETURN_IF_ERROR(CheckSize(machine.request, path + ".request"));
  const bool has = !machine.accelerator.empty();
  if (has && !table.accelerators.contains(machine.accelerator)) {
    return InvalidArgument("{}.accelerator.type: there is no {}; {}", path,
                           machine.accelerator,
                           Instead(machine.accelerator, table.accelerators));
  }
  if (has != (machine.accelerator_count > 0) ||
      machine.accelerator_count > kMaxGpus) {
    return InvalidArgument(
        "{}.accelerator.count: needs a type and must be 1..{}", path, kMaxGpus);
  }
  for (const auto& [accelerator, counts] : machine.attachable) {
    if (!table.accelerators.contains(accelerator)) {
      return InvalidArgument("{}.attachable: there is no {}; {}", path,
                             accelerator,
                             Instead(accelerator, table.accelerators));
    }
    if (counts.empty() ||
        std::any_of(counts.begin(), counts.end(),
                    [](int32_t c) { return c < 1 || c > kMaxGpus; })) {
      return InvalidArgument(
          "{}.attachable.{}: must be a list of counts, each "
          "1..{}",
          path, accelerator, kMaxGpus);
    }
  }
  return OkStatus();
}

Status CheckTier(const MachineTable& table, const std::string& name,
                 const ScaleTier& tier) {
  const std::string path = "tiers." + name;
  if (name == kCustomTier) {
    return InvalidArgument(
        "{}: is not a tier; it means that a job names its own "
        "machines",
        path);
  }
  const auto master =
      ResolveMachine(table, tier.master_type, tier.master_accelerator,
                     tier.master_accelerator_count, path + ".masterType",
                     path + ".masterAccelerator");
  if (!master.ok()) return master.status();
  const auto others = [&](const std::string& type, int32_t count,
                          const std::string& field) -> Status {
    if (type.empty() != (count == 0) || count < 0) {
      return InvalidArgument("{}.{}Count: needs {}Type and must be 1 or more",
                             path, field, field);
    }
    if (count == 0) return OkStatus();
    return ResolveMachine(table, type, "", 0, path + "." + field + "Type", "")
        .status();
  };
  LOCKSTEP_RETURN_IF_ERROR(
      others(tier.worker_type, tier.worker_count, "worker"));
  return others(tier.parameter_server_type, tier.parameter_server_count,
                "parameterServer");
}

// Checks that `machine` takes `count` x `name`.
Status CheckAttached(const MachineTable& table, const std::string& type,
                     const MachineEntry& machine, const std::string& name,
                     int64_t count, const std::string& path) {
  if (name.starts_with("TPU_")) {
    return InvalidArgument(
        "{}.type: {}: lockstep runs on CPUs and GPUs; there "
        "are no TPUs; name a GPU such as NVIDIA_TESLA_T4",
        path, name);
  }
  if (!table.accelerators.contains(name)) {
    return InvalidArgument("{}.type: there is no {}; {}", path, name,
                           Instead(name, table.accelerators));
  }
  if (!machine.accelerator.empty()) {
    return InvalidArgument(
        "{}: {} has its own GPUs ({} x {}); leave this out, "
        "or use another machine type",
        path, type, machine.accelerator_count, machine.accelerator);
  }
  const auto found = machine.attachable.find(name);
  if (found == machine.attachable.end()) {
    const auto takes = Keys(machine.attachable);
    return InvalidArgument(
        "{}.type: {} does not support {}; it supports {}", path, type, name,
        takes.empty() ? "no GPUs at all"
                      : fmt::to_string(fmt::join(takes, ", ")));
  }
  const std::vector<int32_t>& counts = found->second;
  if (std::find(counts.begin(), counts.end(), count) == counts.end()) {
    return InvalidArgument("{}.count: {} supports {} of {}, not {}", path, type,
                           CountText(counts), name, count);
  }
  return OkStatus();
}

}  // namespace

std::optional<double> PeakFlops(const MachineTable& table,
                                const std::string& model) {
  const AcceleratorType* best = nullptr;
  for (const auto& [name, type] : table.accelerators) {
    if (model.empty() || type.model.empty() || !type.peak_tflops ||
        !GpuModelMatches(type.model, model) ||
        (best != nullptr && best->model.size() >= type.model.size())) {
      continue;
    }
    best = &type;
  }
  if (best == nullptr) return std::nullopt;
  return *best->peak_tflops * 1e12;
}

Status CheckMachineTable(const MachineTable& table) {
  for (const auto& [name, accelerator] : table.accelerators) {
    const std::string path = "accelerators." + name;
    LOCKSTEP_RETURN_IF_ERROR(CheckName("accelerators", name));
    LOCKSTEP_RETURN_IF_ERROR(CheckUnits(accelerator.ml_units_per_hour, path));
    if (const auto& peak = accelerator.peak_tflops;
        peak && !(*peak > 0 && *peak <= kMaxTflops)) {
      return InvalidArgument(
          "{}.peakTflops: must be above 0, at most {:g}, "
          "not {:g}",
          path, kMaxTflops, *peak);
    }
    if (accelerator.model.size() > kMaxMachineName) {
      return InvalidArgument("{}.model: has {} bytes; at most {} are allowed",
                             path, accelerator.model.size(), kMaxMachineName);
    }
    if (accelerator.model.empty()) {
      return InvalidArgument(
          "accelerators.{}.model: is missing: give the "
          "driver's name, such as Tesla T4",
          name);
    }
  }
  for (const auto& [name, machine] : table.machines) {
    LOCKSTEP_RETURN_IF_ERROR(CheckMachineType(table, name, machine));
  }
  for (const auto& [name, tier] : table.tiers) {
    LOCKSTEP_RETURN_IF_ERROR(CheckName("tiers", name));
    LOCKSTEP_RETURN_IF_ERROR(CheckTier(table, name, tier));
  }
  return OkStatus();
}

StatusOr<Machine> ResolveMachine(const MachineTable& table,
                                 const std::string& type,
                                 const std::string& accelerator, int64_t count,
                                 const std::string& type_path,
                                 const std::string& accelerator_path) {
  const auto found = table.machines.find(type);
  if (found == table.machines.end()) {
    if (type == "cloud_tpu") {
      return InvalidArgument(
          "{}: cloud_tpu: there are no TPUs; name a machine "
          "type with GPUs",
          type_path);
    }
    return InvalidArgument("{}: there is no machine type \"{}\"; {}", type_path,
                           type, Instead(type, table.machines));
  }
  const MachineEntry& machine = found->second;
  std::string gpu = machine.accelerator;
  int32_t gpus = machine.accelerator_count;
  if (count != 0 || !accelerator.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(CheckAttached(table, type, machine, accelerator,
                                           count, accelerator_path));
    gpu = accelerator;
    gpus = static_cast<int32_t>(count);
  }
  Machine out;
  out.type = type;
  out.nominal = {machine.nominal.cpus, machine.nominal.memory_bytes, gpus, ""};
  out.request = {machine.request.cpus, machine.request.memory_bytes, gpus, ""};
  out.ml_units_per_hour = machine.ml_units_per_hour;
  if (gpus > 0) {
    const AcceleratorType& model = table.accelerators.at(gpu);
    out.nominal.gpu_type = out.request.gpu_type = model.model;
    if (out.ml_units_per_hour && model.ml_units_per_hour) {
      *out.ml_units_per_hour += gpus * *model.ml_units_per_hour;
    } else {
      out.ml_units_per_hour.reset();
    }
  }
  return out;
}

}  // namespace lockstep
