#include "worker/devices/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/clock.h"
#include "common/base/logging.h"
#include "worker/devices/nvml_api.h"
#include "worker/devices/nvml_functions.h"
#include "worker/devices/nvml_gpm.h"

namespace lockstep::worker::devices {
namespace {

using nvml::Device;
using nvml::kSuccess;
using nvml::Return;

constexpr unsigned int kMostGpus = 4096;

// Truncates the text of a fake or broken driver.
std::string Text(const char* buffer, size_t size) {
  std::string text(buffer, std::find(buffer, buffer + size, '\0'));
  for (char& c : text) {
    if (c < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

// nvmlValueType_t; of a type that is none: nothing.
std::optional<double> Number(const nvml::FieldValue& field) {
  switch (field.type) {
    case 0:
      return field.number.as_double;
    case 1:
      return field.number.as_unsigned;
    case 2:
      return static_cast<double>(field.number.as_unsigned_long);
    case 3:
      return static_cast<double>(field.number.as_unsigned_long_long);
    case 4:
      return static_cast<double>(field.number.as_long_long);
    case 5:
      return field.number.as_int;
    case 6:
      return field.number.as_unsigned_short;
    default:
      return std::nullopt;
  }
}

}  // namespace

StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return NotFound("no NVIDIA driver: {}", dlerror());
  auto functions =
      std::make_unique<nvml::Functions>(nvml::LoadFunctions(library));
  if (!nvml::IsComplete(*functions)) {
    dlclose(library);
    return Unavailable("{} lacks functions of NVML", name);
  }
  if (const Status status =
          nvml::Check(*functions, functions->init(), "starting");
      !status.ok()) {
    dlclose(library);
    return status;
  }
  std::unique_ptr<Nvml> nvml(new Nvml(library, std::move(functions)));
  LOCKSTEP_RETURN_IF_ERROR(nvml->FindGpus());
  return nvml;
}

Nvml::Nvml(void* library, std::unique_ptr<nvml::Functions> functions)
    : library_(library), functions_(std::move(functions)) {}

Nvml::~Nvml() {
  if (events_ != nullptr && functions_->events_free != nullptr) {
    functions_->events_free(events_);
  }
  gpms_.clear();
  functions_->shutdown();
  dlclose(library_);
}

Status Nvml::FindGpus() {
  unsigned int count = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      nvml::Check(*functions_, functions_->count(&count), "counting GPUs"));
  char version[96] = "";
  if (functions_->driver_version != nullptr &&
      functions_->driver_version(version, sizeof(version)) == kSuccess) {
    driver_version_ = Text(version, sizeof(version));
  }
  for (unsigned int i = 0; i < std::min(count, kMostGpus); ++i) {
    if (const Status added = AddGpu(i); !added.ok()) {
      LOG_WARN("skipping GPU {}: {}", i, Message(added));
    }
  }
  return OkStatus();
}

Status Nvml::AddGpu(unsigned int index) {
  Device device = nullptr;
  char name[96] = "";
  char uuid[96] = "";
  nvml::Memory memory{};
  LOCKSTEP_RETURN_IF_ERROR(nvml::Check(
      *functions_, functions_->handle_by_index(index, &device), "finding it"));
  LOCKSTEP_RETURN_IF_ERROR(
      nvml::Check(*functions_, functions_->name(device, name, sizeof(name)),
                  "reading its name"));
  LOCKSTEP_RETURN_IF_ERROR(
      nvml::Check(*functions_, functions_->uuid(device, uuid, sizeof(uuid)),
                  "reading its UUID"));
  LOCKSTEP_RETURN_IF_ERROR(nvml::Check(*functions_,
                                       functions_->memory(device, &memory),
                                       "reading its memory size"));
  GpuPlace place;
  nvml::PciInfo pci{};
  if (functions_->pci != nullptr && functions_->pci(device, &pci) == kSuccess) {
    place.pci_bus_id = Text(pci.bus_id, sizeof(pci.bus_id));
  }
  unsigned int minor = 0;
  if (functions_->minor != nullptr &&
      functions_->minor(device, &minor) == kSuccess) {
    place.minor = static_cast<int32_t>(std::min(minor, kMostGpus));
  }
  devices_.push_back(device);
  gpms_.push_back(NvmlGpm::Open(*functions_, device));
  places_.push_back(std::move(place));
  gpus_.push_back({static_cast<int32_t>(index), Text(uuid, sizeof(uuid)),
                   Text(name, sizeof(name)),
                   static_cast<int64_t>(memory.total)});
  return OkStatus();
}

void Nvml::ReadMemory(void* device, GpuReading* reading) const {
  nvml::MemoryV2 v2{};
  v2.version = nvml::kMemoryV2;
  if (functions_->memory_v2 != nullptr &&
      functions_->memory_v2(device, &v2) == kSuccess) {
    reading->Set(GpuValue::kMemoryTotal, static_cast<double>(v2.total));
    reading->Set(GpuValue::kMemoryReserved, static_cast<double>(v2.reserved));
    reading->Set(GpuValue::kMemoryFree, static_cast<double>(v2.free));
    reading->Set(GpuValue::kMemoryUsed, static_cast<double>(v2.used));
    return;
  }
  nvml::Memory memory{};
  const Return result = functions_->memory(device, &memory);
  if (result == kSuccess) {
    reading->Set(GpuValue::kMemoryTotal, static_cast<double>(memory.total));
    reading->Set(GpuValue::kMemoryFree, static_cast<double>(memory.free));
    reading->Set(GpuValue::kMemoryUsed, static_cast<double>(memory.used));
  } else if (result != nvml::kNotSupported) {
    // Every working GPU reports its memory.
    reading->up = false;
    reading->error = nvml::Words(*functions_, result);
  }
}

void Nvml::ReadFields(void* device, GpuReading* reading) const {
  if (functions_->fields == nullptr) return;
  constexpr size_t kFields = std::size(nvml::kFieldRows);
  nvml::FieldValue fields[kFields] = {};
  for (size_t i = 0; i < kFields; ++i) {
    fields[i].field = nvml::kFieldRows[i].field;
    fields[i].scope = nvml::kFieldRows[i].scope;
    fields[i].result = nvml::kNotSupported;
  }
  if (functions_->fields(device, kFields, fields) != kSuccess) return;
  for (size_t i = 0; i < kFields; ++i) {
    const nvml::FieldRow& row = nvml::kFieldRows[i];
    if (fields[i].result != kSuccess) continue;
    const auto number = Number(fields[i]);
    if (!number || !std::isfinite(*number) || *number < 0) continue;
    // GPUs without this sensor report 0 degrees.
    if (row.value == GpuValue::kTemperatureMemory && *number == 0) continue;
    reading->Set(row.value, *number * row.scale);
  }
}

void Nvml::ReadNumbers(void* device, bool slow, GpuReading* reading) const {
  unsigned int number = 0;
  for (size_t row = 0; row < std::size(nvml::kPlainRows); ++row) {
    if (functions_->plain[row] != nullptr &&
        functions_->plain[row](device, &number) == kSuccess) {
      reading->Set(nvml::kPlainRows[row].value,
                   number * nvml::kPlainRows[row].scale);
    }
  }
  for (size_t row = 0; row < std::size(nvml::kKindRows); ++row) {
    const nvml::KindRow& r = nvml::kKindRows[row];
    if (r.slow && !slow) continue;
    if (functions_->kinds[row] != nullptr &&
        functions_->kinds[row](device, r.kind, &number) == kSuccess) {
      reading->Set(r.value, number * r.scale);
    }
  }
}

void Nvml::ReadHealth(void* device, GpuReading* reading) const {
  unsigned long long large = 0;
  if (functions_->energy != nullptr &&
      functions_->energy(device, &large) == kSuccess) {
    reading->Set(GpuValue::kEnergy, static_cast<double>(large) * 1e-3);  // mJ
  }
  for (const nvml::EccRow& row : nvml::kEccRows) {
    if (functions_->ecc != nullptr &&
        functions_->ecc(device, row.type, row.counter, &large) == kSuccess) {
      reading->Set(row.value, static_cast<double>(large));
    }
  }
  unsigned int corrected = 0, uncorrected = 0, pending = 0, failure = 0;
  if (functions_->remapped != nullptr &&
      functions_->remapped(device, &corrected, &uncorrected, &pending,
                           &failure) == kSuccess) {
    reading->Set(GpuValue::kRowsRemappedCorrected, corrected);
    reading->Set(GpuValue::kRowsRemappedUncorrected, uncorrected);
    reading->Set(GpuValue::kRowRemapPending, pending != 0 ? 1 : 0);
    reading->Set(GpuValue::kRowRemapFailure, failure != 0 ? 1 : 0);
  }
  if (functions_->throttles != nullptr &&
      functions_->throttles(device, &large) == kSuccess) {
    reading->throttled.emplace();
    for (const nvml::ThrottleRow& row : nvml::kThrottleRows) {
      (*reading->throttled)[static_cast<size_t>(row.throttle)] =
          (large & row.bit) != 0;
    }
  }
}

void Nvml::ReadNvlinks(void* device, GpuReading* reading) const {
  if (functions_->nvlink_state == nullptr) return;
  int links = 0, active = 0;
  for (unsigned int link = 0; link < nvml::kMaxNvlinks; ++link) {
    int state = 0;
    if (functions_->nvlink_state(device, link, &state) != kSuccess) break;
    ++links;
    if (state != 0) ++active;
  }
  if (links > 0) reading->Set(GpuValue::kNvlinksActive, active);
}

void Nvml::ReadProcesses(void* device, GpuReading* reading) const {
  // A driver writes at most the number that it is given.
  unsigned int count = kMaxGpuProcesses;
  std::vector<GpuProcess> found;
  const auto take = [&](const auto& processes) {
    for (unsigned int i = 0; i < std::min<size_t>(count, kMaxGpuProcesses);
         ++i) {
      GpuProcess process{processes[i].pid, std::nullopt};
      // More than any GPU has is as good as unknown.
      if (processes[i].memory < (1ull << 50)) {
        process.memory_bytes = static_cast<int64_t>(processes[i].memory);
      }
      if (process.pid > 0) found.push_back(process);
    }
    reading->processes = std::move(found);
  };
  Return result = nvml::kNotSupported;
  if (functions_->processes_v2 != nullptr) {
    std::vector<nvml::ProcessV2> processes(kMaxGpuProcesses);
    result = functions_->processes_v2(device, &count, processes.data());
    if (result == kSuccess) take(processes);
  } else if (functions_->processes_v1 != nullptr) {
    std::vector<nvml::ProcessV1> processes(kMaxGpuProcesses);
    result = functions_->processes_v1(device, &count, processes.data());
    if (result == kSuccess) take(processes);
  }
}

GpuReading Nvml::Read(size_t i, bool slow) const {
  GpuReading reading;
  const Device device = devices_[i];
  reading.index = gpus_[i].index;
  ReadMemory(device, &reading);
  if (!reading.up) return reading;
  nvml::Utilization utilization{};
  if (functions_->utilization != nullptr &&
      functions_->utilization(device, &utilization) == kSuccess) {
    reading.Set(GpuValue::kUtilization,
                std::min(utilization.gpu, 100u) / 100.0);
    reading.Set(GpuValue::kMemoryAccess,
                std::min(utilization.memory, 100u) / 100.0);
  }
  ReadNumbers(device, slow, &reading);
  ReadHealth(device, &reading);
  ReadFields(device, &reading);
  ReadProcesses(device, &reading);
  if (slow) ReadNvlinks(device, &reading);
  if (gpms_[i] != nullptr) gpms_[i]->Read(MonotonicNow(), &reading);
  return reading;
}

Status Nvml::OpenEvents() {
  const nvml::Functions& f = *functions_;
  if (!f.events_create || !f.events_register || !f.events_wait ||
      !f.events_free) {
    return Unavailable("this NVIDIA driver does not support events");
  }
  LOCKSTEP_RETURN_IF_ERROR(nvml::Check(f, f.events_create(&events_), "events"));
  size_t registered = 0;
  Return last = kSuccess;
  for (const Device device : devices_) {
    const Return result = f.events_register(device, nvml::kEventXid, events_);
    if (result == kSuccess) {
      ++registered;
    } else {
      last = result;
    }
  }
  if (registered == 0)
    return nvml::Check(f, last, "registering for Xid events");
  return OkStatus();
}

StatusOr<std::optional<Nvml::Xid>> Nvml::WaitForXid(unsigned milliseconds) {
  nvml::EventData event{};
  const Return result = functions_->events_wait(events_, &event, milliseconds);
  if (result == nvml::kTimeout) return std::optional<Xid>();
  LOCKSTEP_RETURN_IF_ERROR(
      nvml::Check(*functions_, result, "waiting for events"));
  const auto found = std::find(devices_.begin(), devices_.end(), event.device);
  if (event.type != nvml::kEventXid || found == devices_.end()) {
    return std::optional<Xid>();
  }
  return std::optional<Xid>(
      Xid{static_cast<size_t>(found - devices_.begin()), event.data});
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

}  // namespace lockstep::worker::devices
