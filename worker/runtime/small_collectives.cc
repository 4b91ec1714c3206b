#include "worker/runtime/small_collectives.h"

#include <algorithm>
#include <cstring>

#include "worker/runtime/peer_lost.h"

namespace lockstep::worker::runtime {
namespace {

constexpr size_t kScratchBytes = 64 << 10;
constexpr uint64_t kMaxBroadcast = 64 << 20;

}  // namespace

Status SmallCollectives::Prepare() {
  if (scratch_ != nullptr) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(scratch_, communicator_->Allocate(kScratchBytes));
  return OkStatus();
}

Status SmallCollectives::RunOne(const collective::Operation& operation) {
  progress_->CountCollective(operation.slice.count *
                             SizeOf(operation.slice.type));
  return MarkPeerLost(Run(communicator_, operation, operation_timeout_));
}

Status SmallCollectives::AllReduceSum(std::span<double> values) {
  LOCKSTEP_RETURN_IF_ERROR(Prepare());
  constexpr size_t kPiece = kScratchBytes / sizeof(double);
  while (!values.empty()) {
    const std::span<double> piece =
        values.first(std::min(values.size(), kPiece));
    std::memcpy(scratch_->data, piece.data(), piece.size_bytes());
    LOCKSTEP_RETURN_IF_ERROR(
        RunOne({collective::CollectiveKind::kAllReduce,
                {scratch_, 0, piece.size(), collective::DataType::kFloat64}}));
    std::memcpy(piece.data(), scratch_->data, piece.size_bytes());
    values = values.subspan(piece.size());
  }
  return OkStatus();
}

Status SmallCollectives::Broadcast(std::string* bytes) {
  LOCKSTEP_RETURN_IF_ERROR(Prepare());
  uint64_t size = bytes->size();
  std::memcpy(scratch_->data, &size, sizeof(size));
  LOCKSTEP_RETURN_IF_ERROR(
      RunOne({collective::CollectiveKind::kBroadcast,
              {scratch_, 0, sizeof(size), collective::DataType::kUint8}}));
  std::memcpy(&size, scratch_->data, sizeof(size));
  // Looked at after all know it: nobody waits for bytes that do not come.
  if (size > kMaxBroadcast) {
    return InvalidArgument("rank 0 broadcasts {} bytes: at most {}", size,
                           kMaxBroadcast);
  }
  bytes->resize(size);
  for (size_t done = 0; done < size; done += kScratchBytes) {
    const size_t piece = std::min<size_t>(kScratchBytes, size - done);
    std::memcpy(scratch_->data, bytes->data() + done, piece);
    LOCKSTEP_RETURN_IF_ERROR(
        RunOne({collective::CollectiveKind::kBroadcast,
                {scratch_, 0, piece, collective::DataType::kUint8}}));
    std::memcpy(bytes->data() + done, scratch_->data, piece);
  }
  return OkStatus();
}

Status SmallCollectives::Barrier() {
  return RunOne({collective::CollectiveKind::kBarrier});
}

}  // namespace lockstep::worker::runtime
