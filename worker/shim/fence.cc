#include "worker/shim/fence.h"

#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::worker::shim {

bool Fence::Begin(int64_t fence_nanos) {
  if (fence_nanos == 0) return true;
  timer_.Reset(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_) return false;
  fence_nanos_ = fence_nanos;
  SetTimer(fence_nanos_ - kFenceKillTime - kFenceGrace);
  return true;
}

void Fence::Renew(int64_t fence_nanos) {
  if (!timer_ || told_ || fence_nanos <= fence_nanos_) return;
  fence_nanos_ = fence_nanos;
  SetTimer(fence_nanos_ - kFenceKillTime - kFenceGrace);
}

Fence::Due Fence::Check(int64_t now) {
  if (!timer_ || killed_) return Due::kNothing;
  uint64_t times = 0;
  (void)!read(timer_.get(), &times, sizeof(times));
  const int64_t kill_at = fence_nanos_ - kFenceKillTime;
  if (now >= kill_at) {
    told_ = killed_ = true;
    return Due::kKill;
  }
  if (told_ || now < kill_at - kFenceGrace) return Due::kNothing;
  told_ = true;
  SetTimer(kill_at);
  return Due::kTerminate;
}

void Fence::End() {
  timer_.Reset();
  fence_nanos_ = 0;
}

void Fence::SetTimer(int64_t at) {
  // 0 would switch it off.
  at = std::max<int64_t>(at, 1);
  itimerspec spec{};
  spec.it_value.tv_sec = at / kNanosPerSecond;
  spec.it_value.tv_nsec = at % kNanosPerSecond;
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

}  // namespace lockstep::worker::shim
