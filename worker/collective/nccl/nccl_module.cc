// collective-nccl.so: the C function of module.h over nccl_communicator.h.
#include <exception>

#include "worker/collective/module.h"
#include "worker/collective/nccl/nccl_communicator.h"
#include "worker/collective/nccl/nccl_library.h"

namespace lockstep::worker::collective::nccl {
namespace {

void Offer(const CommunicatorOptions* options, RankOffer* offer) {
  const auto refuse = [&](std::string why) {
    *offer = {};
    offer->why_not = std::move(why);
  };
  try {
    const auto device = NameDevice(options->device);
    if (!device.ok()) return refuse(Message(device.status()));
    const auto api = OpenNccl();
    if (!api.ok()) return refuse(Message(api.status()));
    offer->device = *device;
    offer->library = "NCCL " + NcclVersionText((*api)->nccl_version);
  } catch (const std::exception& e) {
    refuse(e.what());
  }
}

StatusOr<std::unique_ptr<Communicator>> Form(
    const CommunicatorOptions& options) {
  RankOffer offer;
  Offer(&options, &offer);
  if (offer.device.empty()) {
    return FailedPrecondition(
        "{}: backend nccl cannot be used: {} {}", options.label,
        options.size == 1 ? "this rank" : fmt::format("rank {}", options.rank),
        offer.why_not);
  }
  SetNcclEnvironment(options.bind_address);
  LOCKSTEP_ASSIGN_OR_RETURN(const GpuApi* api, OpenNccl());
  return FormNccl(options, *api);
}

bool FormInto(const CommunicatorOptions* options, Communicator** communicator,
              Status* error) {
  try {
    auto formed = Form(*options);
    if (!formed.ok()) {
      *error = formed.status();
      return false;
    }
    *communicator = formed->release();
    return true;
  } catch (const std::exception& e) {
    *error = Internal("{}: forming failed: {}", options->label, e.what());
    return false;
  }
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
      lockstep::worker::collective::nccl::Offer,
      lockstep::worker::collective::nccl::FormInto};
  return &kModule;
}
