#include "worker/collective/gloo_ticker.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>

namespace lockstep {
namespace {

using gloo::transport::tcp::Device;

constexpr long kPeriodNanos = 100'000;

}  // namespace

GlooTicker::GlooTicker(const std::shared_ptr<gloo::transport::Device>& device)
    : timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  auto* const tcp = dynamic_cast<Device*>(device.get());
  if (tcp == nullptr) timer_.Reset();
  if (timer_) tcp->registerDescriptor(timer_.get(), EPOLLIN, this);
}

void GlooTicker::Detach(gloo::transport::Device* device) {
  if (!timer_) return;
  dynamic_cast<Device*>(device)->unregisterDescriptor(timer_.get(), this);
  timer_.Reset();
}

void GlooTicker::Set(bool armed) {
  if (!timer_) return;
  itimerspec times{};
  if (armed) times.it_value.tv_nsec = times.it_interval.tv_nsec = kPeriodNanos;
  (void)timerfd_settime(timer_.get(), 0, &times, nullptr);
}

void GlooTicker::handleEvents(int) {
  uint64_t count = 0;
  (void)!read(timer_.get(), &count, sizeof(count));
}

}  // namespace lockstep
