// Opens what the nccl backend needs from its host: the driver and NCCL.
//
// The module carries CUDA's runtime in itself (cudart_static), which finds the
// driver's libcuda.so.1 at run time; libnccl.so.2 is opened from where the
// loader finds it, or from $LOCKSTEP_NCCL_LIBRARY. A host that lacks one gives
// a sentence and nothing else.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_LIBRARY_H_
#define LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_LIBRARY_H_

#include <string>

#include "common/base/status.h"
#include "worker/collective/nccl/nccl_api.h"

namespace lockstep::worker::collective::nccl {

// The oldest NCCL that non-blocking communicators are trusted with.
inline constexpr int kLeastNcclVersion = NCCL_VERSION(2, 18, 0);

// "2.28.9".
std::string NcclVersionText(int version);

// Opens the library once for the process; it is never closed. The errors are
// the end of a sentence about a rank: FailedPrecondition("has no ...").
StatusOr<const GpuApi*> OpenNccl();

// Returns the name of device number `device` of this process, unique among all
// hosts: "HOST/GPU-UUID". The host is $NCCL_HOSTID where that is set, as in
// NCCL. Errors as for OpenNccl: no driver, too old a driver, no such GPU.
StatusOr<std::string> NameDevice(int device);

// NCCL opens ports on its own: those of its RAS service stay shut, and the
// others are on the interface that has `bind_address`. By NCCL's environment
// variables, where they are not set; so before the first communicator, and
// not while other threads read the environment.
void SetNcclEnvironment(const std::string& bind_address);

}  // namespace lockstep::worker::collective::nccl

#endif  // LOCKSTEP_WORKER_COLLECTIVE_NCCL_NCCL_LIBRARY_H_
