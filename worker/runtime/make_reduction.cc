#include "worker/runtime/make_reduction.h"

#include <utility>

#include "worker/runtime/bucket_reduction.h"
#include "worker/runtime/gradient_buckets.h"
#include "worker/runtime/shard_reduction.h"

namespace lockstep::worker::runtime {
namespace {

// Whether an elastic job reduces by nccl.
bool IsOverNccl(const collective::Communicator* communicator) {
  return communicator != nullptr && communicator->backend() == "nccl";
}

Status CheckOptions(const SteppedReducerOptions& options) {
  const ReducerOptions& reducing = options.reducer;
  if (!(reducing.clip_norm >= 0)) {
    return InvalidArgument("gradients cannot be clipped to a norm of {}",
                           reducing.clip_norm);
  }
  const collective::Communicator* const communicator = options.communicator;
  const bool on_device = reducing.device_stream != nullptr;
  if (options.elastic && reducing.bf16_wire) {
    return InvalidArgument(
        "an elastic job reduces gradients as fp32: leave out bf16");
  }
  if (options.elastic && on_device && !IsOverNccl(communicator)) {
    return InvalidArgument(
        "an elastic job reduces gradients in the host's memory: leave out "
        "device_stream, or ask for backend nccl");
  }
  if (options.elastic) return OkStatus();
  if (on_device && options.communicator->device_memory() == nullptr) {
    return InvalidArgument(
        "gradients cannot lie on a device: backend {} reduces in the host's "
        "memory; leave device_stream out, or use backend nccl",
        communicator->backend());
  }
  // It does not sum in float32 and round once.
  if (reducing.bf16_wire && communicator->backend() == "nccl") {
    return InvalidArgument(
        "nccl would round bfloat16 at every hop: reduce gradients as fp32, or "
        "over shm, tcp or hierarchical");
  }
  return OkStatus();
}

// The sums of an elastic job do not depend on the order of its gradients, so it
// has none.
void ChooseOrder(SteppedReducerOptions* options) {
  ReducerOptions& reducing = options->reducer;
  if (options->elastic) {
    reducing.order.clear();
    reducing.learn_order = false;
    options->learned = {};
  }
  if (options->learned.order.empty()) return;
  // Until then they are filled as they were when it was learned.
  reducing.order.clear();
  if (options->learned.at <= reducing.start_step) {
    reducing.order = std::exchange(options->learned.order, {});
  }
}

}  // namespace

Status CompleteOptions(SteppedReducerOptions* options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckOptions(*options));
  ChooseOrder(options);
  collective::Communicator* const communicator = options->communicator;
  if (!options->elastic) {
    options->membership =
        MembersWithout({}, communicator->size(), communicator->rank());
  }
  if (!options->sizes) {
    options->sizes = collective::SizesFor(
        options->elastic && !IsOverNccl(communicator) ? "shards"
                                                      : communicator->backend(),
        options->reducer.bucket_bytes);
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<GradientReduction>> MakeReduction(
    const std::vector<Parameter>& parameters,
    const SteppedReducerOptions& options) {
  const ReducerOptions& reducing = options.reducer;
  const int shards = options.elastic ? options.membership.world_size : 0;
  const bool sums_shards = options.elastic && !IsOverNccl(options.communicator);
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<GradientBuckets> buckets,
      GradientBuckets::Create(sums_shards ? nullptr : options.communicator,
                              parameters, reducing, *options.sizes, shards));
  if (sums_shards) {
    return std::make_unique<ShardReduction>(options.progress,
                                            std::move(buckets), shards,
                                            options.operation_timeout);
  }
  return std::make_unique<BucketReduction>(
      options.communicator, options.progress, std::move(buckets),
      reducing.device_stream, options.operation_timeout,
      options.elastic ? options.membership : Membership());
}

}  // namespace lockstep::worker::runtime
