#include "tests/bench/word_communicator.h"

#include "worker/collective/self_communicator.h"

namespace lockstep {

StatusOr<std::unique_ptr<Work>> WordCommunicator::Start(
    const Operation& operation, Stream) {
  const Slice& slice = operation.slice;
  const size_t end = (slice.offset + slice.count) * SizeOf(slice.type);
  if (operation.kind != CollectiveKind::kAllReduce ||
      end + 64 < bytes_[slice.buffer]) {
    return std::unique_ptr<Work>(std::make_unique<DoneWork>());
  }
  return inner_->Start(
      {CollectiveKind::kAllReduce, {word_, 0, 1, DataType::kFloat32}});
}

}  // namespace lockstep
