#include "worker/devices/nvml_functions.h"

#include <dlfcn.h>

namespace lockstep::worker::devices::nvml {
namespace {

template <typename F>
void Load(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
}

}  // namespace

Functions LoadFunctions(void* library) {
  Functions functions;
  Load(library, "nvmlInit_v2", &functions.init);
  Load(library, "nvmlShutdown", &functions.shutdown);
  Load(library, "nvmlErrorString", &functions.error_string);
  Load(library, "nvmlDeviceGetCount_v2", &functions.count);
  Load(library, "nvmlDeviceGetHandleByIndex_v2", &functions.handle_by_index);
  Load(library, "nvmlDeviceGetName", &functions.name);
  Load(library, "nvmlDeviceGetUUID", &functions.uuid);
  Load(library, "nvmlDeviceGetMemoryInfo", &functions.memory);
  Load(library, "nvmlDeviceGetMemoryInfo_v2", &functions.memory_v2);
  Load(library, "nvmlSystemGetDriverVersion", &functions.driver_version);
  Load(library, "nvmlDeviceGetPciInfo_v3", &functions.pci);
  Load(library, "nvmlDeviceGetMinorNumber", &functions.minor);
  Load(library, "nvmlDeviceGetUtilizationRates", &functions.utilization);
  Load(library, "nvmlDeviceGetTotalEnergyConsumption", &functions.energy);
  // The first name is of driver 535 and later.
  Load(library, "nvmlDeviceGetCurrentClocksEventReasons", &functions.throttles);
  if (functions.throttles == nullptr) {
    Load(library, "nvmlDeviceGetCurrentClocksThrottleReasons",
         &functions.throttles);
  }
  Load(library, "nvmlDeviceGetTotalEccErrors", &functions.ecc);
  Load(library, "nvmlDeviceGetRemappedRows", &functions.remapped);
  Load(library, "nvmlDeviceGetFieldValues", &functions.fields);
  Load(library, "nvmlDeviceGetComputeRunningProcesses",
       &functions.processes_v1);
  Load(library, "nvmlDeviceGetComputeRunningProcesses_v2",
       &functions.processes_v2);
  Load(library, "nvmlDeviceGetNvLinkState", &functions.nvlink_state);
  Load(library, "nvmlGpmQueryDeviceSupport", &functions.gpm_support);
  Load(library, "nvmlGpmSampleAlloc", &functions.gpm_alloc);
  Load(library, "nvmlGpmSampleFree", &functions.gpm_free);
  Load(library, "nvmlGpmSampleGet", &functions.gpm_sample);
  Load(library, "nvmlGpmMetricsGet", &functions.gpm_metrics);
  for (size_t i = 0; i < std::size(functions.plain); ++i) {
    Load(library, kPlainRows[i].symbol, &functions.plain[i]);
  }
  for (size_t i = 0; i < std::size(functions.kinds); ++i) {
    Load(library, kKindRows[i].symbol, &functions.kinds[i]);
  }
  Load(library, "nvmlEventSetCreate", &functions.events_create);
  Load(library, "nvmlDeviceRegisterEvents", &functions.events_register);
  Load(library, "nvmlEventSetWait_v2", &functions.events_wait);
  Load(library, "nvmlEventSetFree", &functions.events_free);
  return functions;
}

bool IsComplete(const Functions& functions) {
  return functions.init && functions.shutdown && functions.error_string &&
         functions.count && functions.handle_by_index && functions.name &&
         functions.uuid && functions.memory;
}

std::string Words(const Functions& functions, Return result) {
  const char* words = functions.error_string(result);
  return words == nullptr ? fmt::format("error {}", result) : words;
}

Status Check(const Functions& functions, Return result,
             std::string_view doing) {
  if (result == kSuccess) return OkStatus();
  return Unavailable("the NVIDIA driver: {}: {}", doing,
                     Words(functions, result));
}

}  // namespace lockstep::worker::devices::nvml
