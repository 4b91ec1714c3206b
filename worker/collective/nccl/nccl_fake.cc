#include "worker/collective/nccl/nccl_fake.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "worker/collective/nccl/nccl_kernels.h"
#include "worker/collective/reduce.h"

namespace lockstep::worker::collective::nccl {
namespace {

using Step = std::function<bool()>;  // Returns whether it is done.

struct FakeStream {
  std::deque<Step> steps;
  bool capturing = false;
};
thread_local int current_device = 0;
struct FakeEvent {
  FakeStream* stream = nullptr;  // where it was recorded last
  int recorded = 0;
  int reached = 0;
};
// One collective of a group: parts by rank.
struct Round {
  std::vector<std::vector<char>> parts;
  int arrived = 0;
};
struct Group {
  int size = 0;
  int joined = 0;
  std::map<int, Round> rounds;
  std::map<int, int> started;  // ranks, by round
};
struct FakeComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  int sequence = 0;
  bool ended = false;  // revoked or aborted
  bool busy = false;   // for ever
  ncclResult_t error = ncclSuccess;
  std::thread::id owner;
};

struct World {
  std::mutex mu;
  std::condition_variable released;
  FakeGpuFaults faults;
  std::map<void*, size_t> memory;
  size_t in_use = 0;
  int communicators = 0;
  int wrong_threads = 0;
  int wrong_devices = 0;
  int launches = 0;
  int squares = 0;
  int revokes = 0;
  int aborts = 0;
  int ids = 0;
  bool forming_hangs = false;
  bool abort_released = false;
  bool fills_released = false;
  std::map<std::string, std::shared_ptr<Group>> groups;
  // What is never freed: a stuck device may still use it.
  std::vector<const void*> kept;
};
// What stands behind C functions has no other place.
World& TheWorld() {
  static auto* const kWorld = new World();
  return *kWorld;
}
using Lock = std::unique_lock<std::mutex>;

FakeStream* Of(cudaStream_t stream) {
  return reinterpret_cast<FakeStream*>(stream);
}
FakeEvent* Of(cudaEvent_t event) { return reinterpret_cast<FakeEvent*>(event); }
FakeComm* Of(ncclComm_t comm) { return reinterpret_cast<FakeComm*>(comm); }

bool RunSteps(FakeStream* stream) {
  while (!stream->steps.empty() && stream->steps.front()()) {
    stream->steps.pop_front();
  }
  return stream->steps.empty();
}

cudaError_t Allocate(void** data, size_t bytes) {
  Lock lock(TheWorld().mu);
  if (bytes > TheWorld().faults.memory - TheWorld().in_use) {
    return cudaErrorMemoryAllocation;
  }
  *data = new char[bytes];
  std::memset(*data, 0xab, bytes);  // Nobody may trust it.
  TheWorld().memory[*data] = bytes;
  TheWorld().in_use += bytes;
  return cudaSuccess;
}

cudaError_t Free(void* data) {
  Lock lock(TheWorld().mu);
  const auto it = TheWorld().memory.find(data);
  if (it == TheWorld().memory.end()) return cudaErrorInvalidValue;
  TheWorld().in_use -= it->second;
  TheWorld().memory.erase(it);
  delete[] static_cast<char*>(data);
  return cudaSuccess;
}

cudaError_t Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                 cudaStream_t stream) {
  Lock lock(TheWorld().mu);
  Of(stream)->steps.push_back([=] {
    std::memcpy(to, from, bytes);
    return true;
  });
  return cudaSuccess;
}

// The thread has chosen the GPU that there is.
void CheckDevice() {
  if (current_device != 0) ++TheWorld().wrong_devices;
}

cudaError_t CreateStream(cudaStream_t* stream) {
  Lock lock(TheWorld().mu);
  auto* const made = new FakeStream();
  TheWorld().kept.push_back(made);
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}

cudaError_t SumOfSquares(const float* data, size_t count, double* partials,
                         double* sum, cudaStream_t stream) {
  Lock lock(TheWorld().mu);
  if (TheWorld().faults.no_kernel) return cudaErrorNoKernelImageForDevice;
  if (count > 0) ++TheWorld().squares;
  Of(stream)->steps.push_back([=] {
    const World& world = TheWorld();
    if (count > 0 &&
        (world.faults.kernels_never_stop ||
         (world.faults.squares_take_long && !world.fills_released))) {
      return false;
    }
    // In use until it is done, as on a GPU.
    std::fill_n(partials, kSquaresPartials, 0.0);
    for (size_t i = 0; i < count; ++i) {
      partials[i % kSquaresPartials] += double{data[i]} * data[i];
    }
    *sum = std::accumulate(partials, partials + kSquaresPartials, 0.0);
    return true;
  });
  return cudaSuccess;
}

cudaError_t Add(float* to, const float* from, size_t count,
                cudaStream_t stream) {
  Lock lock(TheWorld().mu);
  CheckDevice();
  Of(stream)->steps.push_back([=] {
    for (size_t i = 0; i < count; ++i) to[i] += from[i];
    return true;
  });
  return cudaSuccess;
}

CudaApi FakeCuda() {
  CudaApi api;
  api.set_device = [](int device) {
    current_device = device;
    return cudaSuccess;
  };
  api.get_device = [](int* device) {
    *device = current_device;
    return cudaSuccess;
  };
  api.spare_captures = [] { return cudaSuccess; };
  api.is_capturing = [](cudaStream_t stream, bool* capturing) {
    Lock lock(TheWorld().mu);
    *capturing = Of(stream)->capturing;
    return cudaSuccess;
  };
  api.allocate = Allocate;
  api.free = Free;
  api.allocate_host = Allocate;
  api.free_host = Free;
  api.copy = Copy;
  api.create_stream = CreateStream;
  api.destroy_stream = [](cudaStream_t) { return cudaSuccess; };
  api.query_stream = [](cudaStream_t stream) {
    Lock lock(TheWorld().mu);
    return RunSteps(Of(stream)) ? cudaSuccess : cudaErrorNotReady;
  };
  api.wait_event = [](cudaStream_t stream, cudaEvent_t event) {
    Lock lock(TheWorld().mu);
    Of(stream)->steps.push_back([event, until = Of(event)->recorded] {
      if (Of(event)->stream != nullptr) RunSteps(Of(event)->stream);
      return Of(event)->reached >= until;
    });
    return cudaSuccess;
  };
  api.create_event = [](cudaEvent_t* event) {
    Lock lock(TheWorld().mu);
    auto* const made = new FakeEvent();
    TheWorld().kept.push_back(made);
    *event = reinterpret_cast<cudaEvent_t>(made);
    return cudaSuccess;
  };
  api.destroy_event = [](cudaEvent_t) { return cudaSuccess; };
  api.record_event = [](cudaEvent_t event, cudaStream_t stream) {
    Lock lock(TheWorld().mu);
    CheckDevice();
    const int number = ++Of(event)->recorded;
    Of(event)->stream = Of(stream);
    Of(stream)->steps.push_back([event, number] {
      Of(event)->reached = number;
      return true;
    });
    return cudaSuccess;
  };
  api.query_event = [](cudaEvent_t event) {
    Lock lock(TheWorld().mu);
    if (Of(event)->stream != nullptr) RunSteps(Of(event)->stream);
    return Of(event)->reached >= Of(event)->recorded ? cudaSuccess
                                                     : cudaErrorNotReady;
  };
  api.describe = [](cudaError_t) -> const char* { return "a CUDA error"; };
  api.clear_on = [](void* data, size_t bytes, cudaStream_t stream) {
    Lock lock(TheWorld().mu);
    CheckDevice();
    Of(stream)->steps.push_back([=] {
      std::memset(data, 0, bytes);
      return true;
    });
    return cudaSuccess;
  };
  api.sum_of_squares = SumOfSquares;
  api.add = Add;
  return api;
}

// Every call of a communicator comes from the thread that made it.
void CheckThread(ncclComm_t comm) {
  if (Of(comm)->owner != std::this_thread::get_id()) {
    ++TheWorld().wrong_threads;
  }
}

DataType TypeOf(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32:
      return DataType::kFloat32;
    case ncclFloat64:
      return DataType::kFloat64;
    case ncclInt32:
      return DataType::kInt32;
    case ncclInt64:
      return DataType::kInt64;
    case ncclInt8:
      return DataType::kInt8;
    default:
      return DataType::kUint8;
  }
}

// Enqueues a collective: every rank brings `bytes` at `from`; when all have,
// `combine` makes this rank's result of them.
ncclResult_t Enqueue(
    ncclComm_t comm, cudaStream_t stream, const void* from, size_t bytes,
    std::function<void(const std::vector<std::vector<char>>&)> combine) {
  Lock lock(TheWorld().mu);
  CheckThread(comm);
  FakeComm* const c = Of(comm);
  if (c->ended) return ncclInvalidUsage;
  ++TheWorld().launches;
  if (TheWorld().faults.peer_error) {
    c->error = ncclRemoteError;
    Of(stream)->steps.push_back([c] { return c->ended; });
    return ncclInProgress;
  }
  const int number = c->sequence++;
  ++c->group->started[number];
  auto arrived = std::make_shared<bool>(false);
  Of(stream)->steps.push_back([=, group = c->group] {
    if (TheWorld().faults.kernels_never_stop) return false;
    Round& round = group->rounds[number];
    if (!*arrived && !c->ended) {
      *arrived = true;
      round.parts.resize(group->size);
      const char* bytes_in = static_cast<const char*>(from);
      round.parts[c->rank].assign(bytes_in, bytes_in + bytes);
      ++round.arrived;
    }
    if (c->ended) return true;  // Garbage in the result, as on a GPU.
    if (round.arrived < group->size) return false;
    combine(round.parts);
    return true;
  });
  return ncclInProgress;
}

// Reduces the `count` elements from byte `skip` of each part on into `out`.
void Reduce(const std::vector<std::vector<char>>& parts, size_t skip,
            size_t count, DataType type, ncclRedOp_t op, void* out) {
  const auto reduce =
      ReduceFunctionFor(type, op == ncclMax    ? ReduceOp::kMax
                              : op == ncclMin  ? ReduceOp::kMin
                              : op == ncclProd ? ReduceOp::kProduct
                                               : ReduceOp::kSum);
  std::memcpy(out, parts[0].data() + skip, count * SizeOf(type));
  for (size_t r = 1; r < parts.size(); ++r) {
    reduce(out, out, parts[r].data() + skip, count);
  }
  if (op != ncclAvg) return;
  DivideForMean(type, out, count, static_cast<int>(parts.size()));
}

ncclResult_t AllReduce(const void* in, void* out, size_t count,
                       ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                       cudaStream_t stream) {
  const DataType t = TypeOf(type);
  return Enqueue(comm, stream, in, count * SizeOf(t), [=](const auto& parts) {
    Reduce(parts, 0, count, t, op, out);
  });
}

ncclResult_t ReduceScatter(const void* in, void* out, size_t count,
                           ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  const DataType t = TypeOf(type);
  const size_t size = Of(comm)->group->size;
  const size_t skip = Of(comm)->rank * count * SizeOf(t);
  return Enqueue(
      comm, stream, in, size * count * SizeOf(t),
      [=](const auto& parts) { Reduce(parts, skip, count, t, op, out); });
}

ncclResult_t AllGather(const void* in, void* out, size_t count,
                       ncclDataType_t type, ncclComm_t comm,
                       cudaStream_t stream) {
  const size_t bytes = count * SizeOf(TypeOf(type));
  return Enqueue(comm, stream, in, bytes, [=](const auto& parts) {
    for (size_t r = 0; r < parts.size(); ++r) {
      std::memcpy(static_cast<char*>(out) + r * bytes, parts[r].data(), bytes);
    }
  });
}

ncclResult_t Broadcast(const void* in, void* out, size_t count,
                       ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  const size_t bytes = count * SizeOf(TypeOf(type));
  return Enqueue(comm, stream, in, bytes, [=](const auto& parts) {
    std::memcpy(out, parts[root].data(), bytes);
  });
}

ncclResult_t Init(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                  ncclConfig_t* config) {
  Lock lock(TheWorld().mu);
  if (TheWorld().faults.init_fails || config->blocking != 0) {
    return ncclInvalidArgument;
  }
  auto& group = TheWorld().groups[std::string(id.internal, sizeof(id))];
  if (group == nullptr) group = std::make_shared<Group>();
  group->size = size;
  ++group->joined;
  ++TheWorld().communicators;
  auto* const made = new FakeComm();
  TheWorld().kept.push_back(made);
  made->group = group;
  made->rank = rank;
  made->busy = TheWorld().forming_hangs;
  made->owner = std::this_thread::get_id();
  *comm = reinterpret_cast<ncclComm_t>(made);
  return ncclInProgress;
}

ncclResult_t GetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  Lock lock(TheWorld().mu);
  CheckThread(comm);
  FakeComm* const c = Of(comm);
  const bool connects = TheWorld().faults.connects_late && !c->ended &&
                        c->sequence > 0 &&
                        c->group->started[c->sequence - 1] < c->group->size;
  *error =
      c->busy || connects || (!c->ended && c->group->joined < c->group->size)
          ? ncclInProgress
      : c->ended ? ncclSuccess
                 : c->error;
  return ncclSuccess;
}

ncclResult_t Revoke(ncclComm_t comm, int) {
  Lock lock(TheWorld().mu);
  CheckThread(comm);
  ++TheWorld().revokes;
  if (TheWorld().faults.revoke_fails) return ncclInvalidUsage;
  Of(comm)->ended = true;
  Of(comm)->busy = TheWorld().faults.revoke_never_ends;
  return ncclInProgress;
}

ncclResult_t Abort(ncclComm_t comm) {
  World& world = TheWorld();
  Lock lock(world.mu);
  CheckThread(comm);
  ++world.aborts;
  world.released.wait_for(lock, std::chrono::seconds(30), [&] {
    return !world.faults.abort_hangs || world.abort_released;
  });
  Of(comm)->ended = true;
  --world.communicators;
  return ncclSuccess;
}

ncclResult_t Destroy(ncclComm_t comm) {
  Lock lock(TheWorld().mu);
  CheckThread(comm);
  --TheWorld().communicators;
  return ncclSuccess;
}

NcclApi FakeNccl() {
  NcclApi api{};
  api.get_version = [](int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
  };
  api.get_unique_id = [](ncclUniqueId* id) {
    Lock lock(TheWorld().mu);
    std::memset(id->internal, 0, sizeof(id->internal));
    std::memcpy(id->internal, &++TheWorld().ids, sizeof(int));
    return ncclSuccess;
  };
  api.init = Init;
  api.get_async_error = GetAsyncError;
  api.finalize = [](ncclComm_t comm) {
    Lock lock(TheWorld().mu);
    CheckThread(comm);
    return ncclSuccess;
  };
  api.destroy = Destroy;
  api.abort = Abort;
  api.revoke = Revoke;
  api.all_reduce = AllReduce;
  api.reduce_scatter = ReduceScatter;
  api.all_gather = AllGather;
  api.broadcast = Broadcast;
  api.describe = [](ncclResult_t) -> const char* { return "an NCCL error"; };
  api.last_error = [](ncclComm_t) -> const char* { return "words of NCCL"; };
  return api;
}

}  // namespace

namespace {

GpuApi* TheApi() {
  static auto* const kApi =
      new GpuApi{FakeCuda(), FakeNccl(), NCCL_VERSION_CODE};
  return kApi;
}

}  // namespace

const GpuApi& FakeGpu() { return *TheApi(); }

const GpuApi& ResetFakeGpu(const FakeGpuFaults& faults) {
  World& world = TheWorld();
  Lock lock(world.mu);
  world.faults = faults;
  for (const auto& [data, bytes] : world.memory) world.kept.push_back(data);
  world.memory.clear();
  world.in_use = 0;
  world.wrong_devices = 0;
  world.communicators = world.wrong_threads = world.revokes = world.aborts = 0;
  world.launches = world.squares = 0;
  world.abort_released = world.fills_released = false;
  world.groups.clear();
  world.forming_hangs = false;
  TheApi()->nccl.revoke = faults.no_revoke ? nullptr : Revoke;
  return *TheApi();
}

void ReleaseFakeAborts() {
  Lock lock(TheWorld().mu);
  TheWorld().abort_released = true;
  TheWorld().released.notify_all();
}

size_t FakeBytesInUse() {
  Lock lock(TheWorld().mu);
  return TheWorld().in_use;
}
int FakeCommunicatorsInUse() {
  Lock lock(TheWorld().mu);
  return TheWorld().communicators;
}
int FakeWrongThreads() {
  Lock lock(TheWorld().mu);
  return TheWorld().wrong_threads;
}
int FakeLaunches() {
  Lock lock(TheWorld().mu);
  return TheWorld().launches;
}
int FakeSumsOfSquares() {
  Lock lock(TheWorld().mu);
  return TheWorld().squares;
}
int FakeRevokes() {
  Lock lock(TheWorld().mu);
  return TheWorld().revokes;
}
int FakeAborts() {
  Lock lock(TheWorld().mu);
  return TheWorld().aborts;
}

void HangFakeForming(bool hang) {
  Lock lock(TheWorld().mu);
  TheWorld().forming_hangs = hang;
}

cudaStream_t MakeFakeStream() {
  cudaStream_t stream = nullptr;
  (void)CreateStream(&stream);
  return stream;
}

void FakeSlowFill(cudaStream_t stream, void* data, int value, size_t bytes) {
  Lock lock(TheWorld().mu);
  Of(stream)->steps.push_back([=] {
    if (!TheWorld().fills_released) return false;
    std::memset(data, value, bytes);
    return true;
  });
}

void CaptureFakeStream(cudaStream_t stream) {
  Lock lock(TheWorld().mu);
  Of(stream)->capturing = true;
}

int FakeCallsOnWrongDevice() {
  Lock lock(TheWorld().mu);
  return TheWorld().wrong_devices;
}
int FakeDeviceOfThread() { return current_device; }
void SetFakeDeviceOfThread(int device) { current_device = device; }

void ReleaseFakeFills() {
  Lock lock(TheWorld().mu);
  TheWorld().fills_released = true;
}

}  // namespace lockstep::worker::collective::nccl
