#include "worker/bench/store.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <thread>

namespace lockstep {
namespace {

constexpr size_t kBytes = size_t{64} << 20;
constexpr auto kPollInterval = std::chrono::microseconds(200);

}  // namespace

// An entry, then its key and its value. Fresh memory is zero: not written.
struct SharedRendezvousStore::Entry {
  std::atomic<uint32_t> written;
  uint32_t key_size;
  uint32_t value_size;
  char* key() { return reinterpret_cast<char*>(this + 1); }
  size_t size() const { return SizeFor(key_size, value_size); }
  static size_t SizeFor(size_t key, size_t value) {
    return (sizeof(Entry) + key + value + 7) & ~size_t{7};
  }
};

struct SharedRendezvousStore::Log {
  std::atomic<uint64_t> used;
  Entry* At(uint64_t offset) {
    return reinterpret_cast<Entry*>(reinterpret_cast<char*>(this + 1) + offset);
  }
};

StatusOr<std::unique_ptr<SharedRendezvousStore>>
SharedRendezvousStore::Create() {
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return ErrnoStatus(errno, "mapping memory for the ranks' rendezvous");
  }
  return std::unique_ptr<SharedRendezvousStore>(
      new SharedRendezvousStore(new (memory) Log{}));
}

SharedRendezvousStore::~SharedRendezvousStore() { munmap(log_, kBytes); }

Status SharedRendezvousStore::Put(const std::string& key,
                                  std::string_view value) {
  const size_t size = Entry::SizeFor(key.size(), value.size());
  for (;;) {
    const uint64_t end = log_->used.load();
    if (end + size > kBytes - sizeof(Log)) {
      return ResourceExhausted("the ranks' rendezvous is full");
    }
    // Whoever marks the entry at the end writes it; readers see it when the end
    // has moved on.
    Entry* const entry = log_->At(end);
    uint32_t free = 0;
    if (entry->written.compare_exchange_strong(free, 1)) {
      entry->key_size = static_cast<uint32_t>(key.size());
      entry->value_size = static_cast<uint32_t>(value.size());
      std::memcpy(entry->key(), key.data(), key.size());
      std::memcpy(entry->key() + key.size(), value.data(), value.size());
      log_->used.store(end + size);
      return OkStatus();
    }
    std::this_thread::yield();  // Somebody else is at it.
  }
}

StatusOr<std::string> SharedRendezvousStore::Get(const std::string& key,
                                                 MonoTime deadline) {
  uint64_t seen = 0;
  for (;;) {
    const uint64_t used = log_->used.load();
    while (seen < used) {
      Entry* const entry = log_->At(seen);
      if (key == std::string_view(entry->key(), entry->key_size)) {
        return std::string(entry->key() + entry->key_size, entry->value_size);
      }
      seen += entry->size();
    }
    if (MonotonicNow() >= deadline)
      return DeadlineExceeded("no rank wrote key {} in time", key);
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace lockstep
