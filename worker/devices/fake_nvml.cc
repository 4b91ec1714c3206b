// A driver library for tests: as many GPUs as FAKE_NVML_GPUS says, each of the
// model FAKE_NVML_MODEL. FAKE_NVML_FAIL makes starting fail.
#include <cstdio>
#include <cstdlib>

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned int gpu, memory;
};

int nvmlInit_v2() { return getenv("FAKE_NVML_FAIL") != nullptr ? 9 : 0; }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "Driver Not Loaded"; }
int nvmlDeviceGetCount_v2(unsigned int* count) {
  const char* text = getenv("FAKE_NVML_GPUS");
  *count = text == nullptr ? 0 : static_cast<unsigned int>(atoi(text));
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
  *device = reinterpret_cast<void*>(static_cast<size_t>(index) + 1);
  return 0;
}
int nvmlDeviceGetName(void*, char* name, unsigned int size) {
  const char* model = getenv("FAKE_NVML_MODEL");
  snprintf(name, size, "%s", model == nullptr ? "Tesla T4" : model);
  return 0;
}
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned int size) {
  snprintf(uuid, size, "GPU-%zu", reinterpret_cast<size_t>(device));
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  *memory = {16ull << 30, 12ull << 30, 4ull << 30};
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, Utilization* utilization) {
  *utilization = {75, 300};
  return 0;
}
int nvmlDeviceGetPowerUsage(void*, unsigned int* milliwatts) {
  *milliwatts = 70500;
  return 0;
}
// NVML_ERROR_NOT_SUPPORTED.
int nvmlDeviceGetTemperature(void*, int, unsigned int*) { return 3; }

}  // extern "C"
