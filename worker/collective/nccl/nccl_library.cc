#include "worker/collective/nccl/nccl_library.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstdlib>
#include <fstream>

#include "worker/collective/nccl/nccl_kernels.h"

namespace lockstep::worker::collective::nccl {
namespace {

// FailedPrecondition: what a host lacks is for its operator.
template <typename Function>
bool Load(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

Status LoadNccl(NcclApi* api, int* version) {
  const char* given = std::getenv("LOCKSTEP_NCCL_LIBRARY");
  const std::string path =
      given != nullptr && *given != '\0' ? given : "libnccl.so.2";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailedPrecondition(
        "cannot open NCCL's library (install libnccl2, or name the file in "
        "LOCKSTEP_NCCL_LIBRARY, of the worker daemon for a job's ranks): {}",
        dlerror());
  }
  if (!Load(library, "ncclGetVersion", &api->get_version) ||
      api->get_version(version) != ncclSuccess) {
    return FailedPrecondition("cannot use {}: it does not say its version",
                              path);
  }
  if (*version < kLeastNcclVersion) {
    return FailedPrecondition("has NCCL {}, which is too old: install {}",
                              NcclVersionText(*version),
                              NcclVersionText(kLeastNcclVersion));
  }
  const bool whole =
      Load(library, "ncclGetUniqueId", &api->get_unique_id) &&
      Load(library, "ncclCommInitRankConfig", &api->init) &&
      Load(library, "ncclCommGetAsyncError", &api->get_async_error) &&
      Load(library, "ncclCommFinalize", &api->finalize) &&
      Load(library, "ncclCommDestroy", &api->destroy) &&
      Load(library, "ncclCommAbort", &api->abort) &&
      Load(library, "ncclAllReduce", &api->all_reduce) &&
      Load(library, "ncclReduceScatter", &api->reduce_scatter) &&
      Load(library, "ncclAllGather", &api->all_gather) &&
      Load(library, "ncclBroadcast", &api->broadcast) &&
      Load(library, "ncclGetErrorString", &api->describe) &&
      Load(library, "ncclGetLastError", &api->last_error);
  if (!whole) {
    return FailedPrecondition("cannot use {}: a function is missing: {}", path,
                              dlerror());
  }
  Load(library, "ncclCommRevoke", &api->revoke);
  return OkStatus();
}

CudaApi StaticCuda() {
  CudaApi api;
  api.set_device = [](int device) { return cudaSetDevice(device); };
  api.get_device = [](int* device) { return cudaGetDevice(device); };
  api.spare_captures = [] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    return cudaThreadExchangeStreamCaptureMode(&mode);
  };
  api.is_capturing = [](cudaStream_t stream, bool* capturing) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &status);
    *capturing = status != cudaStreamCaptureStatusNone;
    return error;
  };
  api.allocate = [](void** data, size_t n) { return cudaMalloc(data, n); };
  api.free = [](void* data) { return cudaFree(data); };
  api.allocate_host = [](void** data, size_t n) {
    return cudaHostAlloc(data, n, cudaHostAllocDefault);
  };
  api.free_host = [](void* data) { return cudaFreeHost(data); };
  api.copy = [](void* to, const void* from, size_t n, cudaMemcpyKind kind,
                cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, n, kind, stream);
  };
  api.create_stream = [](cudaStream_t* stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
  };
  api.destroy_stream = [](cudaStream_t s) { return cudaStreamDestroy(s); };
  api.query_stream = [](cudaStream_t s) { return cudaStreamQuery(s); };
  api.wait_event = [](cudaStream_t stream, cudaEvent_t event) {
    return cudaStreamWaitEvent(stream, event, 0);
  };
  api.create_event = [](cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDisableTiming);
  };
  api.destroy_event = [](cudaEvent_t e) { return cudaEventDestroy(e); };
  api.record_event = [](cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecord(event, stream);
  };
  api.query_event = [](cudaEvent_t e) { return cudaEventQuery(e); };
  api.describe = [](cudaError_t error) { return cudaGetErrorString(error); };
  api.clear_on = [](void* data, size_t n, cudaStream_t stream) {
    return cudaMemsetAsync(data, 0, n, stream);
  };
  api.sum_of_squares = SumOfSquaresOnDevice;
  api.add = AddOnDevice;
  return api;
}

std::string HostName() {
  if (const char* id = std::getenv("NCCL_HOSTID"); id != nullptr && *id) {
    return id;
  }
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return boot_id;
}

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

// The name of the interface with this numeric address; empty: none.
std::string InterfaceOf(const std::string& address) {
  in_addr v4{};
  in6_addr v6{};
  const bool is_v4 = inet_pton(AF_INET, address.c_str(), &v4) == 1;
  if (!is_v4 && inet_pton(AF_INET6, address.c_str(), &v6) != 1) return "";
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string name;
  for (const ifaddrs* i = all; i != nullptr && name.empty(); i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    if (is_v4 && i->ifa_addr->sa_family == AF_INET &&
        reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr ==
            v4.s_addr) {
      name = i->ifa_name;
    } else if (!is_v4 && i->ifa_addr->sa_family == AF_INET6 &&
               IN6_ARE_ADDR_EQUAL(
                   &reinterpret_cast<const sockaddr_in6*>(i->ifa_addr)
                        ->sin6_addr,
                   &v6)) {
      name = i->ifa_name;
    }
  }
  freeifaddrs(all);
  return name;
}

}  // namespace

std::string NcclVersionText(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100,
                     version % 100);
}

StatusOr<const GpuApi*> OpenNccl() {
  struct Opened {
    GpuApi api{};
    Status status;
    Opened() {
      api.cuda = StaticCuda();
      status = LoadNccl(&api.nccl, &api.nccl_version);
    }
  };
  // Never destroyed: NCCL's threads may outlive main.
  static const Opened* const kOpened = new Opened();
  if (!kOpened->status.ok()) return kOpened->status;
  return &kOpened->api;
}

StatusOr<std::string> NameDevice(int device) {
  // CUDA says "insufficient driver" for none at all.
  if (void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    dlclose(driver);
  } else {
    return FailedPrecondition(
        "is on a host without NVIDIA's driver (no libcuda.so.1)");
  }
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    return FailedPrecondition(
        "has a driver for CUDA {}.{}, which is older than the CUDA {}.{} that "
        "this module is built with",
        driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
        CUDART_VERSION % 1000 / 10);
  }
  if (error != cudaSuccess && error != cudaErrorNoDevice) {
    return FailedPrecondition("cannot use CUDA: {}", cudaGetErrorString(error));
  }
  if (device < 0 || device >= count) {
    return FailedPrecondition(
        "has no GPU number {}: CUDA shows {} (CUDA_VISIBLE_DEVICES={})", device,
        count,
        std::getenv("CUDA_VISIBLE_DEVICES") == nullptr
            ? "not set"
            : std::getenv("CUDA_VISIBLE_DEVICES"));
  }
  cudaDeviceProp properties;
  error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess) {
    return FailedPrecondition("cannot read its GPU's name: {}",
                              cudaGetErrorString(error));
  }
  return fmt::format("{}/{}", HostName(), UuidText(properties.uuid));
}

void SetNcclEnvironment(const std::string& bind_address) {
  ::setenv("NCCL_RAS_ENABLE", "0", /*overwrite=*/0);
  const std::string interface = InterfaceOf(bind_address);
  // "=" asks for exactly this name.
  if (!interface.empty()) {
    ::setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), 0);
  }
}

}  // namespace lockstep::worker::collective::nccl
