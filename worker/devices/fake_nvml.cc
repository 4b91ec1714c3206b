// A driver library for tests. What it says comes from the environment, and
// from a file that may change while it runs.
//
//   FAKE_NVML_GPUS=8      how many (default 0)
//   FAKE_NVML_MODEL=H100  T4 (default), V100 or H100, or any other name; says
//                         which readings are supported
//   FAKE_NVML_FAIL=1      starting fails
//   FAKE_NVML_FILE=PATH   lines as below; read again when it has changed
//
//   gpus N | model NAME            as above, for the next start
//   set GPU|all NAME VALUE         a reading, in the driver's units: see kNames
//   unsupported FUNCTION           it answers NVML_ERROR_NOT_SUPPORTED
//   lost GPU                       that GPU answers NVML_ERROR_GPU_IS_LOST
//   hang FUNCTION|all              it does not come back while this line is
//                                  there
//   process GPU PID BYTES          a compute process on it
//   xid GPU NUMBER                 the N-th such line is the N-th event
//   # a comment
//
// Built with FAKE_NVML_OLD it lacks the functions that are not required, but
// for the utilization.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "worker/devices/fake_nvml_config.h"

using namespace lockstep::worker::devices::fake;

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned int gpu, memory;
};

// Starts without a matching end: how a test waits for threads that were left
// behind in here.
int fakeNvmlOpen() { return open_count; }

int nvmlInit_v2() {
  if (getenv("FAKE_NVML_FAIL") != nullptr) return kDriverNotLoaded;
  ++open_count;
  return Enter("nvmlInit_v2");
}
int nvmlShutdown() {
  const int entered = Enter("nvmlShutdown");
  --open_count;
  return entered;
}
const char* nvmlErrorString(int error) {
  switch (error) {
    case kNotSupported:
      return "Not Supported";
    case kDriverNotLoaded:
      return "Driver Not Loaded";
    case kTimeout:
      return "Timeout";
    case kGpuIsLost:
      return "GPU is lost";
    default:
      return "Unknown Error";
  }
}
int nvmlDeviceGetCount_v2(unsigned int* count) {
  *count = Now().gpus;
  return Enter("nvmlDeviceGetCount_v2");
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<size_t>(index) + 1);
  return EnterGpu("nvmlDeviceGetHandleByIndex_v2", *device);
}
int nvmlDeviceGetName(void* device, char* name, unsigned int size) {
  snprintf(name, size, "%s", ModelOf(Now()).name.c_str());
  return EnterGpu("nvmlDeviceGetName", device);
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned int size) {
  snprintf(uuid, size, "GPU-%u", IndexOf(device) + 1);
  return EnterGpu("nvmlDeviceGetUUID", device);
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  const unsigned long long total = ModelOf(Now()).memory;
  const unsigned long long used = Value(device, "memory_used");
  *memory = {total, total - used, used};
  return EnterGpu("nvmlDeviceGetMemoryInfo", device);
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* utilization) {
  *utilization = {
      static_cast<unsigned int>(Value(device, "utilization")),
      static_cast<unsigned int>(Value(device, "memory_access")),
  };
  return EnterGpu("nvmlDeviceGetUtilizationRates", device);
}

#ifndef FAKE_NVML_OLD

struct MemoryV2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
struct PciInfo {
  char legacy[16];
  unsigned int domain, bus, device, id, subsystem;
  char bus_id[32];
};
struct FieldValue {
  unsigned int field, scope;
  long long timestamp, latency;
  int type, result;
  unsigned long long number;
};
struct ProcessV2 {
  unsigned int pid;
  unsigned long long memory;
  unsigned int gpu_instance, compute_instance;
};
struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned int gpu_instance, compute_instance;
};

int nvmlSystemGetDriverVersion(char* version, unsigned int size) {
  snprintf(version, size, "535.247.01");
  return Enter("nvmlSystemGetDriverVersion");
}
int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* memory) {
  if (memory->version != (sizeof(MemoryV2) | (2u << 24))) {
    return kInvalidArgument;
  }
  const unsigned long long total = ModelOf(Now()).memory;
  const unsigned long long used = Value(device, "memory_used");
  const unsigned long long reserved = Value(device, "memory_reserved");
  *memory = {memory->version, total, reserved, total - used - reserved, used};
  return EnterGpu("nvmlDeviceGetMemoryInfo_v2", device);
}
int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* pci) {
  *pci = PciInfo{};
  snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0",
           IndexOf(device) + 16);
  return EnterGpu("nvmlDeviceGetPciInfo_v3", device);
}
int nvmlDeviceGetMinorNumber(void* device, unsigned int* minor) {
  *minor = IndexOf(device);
  return EnterGpu("nvmlDeviceGetMinorNumber", device);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned int* milliwatts) {
  return Put("nvmlDeviceGetPowerUsage", device, "power", milliwatts);
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned int* milliwatts) {
  return Put("nvmlDeviceGetEnforcedPowerLimit", device, "power_limit",
             milliwatts);
}
int nvmlDeviceGetTotalEnergyConsumption(void* device,
                                        unsigned long long* millijoules) {
  *millijoules = Value(device, "energy");
  return EnterGpu("nvmlDeviceGetTotalEnergyConsumption", device);
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned int* celsius) {
  if (sensor != 0) return kInvalidArgument;
  return Put("nvmlDeviceGetTemperature", device, "temperature", celsius);
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned int* megahertz) {
  if (type != 1 && type != 2) return kInvalidArgument;
  return Put("nvmlDeviceGetClockInfo", device,
             type == 1 ? "sm_clock" : "memory_clock", megahertz);
}
int nvmlDeviceGetMaxClockInfo(void* device, int type, unsigned int* megahertz) {
  if (type != 1 && type != 2) return kInvalidArgument;
  return Put("nvmlDeviceGetMaxClockInfo", device,
             type == 1 ? "sm_clock_max" : "memory_clock_max", megahertz);
}
int nvmlDeviceGetCurrentClocksEventReasons(void* device,
                                           unsigned long long* reasons) {
  *reasons = Value(device, "throttle");
  return EnterGpu("nvmlDeviceGetCurrentClocksEventReasons", device);
}
int nvmlDeviceGetPcieThroughput(void* device, int counter,
                                unsigned int* kib_per_second) {
  if (counter != 0 && counter != 1) return kInvalidArgument;
  return Put("nvmlDeviceGetPcieThroughput", device,
             counter == 0 ? "pcie_tx" : "pcie_rx", kib_per_second);
}
int nvmlDeviceGetPcieReplayCounter(void* device, unsigned int* count) {
  return Put("nvmlDeviceGetPcieReplayCounter", device, "pcie_replays", count);
}
int nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned int* value) {
  return Put("nvmlDeviceGetCurrPcieLinkGeneration", device, "pcie_generation",
             value);
}
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned int* value) {
  return Put("nvmlDeviceGetCurrPcieLinkWidth", device, "pcie_width", value);
}
int nvmlDeviceGetMaxPcieLinkWidth(void* device, unsigned int* value) {
  return Put("nvmlDeviceGetMaxPcieLinkWidth", device, "pcie_width_max", value);
}
int nvmlDeviceGetNvLinkState(void* device, unsigned int link, int* active) {
  if (!ModelOf(Now()).nvlink) return kNotSupported;
  if (link >= 18) return kInvalidArgument;
  *active = link < Value(device, "nvlinks") ? 1 : 0;
  return EnterGpu("nvmlDeviceGetNvLinkState", device);
}
int nvmlDeviceGetComputeRunningProcesses_v2(void* device, unsigned int* count,
                                            ProcessV2* processes) {
  const unsigned int room = *count;
  *count = 0;
  for (const FakeProcess& process : Now().processes) {
    if (process.gpu != IndexOf(device)) continue;
    if (*count < room) {
      processes[*count] = {process.pid, process.bytes, 0xffffffffu,
                           0xffffffffu};
    }
    ++*count;
  }
  if (*count > room) return kInsufficientSize;
  return EnterGpu("nvmlDeviceGetComputeRunningProcesses_v2", device);
}
int nvmlDeviceGetTotalEccErrors(void* device, int type, int counter,
                                unsigned long long* count) {
  const std::string name =
      std::string(type == 0 ? "ecc_corrected" : "ecc_uncorrected") +
      (counter == 0 ? "_volatile" : "_aggregate");
  *count = Value(device, name.c_str());
  return EnterGpu("nvmlDeviceGetTotalEccErrors", device);
}
int nvmlDeviceGetRemappedRows(void* device, unsigned int* corrected,
                              unsigned int* uncorrected, unsigned int* pending,
                              unsigned int* failure) {
  if (!ModelOf(Now()).remap) return kNotSupported;
  *corrected = static_cast<unsigned int>(Value(device, "remapped_corrected"));
  *uncorrected =
      static_cast<unsigned int>(Value(device, "remapped_uncorrected"));
  *pending = static_cast<unsigned int>(Value(device, "remap_pending"));
  *failure = static_cast<unsigned int>(Value(device, "remap_failure"));
  return EnterGpu("nvmlDeviceGetRemappedRows", device);
}
int nvmlDeviceGetFieldValues(void* device, int count, FieldValue* fields) {
  const int entered = EnterGpu("nvmlDeviceGetFieldValues", device);
  if (entered != kSuccess) return entered;
  static const std::map<unsigned, const char*> names = {
      {38, "nvlink_crc_flit"},   {45, "nvlink_crc_data"}, {52, "nvlink_replay"},
      {59, "nvlink_recovery"},   {138, "nvlink_tx"},      {139, "nvlink_rx"},
      {82, "memory_temperature"}};
  const Model model = ModelOf(Now());
  for (int i = 0; i < count; ++i) {
    FieldValue& field = fields[i];
    const auto name = names.find(field.field);
    const bool memory = field.field == 82;
    const bool all_links = field.field < 138 || field.scope == 0xffffffffu;
    if (name == names.end() || (!memory && !model.nvlink) || !all_links) {
      field.result = kNotSupported;
      continue;
    }
    field.result = kSuccess;
    // As the driver: 0 where there is no sensor.
    field.type = memory ? 1 : 3;
    field.number = memory && !model.hbm ? 0 : Value(device, name->second);
  }
  return kSuccess;
}

struct GpmSample {
  void* device = nullptr;
};
struct GpmSupport {
  unsigned int version, supported;
};
struct GpmMetric {
  unsigned int id;
  int result;
  double value;
  const char *short_name, *long_name, *unit;
};
struct GpmMetrics {
  unsigned int version, count;
  GpmSample *first, *second;
  GpmMetric metrics[333];
};

int nvmlGpmQueryDeviceSupport(void* device, GpmSupport* support) {
  if (support->version != 1) return kInvalidArgument;
  support->supported = ModelOf(Now()).gpm ? 1 : 0;
  return EnterGpu("nvmlGpmQueryDeviceSupport", device);
}
int nvmlGpmSampleAlloc(GpmSample** sample) {
  *sample = new GpmSample;
  return Enter("nvmlGpmSampleAlloc");
}
int nvmlGpmSampleFree(GpmSample* sample) {
  delete sample;
  return Enter("nvmlGpmSampleFree");
}
int nvmlGpmSampleGet(void* device, GpmSample* sample) {
  sample->device = device;
  return EnterGpu("nvmlGpmSampleGet", device);
}
int nvmlGpmMetricsGet(GpmMetrics* request) {
  if (request->version != 1 || request->count > 333 ||
      request->first == nullptr || request->second == nullptr ||
      request->first == request->second ||
      request->first->device != request->second->device) {
    return kInvalidArgument;
  }
  static const std::map<unsigned, const char*> names = {
      {2, "sm_activity"}, {5, "tensor_activity"}, {10, "memory_activity"}};
  for (unsigned int i = 0; i < request->count; ++i) {
    GpmMetric& metric = request->metrics[i];
    const auto name = names.find(metric.id);
    metric.result = name == names.end() ? kNotSupported : kSuccess;
    if (name == names.end()) continue;
    metric.value =
        static_cast<double>(Value(request->first->device, name->second));
  }
  return EnterGpu("nvmlGpmMetricsGet", request->first->device);
}

int nvmlEventSetCreate(void** set) {
  *set = new size_t(0);  // Events given so far.
  return Enter("nvmlEventSetCreate");
}
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void*) {
  if (types != 8) return kInvalidArgument;
  return EnterGpu("nvmlDeviceRegisterEvents", device);
}
int nvmlEventSetWait_v2(void* set, EventData* data, unsigned int timeout) {
  auto* const given = static_cast<size_t*>(set);
  for (unsigned int waited = 0;; waited += 5) {
    const int entered = Enter("nvmlEventSetWait_v2");
    if (entered != kSuccess) return entered;
    const Config config = Now();
    if (*given < config.xids.size()) {
      const auto [gpu, number] = config.xids[(*given)++];
      *data = {reinterpret_cast<void*>(static_cast<size_t>(gpu) + 1), 8, number,
               0xffffffffu, 0xffffffffu};
      return kSuccess;
    }
    if (waited >= timeout) return kTimeout;
    usleep(5000);
  }
}
int nvmlEventSetFree(void* set) {
  delete static_cast<size_t*>(set);
  return Enter("nvmlEventSetFree");
}

#endif  // FAKE_NVML_OLD

}  // extern "C"
