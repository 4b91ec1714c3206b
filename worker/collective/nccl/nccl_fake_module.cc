// collective-nccl.so over the GPU in memory (nccl_fake.h): for tests of whole
// sessions. The ranks that meet must be threads of one process.
#include "worker/collective/nccl/nccl_fake_module.h"

#include "worker/collective/module.h"
#include "worker/collective/nccl/nccl_communicator.h"
#include "worker/collective/nccl/nccl_fake.h"

namespace lockstep::worker::collective::nccl {
namespace {

void OfferFake(const CommunicatorOptions* options, RankOffer* offer) {
  offer->device = fmt::format("memory/GPU-{}", options->rank);
  offer->library = "NCCL in memory";
}

bool FormFake(const CommunicatorOptions* options, Communicator** communicator,
              Status* error) {
  auto formed = FormNccl(*options, FakeGpu());
  if (!formed.ok()) {
    *error = formed.status();
    return false;
  }
  *communicator = formed->release();
  return true;
}

}  // namespace
}  // namespace lockstep::worker::collective::nccl

extern "C" __attribute__((visibility("default")))
const lockstep_collective_module*
lockstep_collective_module_v1(void) {
  static const lockstep_collective_module kModule = {
      sizeof(lockstep_collective_module),
      kLockstepCollectiveAbi,
      kLockstepCollectiveToolchain,
      "nccl",
      lockstep::worker::collective::nccl::OfferFake,
      lockstep::worker::collective::nccl::FormFake};
  return &kModule;
}

#define LOCKSTEP_EXPORTED extern "C" __attribute__((visibility("default")))

LOCKSTEP_EXPORTED lockstep_fake_gpu lockstep_fake_gpu_now(void) {
  using namespace lockstep::worker::collective::nccl;
  return {FakeBytesInUse(), FakeCommunicatorsInUse(), FakeWrongThreads()};
}

LOCKSTEP_EXPORTED void lockstep_fake_gpu_hang_forming(int hang) {
  lockstep::worker::collective::nccl::HangFakeForming(hang != 0);
}

LOCKSTEP_EXPORTED void* lockstep_fake_gpu_make_stream(void) {
  return lockstep::worker::collective::nccl::MakeFakeStream();
}

LOCKSTEP_EXPORTED void lockstep_fake_gpu_run(void* stream) {
  (void)lockstep::worker::collective::nccl::FakeGpu().cuda.query_stream(
      static_cast<cudaStream_t>(stream));
}
