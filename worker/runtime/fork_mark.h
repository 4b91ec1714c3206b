// Knows without a system call whether this is a forked child of the process
// that made the object. getpid(2) is one since glibc 2.25.
#ifndef LOCKSTEP_WORKER_RUNTIME_FORK_MARK_H_
#define LOCKSTEP_WORKER_RUNTIME_FORK_MARK_H_

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace lockstep::worker::runtime {

class ForkMark {
 public:
  ForkMark() {
    void* const page = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    // The kernel gives a child zeroes in place of this page.
    if (::madvise(page, kBytes, MADV_WIPEONFORK) != 0) {
      ::munmap(page, kBytes);
      return;
    }
    mark_ = new (page) std::atomic<uint32_t>(1);
  }
  ~ForkMark() {
    if (mark_ != nullptr) ::munmap(mark_, kBytes);
  }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  bool IsForked() const {
    if (mark_ == nullptr) return ::getpid() != maker_;
    return mark_->load(std::memory_order_relaxed) == 0;
  }

 private:
  static constexpr size_t kBytes = 4096;
  const pid_t maker_ = ::getpid();
  std::atomic<uint32_t>* mark_ = nullptr;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_FORK_MARK_H_
