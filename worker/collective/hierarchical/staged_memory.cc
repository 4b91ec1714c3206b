#include "worker/collective/hierarchical/staged_memory.h"

#include <utility>

namespace lockstep::worker::collective::hierarchical {

StatusOr<const Buffer*> StagedMemory::Allocate(size_t bytes) {
  MutexLock lock(&calls_);
  Staged staged;
  Communicator* const owner = within_ != nullptr ? within_ : between_;
  LOCKSTEP_ASSIGN_OR_RETURN(const Buffer* own, owner->Allocate(bytes));
  staged.buffer = *own;
  (owner == within_ ? staged.within : staged.between) = own;
  if (within_ != nullptr && between_ != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(staged.between,
                              between_->Register(own->data, own->bytes));
  }
  return Keep(staged);
}

StatusOr<const Buffer*> StagedMemory::Register(void* data, size_t bytes) {
  MutexLock lock(&calls_);
  Staged staged;
  staged.buffer = {.data = data, .bytes = bytes, .kind = MemoryKind::kHost};
  if (within_ != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(staged.within, within_->Register(data, bytes));
  }
  if (between_ != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(staged.between, between_->Register(data, bytes));
  }
  return Keep(staged);
}

// Both have all of it at the same offsets.
StatusOr<const Buffer*> StagedMemory::AnyMemory() {
  MutexLock lock(&calls_);
  if (any_ != nullptr) return any_;
  Staged staged;
  staged.buffer = AnyHostMemory();
  if (within_ != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(staged.within, within_->AnyMemory());
  }
  if (between_ != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(staged.between, between_->AnyMemory());
  }
  any_ = Keep(staged);
  return any_;
}

const Buffer* StagedMemory::Keep(Staged staged) {
  auto kept = std::make_unique<Staged>(staged);
  const Buffer* const buffer = &kept->buffer;
  MutexLock lock(&mu_);
  staged_[buffer] = std::move(kept);
  return buffer;
}

const StagedMemory::Staged* StagedMemory::Find(const Buffer* buffer) const {
  MutexLock lock(&mu_);
  const auto it = staged_.find(buffer);
  return it == staged_.end() ? nullptr : it->second.get();
}

bool StagedMemory::Owns(const Buffer* buffer) const {
  return Find(buffer) != nullptr;
}

const Buffer* StagedMemory::Within(const Buffer* buffer) const {
  const Staged* const staged = Find(buffer);
  return staged == nullptr ? nullptr : staged->within;
}

const Buffer* StagedMemory::Between(const Buffer* buffer) const {
  const Staged* const staged = Find(buffer);
  return staged == nullptr ? nullptr : staged->between;
}

}  // namespace lockstep::worker::collective::hierarchical
