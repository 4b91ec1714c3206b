// The functions of the NVIDIA driver's library, loaded at run time.
#ifndef LOCKSTEP_WORKER_DEVICES_NVML_FUNCTIONS_H_
#define LOCKSTEP_WORKER_DEVICES_NVML_FUNCTIONS_H_

#include <iterator>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/devices/nvml_api.h"

namespace lockstep::worker::devices::nvml {

// A function that the driver lacks is null.
struct Functions {
  using Plain = Return (*)(Device, unsigned int*);
  using Kind = Return (*)(Device, int, unsigned int*);

  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*count)(unsigned int*) = nullptr;
  Return (*handle_by_index)(unsigned int, Device*) = nullptr;
  Return (*name)(Device, char*, unsigned int) = nullptr;
  Return (*uuid)(Device, char*, unsigned int) = nullptr;
  Return (*memory)(Device, Memory*) = nullptr;
  // From here on each may be missing.
  Return (*memory_v2)(Device, MemoryV2*) = nullptr;
  Return (*driver_version)(char*, unsigned int) = nullptr;
  Return (*pci)(Device, PciInfo*) = nullptr;
  Plain minor = nullptr;
  Return (*utilization)(Device, Utilization*) = nullptr;
  Return (*energy)(Device, unsigned long long*) = nullptr;
  Return (*throttles)(Device, unsigned long long*) = nullptr;
  Return (*ecc)(Device, int, int, unsigned long long*) = nullptr;
  Return (*remapped)(Device, unsigned int*, unsigned int*, unsigned int*,
                     unsigned int*) = nullptr;
  Return (*fields)(Device, int, FieldValue*) = nullptr;
  Return (*processes_v1)(Device, unsigned int*, ProcessV1*) = nullptr;
  Return (*processes_v2)(Device, unsigned int*, ProcessV2*) = nullptr;
  Return (*nvlink_state)(Device, unsigned int, int*) = nullptr;
  Return (*gpm_support)(Device, GpmSupport*) = nullptr;
  Return (*gpm_alloc)(GpmSample*) = nullptr;
  Return (*gpm_free)(GpmSample) = nullptr;
  Return (*gpm_sample)(Device, GpmSample) = nullptr;
  Return (*gpm_metrics)(GpmMetrics*) = nullptr;
  Plain plain[std::size(kPlainRows)] = {};
  Kind kinds[std::size(kKindRows)] = {};
  Return (*events_create)(EventSet*) = nullptr;
  Return (*events_register)(Device, unsigned long long, EventSet) = nullptr;
  Return (*events_wait)(EventSet, EventData*, unsigned int) = nullptr;
  Return (*events_free)(EventSet) = nullptr;
};

// `library` is a handle of dlopen, which must stay open.
Functions LoadFunctions(void* library);
// Whether the functions are there that every driver has.
bool IsComplete(const Functions& functions);

// The driver's own words for `result`.
std::string Words(const Functions& functions, Return result);
// Unavailable if `result` is an error of `doing`.
Status Check(const Functions& functions, Return result, std::string_view doing);

}  // namespace lockstep::worker::devices::nvml

#endif  // LOCKSTEP_WORKER_DEVICES_NVML_FUNCTIONS_H_
