// The part of two devices: an all-reduce over NCCL, which is opened when it is
// needed, as by the nccl backend.
#include <dlfcn.h>
#include <nccl.h>

#include <array>
#include <cstdlib>

#include "worker/gpu_check/parts.h"

namespace lockstep::worker::gpu_check {
namespace {

constexpr size_t kCount = size_t{16} << 20;
constexpr int kRanks = 2;

struct Nccl {
  decltype(&ncclCommInitAll) init_all = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclGetErrorString) describe = nullptr;

  Status Check(ncclResult_t result, const char* doing) const {
    if (result == ncclSuccess) return OkStatus();
    return Unavailable("NCCL: {}: {}", doing, describe(result));
  }
};

template <typename Function>
bool Load(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

StatusOr<Nccl> OpenNccl() {
  const char* const given = std::getenv("LOCKSTEP_NCCL_LIBRARY");
  const std::string path =
      given != nullptr && *given != '\0' ? given : "libnccl.so.2";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return NotFound("NCCL is not installed ({})", path);
  Nccl nccl;
  if (!Load(library, "ncclCommInitAll", &nccl.init_all) ||
      !Load(library, "ncclCommDestroy", &nccl.destroy) ||
      !Load(library, "ncclGroupStart", &nccl.group_start) ||
      !Load(library, "ncclGroupEnd", &nccl.group_end) ||
      !Load(library, "ncclAllReduce", &nccl.all_reduce) ||
      !Load(library, "ncclGetErrorString", &nccl.describe)) {
    return NotFound("{} lacks functions of NCCL", path);
  }
  return nccl;
}

// The ranks, one for each device.
class Ranks {
 public:
  explicit Ranks(const Nccl& nccl) : nccl_(nccl) {}
  ~Ranks() {
    for (int rank = 0; rank < kRanks; ++rank) {
      (void)cudaSetDevice(rank);
      if (comms_[rank] != nullptr) (void)nccl_.destroy(comms_[rank]);
      (void)cudaFree(values_[rank]);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Status Start() {
    for (int rank = 0; rank < kRanks; ++rank) {
      LOCKSTEP_RETURN_IF_ERROR(Check(cudaSetDevice(rank), "choosing a device"));
      LOCKSTEP_RETURN_IF_ERROR(
          Check(cudaMalloc(reinterpret_cast<void**>(&values_[rank]),
                           kCount * sizeof(float)),
                "allocating memory"));
    }
    constexpr int kDevices[kRanks] = {0, 1};
    return nccl_.Check(nccl_.init_all(comms_.data(), kRanks, kDevices),
                       "starting");
  }
  Status Write(uint32_t round) {
    for (int rank = 0; rank < kRanks; ++rank) {
      LOCKSTEP_RETURN_IF_ERROR(Check(cudaSetDevice(rank), "choosing a device"));
      LOCKSTEP_RETURN_IF_ERROR(Check(
          WriteReduce(values_[rank], kCount, rank, round), "writing values"));
      LOCKSTEP_RETURN_IF_ERROR(
          Check(cudaDeviceSynchronize(), "writing values"));
    }
    return OkStatus();
  }
  // On the default streams.
  Status Reduce() {
    LOCKSTEP_RETURN_IF_ERROR(
        nccl_.Check(nccl_.group_start(), "starting a group"));
    for (int rank = 0; rank < kRanks; ++rank) {
      LOCKSTEP_RETURN_IF_ERROR(nccl_.Check(
          nccl_.all_reduce(values_[rank], values_[rank], kCount, ncclFloat,
                           ncclSum, comms_[rank], nullptr),
          "an all-reduce"));
    }
    LOCKSTEP_RETURN_IF_ERROR(nccl_.Check(nccl_.group_end(), "ending a group"));
    for (int rank = kRanks - 1; rank >= 0; --rank) {
      LOCKSTEP_RETURN_IF_ERROR(Check(cudaSetDevice(rank), "choosing a device"));
      LOCKSTEP_RETURN_IF_ERROR(Check(cudaDeviceSynchronize(), "an all-reduce"));
    }
    return OkStatus();
  }
  Status Compare(uint32_t round, bool spoil) {
    for (int rank = 0; rank < kRanks; ++rank) {
      LOCKSTEP_RETURN_IF_ERROR(Check(cudaSetDevice(rank), "choosing a device"));
      Found found;
      LOCKSTEP_RETURN_IF_ERROR(found.Allocate());
      LOCKSTEP_RETURN_IF_ERROR(found.Clear());
      if (spoil) {
        LOCKSTEP_RETURN_IF_ERROR(
            Check(cudaMemset(values_[rank] + kCount - 1, 0x3f, 4), "spoiling"));
      }
      LOCKSTEP_RETURN_IF_ERROR(
          Check(CompareReduced(values_[rank], kCount, round, found.get()),
                "comparing"));
      LOCKSTEP_ASSIGN_OR_RETURN(const Mismatch wrong, found.Read());
      if (wrong.count > 0) {
        return Aborted("{} of {} sums are wrong, the first is number {}",
                       wrong.count, kCount, wrong.first);
      }
    }
    return OkStatus();
  }

 private:
  const Nccl& nccl_;
  std::array<ncclComm_t, kRanks> comms_{};
  std::array<float*, kRanks> values_{};
};

}  // namespace

StatusOr<double> CheckAllReduce(const PartOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Nccl nccl, OpenNccl());
  Ranks ranks(nccl);
  LOCKSTEP_RETURN_IF_ERROR(ranks.Start());
  const MonoTime end = MonotonicNow() + options.time;
  double seconds = 0, bytes = 0;
  for (uint32_t round = 0; round < 2 || MonotonicNow() < end; ++round) {
    LOCKSTEP_RETURN_IF_ERROR(ranks.Write(round));
    const MonoTime begun = MonotonicNow();
    LOCKSTEP_RETURN_IF_ERROR(ranks.Reduce());
    // The first one connects.
    if (round > 0) {
      seconds += ToSeconds(MonotonicNow() - begun);
      bytes += static_cast<double>(kCount * sizeof(float));
    }
    LOCKSTEP_RETURN_IF_ERROR(ranks.Compare(round, options.spoil));
  }
  return seconds > 0 ? bytes / seconds / 1e9 : 0.0;
}

}  // namespace lockstep::worker::gpu_check
