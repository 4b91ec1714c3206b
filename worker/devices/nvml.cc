#include "worker/devices/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"

namespace lockstep {
namespace {

// Of the NVML API reference: types, and the values used here.
using Device = void*;
using Return = int;
constexpr Return kSuccess = 0;
constexpr int kTemperatureOfCore = 0;  // NVML_TEMPERATURE_GPU

struct Memory {  // nvmlMemory_t
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};
struct Utilization {  // nvmlUtilization_t, in percent
  unsigned int gpu;
  unsigned int memory;
};

// What a fake or broken driver may say, cut to size.
std::string Text(const char* buffer, size_t size) {
  std::string text(buffer, std::find(buffer, buffer + size, '\0'));
  for (char& c : text) {
    if (c < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

}  // namespace

struct Nvml::Functions {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*count)(unsigned int*) = nullptr;
  Return (*handle_by_index)(unsigned int, Device*) = nullptr;
  Return (*name)(Device, char*, unsigned int) = nullptr;
  Return (*uuid)(Device, char*, unsigned int) = nullptr;
  Return (*memory)(Device, Memory*) = nullptr;
  // Readings: may be missing.
  Return (*utilization)(Device, Utilization*) = nullptr;
  Return (*power)(Device, unsigned int*) = nullptr;
  Return (*temperature)(Device, int, unsigned int*) = nullptr;

  template <typename F>
  static void Load(void* library, const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(library, name));
  }

  explicit Functions(void* library) {
    Load(library, "nvmlInit_v2", &init);
    Load(library, "nvmlShutdown", &shutdown);
    Load(library, "nvmlErrorString", &error_string);
    Load(library, "nvmlDeviceGetCount_v2", &count);
    Load(library, "nvmlDeviceGetHandleByIndex_v2", &handle_by_index);
    Load(library, "nvmlDeviceGetName", &name);
    Load(library, "nvmlDeviceGetUUID", &uuid);
    Load(library, "nvmlDeviceGetMemoryInfo", &memory);
    Load(library, "nvmlDeviceGetUtilizationRates", &utilization);
    Load(library, "nvmlDeviceGetPowerUsage", &power);
    Load(library, "nvmlDeviceGetTemperature", &temperature);
  }

  bool Complete() const {
    return init && shutdown && error_string && count && handle_by_index &&
           name && uuid && memory;
  }

  Status Check(Return result, std::string_view doing) const {
    if (result == kSuccess) return OkStatus();
    return Unavailable("the NVIDIA driver: {}: {}", doing,
                       error_string(result));
  }
};

StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return NotFound("no NVIDIA driver: {}", dlerror());
  auto functions = std::make_unique<Functions>(library);
  if (!functions->Complete()) {
    dlclose(library);
    return Unavailable("{} lacks functions of NVML", name);
  }
  if (const Status status = functions->Check(functions->init(), "starting");
      !status.ok()) {
    dlclose(library);
    return status;
  }
  std::unique_ptr<Nvml> nvml(new Nvml(library, std::move(functions)));
  LOCKSTEP_RETURN_IF_ERROR(nvml->FindGpus());
  return nvml;
}

Nvml::Nvml(void* library, std::unique_ptr<Functions> functions)
    : library_(library), functions_(std::move(functions)) {}

Nvml::~Nvml() {
  functions_->shutdown();
  dlclose(library_);
}

Status Nvml::FindGpus() {
  unsigned int count = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      functions_->Check(functions_->count(&count), "counting GPUs"));
  for (unsigned int i = 0; i < std::min(count, 4096u); ++i) {
    Device device = nullptr;
    char name[96] = "";
    char uuid[96] = "";
    Memory memory{};
    LOCKSTEP_RETURN_IF_ERROR(functions_->Check(
        functions_->handle_by_index(i, &device), fmt::format("GPU {}", i)));
    LOCKSTEP_RETURN_IF_ERROR(
        functions_->Check(functions_->name(device, name, sizeof(name)),
                          fmt::format("name of GPU {}", i)));
    LOCKSTEP_RETURN_IF_ERROR(
        functions_->Check(functions_->uuid(device, uuid, sizeof(uuid)),
                          fmt::format("UUID of GPU {}", i)));
    LOCKSTEP_RETURN_IF_ERROR(
        functions_->Check(functions_->memory(device, &memory),
                          fmt::format("memory of GPU {}", i)));
    devices_.push_back(device);
    gpus_.push_back({static_cast<int32_t>(i), Text(uuid, sizeof(uuid)),
                     Text(name, sizeof(name)),
                     static_cast<int64_t>(memory.total)});
  }
  return OkStatus();
}

std::vector<GpuReading> Nvml::Read() const {
  std::vector<GpuReading> readings;
  for (size_t i = 0; i < devices_.size(); ++i) {
    GpuReading reading;
    reading.index = gpus_[i].index;
    Utilization utilization{};
    if (functions_->utilization != nullptr &&
        functions_->utilization(devices_[i], &utilization) == kSuccess) {
      reading.utilization = std::min(utilization.gpu, 100u) / 100.0;
      reading.memory_access = std::min(utilization.memory, 100u) / 100.0;
    }
    Memory memory{};
    if (functions_->memory(devices_[i], &memory) == kSuccess) {
      reading.memory_used_bytes = static_cast<int64_t>(memory.used);
      reading.memory_total_bytes = static_cast<int64_t>(memory.total);
    }
    unsigned int number = 0;
    if (functions_->power != nullptr &&
        functions_->power(devices_[i], &number) == kSuccess) {
      reading.power_watts = number / 1000.0;  // From milliwatts.
    }
    if (functions_->temperature != nullptr &&
        functions_->temperature(devices_[i], kTemperatureOfCore, &number) ==
            kSuccess) {
      reading.temperature_celsius = number;
    }
    readings.push_back(reading);
  }
  return readings;
}

std::unique_ptr<Nvml> OpenNvmlIfThere(const std::string& library) {
  auto nvml = Nvml::Open(library);
  if (nvml.ok()) return *std::move(nvml);
  if (nvml.status().code() == StatusCode::kNotFound) {
    LOG_DEBUG("{}", Message(nvml.status()));
  } else {
    LOG_WARN("no GPUs are offered: {}", Message(nvml.status()));
  }
  return nullptr;
}

std::vector<Gpu> SelectGpus(const std::vector<Gpu>& gpus,
                            const std::optional<std::string>& visible,
                            std::optional<int32_t> most) {
  std::vector<Gpu> selected;
  if (!visible) {
    selected = gpus;
  } else {
    for (size_t at = 0; at < visible->size();) {
      const size_t end = std::min(visible->find(',', at), visible->size());
      const std::string name = visible->substr(at, end - at);
      const auto found =
          std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
            return std::to_string(gpu.index) == name || gpu.uuid == name;
          });
      // As CUDA does: what comes after an unknown one is not visible.
      if (found == gpus.end()) break;
      selected.push_back(*found);
      at = end + 1;
    }
  }
  if (most && selected.size() > static_cast<size_t>(*most)) {
    selected.resize(static_cast<size_t>(*most));
  }
  return selected;
}

}  // namespace lockstep
