// The interface of a backend module: one C function.
//
// A module is a shared object collective-NAME.so. It is loaded with its
// symbols kept to itself (RTLD_LOCAL), because other libraries of the process
// may bring the same collective library in another version. Behind the C
// function are C++ types, so a module works only with a program of the same
// interface version and toolchain: the factory compares both first.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_MODULE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_MODULE_H_

#include <cstdint>

#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/rank_offer.h"

// Raised with every change of communicator.h, address_range.h or this file.
inline constexpr uint32_t kLockstepCollectiveAbi = 15;
inline constexpr char kLockstepCollectiveToolchain[] = __VERSION__
    " C++"
#if defined(__GLIBCXX__) && _GLIBCXX_USE_CXX11_ABI
    "11abi"
#endif
    ;

extern "C" {

struct lockstep_collective_module {
  // The first three have this place and meaning in every version.
  uint32_t struct_size;   // sizeof(lockstep_collective_module)
  uint32_t abi;           // kLockstepCollectiveAbi
  const char* toolchain;  // kLockstepCollectiveToolchain
  const char* name;       // "nccl"
  // Fills in this rank's offer. Null: the backend runs everywhere. Quick;
  // throws nothing; only counts the GPUs.
  void (*offer)(
      const lockstep::worker::collective::CommunicatorOptions* options,
      lockstep::worker::collective::RankOffer* offer);
  // Forms a communicator into `communicator` (the caller's to delete), or
  // writes `error` and returns false. Throws nothing.
  bool (*form)(const lockstep::worker::collective::CommunicatorOptions* options,
               lockstep::worker::collective::Communicator** communicator,
               lockstep::Status* error);
};

using lockstep_collective_module_function =
    const lockstep_collective_module*(void);

// Never null; lives as long as the module.
const lockstep_collective_module* lockstep_collective_module_v1(void);
}

inline constexpr char kLockstepCollectiveEntry[] =
    "lockstep_collective_module_v1";

#endif  // LOCKSTEP_WORKER_COLLECTIVE_MODULE_H_
