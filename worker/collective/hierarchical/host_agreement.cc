#include "worker/collective/hierarchical/host_agreement.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "worker/collective/operation.h"

namespace lockstep::worker::collective::hierarchical {

StatusOr<bool> HostAgreement::All(bool mine, const Operation& running,
                                  MonoTime deadline) {
  if (buffer_ == nullptr) return mine;
  auto* const word = static_cast<int32_t*>(buffer_->data);
  *word = mine ? 1 : 0;
  LOCKSTEP_RETURN_IF_ERROR(
      sides_.RunWithin({.slice = {buffer_, 0, 1, DataType::kInt32},
                        .op = ReduceOp::kMin,
                        .part_of = WordsOf(running)},
                       deadline));
  return *word != 0;
}

StatusOr<std::string> HostAgreement::OfLeader(const std::string& mine,
                                              MonoTime deadline) {
  if (buffer_ == nullptr) return mine;
  auto* const text = static_cast<char*>(buffer_->data);
  std::memset(text, 0, kLineBytes);
  if (leader_) {
    std::memcpy(text, mine.data(), std::min(mine.size(), kLineBytes));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      sides_.RunWithin({.kind = CollectiveKind::kBroadcast,
                        .slice = {buffer_, 0, kLineBytes, DataType::kUint8}},
                       deadline));
  return std::string(text, strnlen(text, kLineBytes));
}

}  // namespace lockstep::worker::collective::hierarchical
