#include "worker/agent/stream/heartbeats.h"

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "worker/agent/host/boot_clock.h"

namespace lockstep::worker::agent {
namespace {

// A stream that takes messages and gives none back is a dead one.
constexpr uint64_t kMaxUnacknowledged = 60;

}  // namespace

Heartbeats::Heartbeats(EventLoop* loop, HeartbeatSource* source,
                       std::function<void(const NodeHeartbeat&)> send,
                       std::function<void()> lost,
                       std::function<void(int64_t)> answered)
    : loop_(loop),
      source_(source),
      send_(std::move(send)),
      lost_(std::move(lost)),
      answered_(std::move(answered)) {}

void Heartbeats::Reset() {
  registered_ = BootNanos();
  sequence_ = 0;
  acknowledged_ = 0;
  unanswered_.clear();
  // What an ended stream did not deliver is reported again: a fatal error
  // decides whether the GPU gets new work.
  for (const auto& [sequence, errors] : unanswered_errors_) {
    source_->ReturnErrors(errors);
  }
  unanswered_errors_.clear();
  round_trip_.reset();
}

void Heartbeats::Start(Duration interval) {
  interval_ = interval;
  if (answered_) answered_(registered_);
  Beat();
}

void Heartbeats::Stop() {
  loop_->CancelTimer(timer_);
  timer_ = 0;
}

void Heartbeats::Beat() {
  if (sequence_ > acknowledged_ + kMaxUnacknowledged) {
    LOG_WARN("the coordinator does not answer heartbeats: reconnecting");
    return lost_();
  }
  NodeHeartbeat beat;
  beat.sequence = ++sequence_;
  beat.readings = source_->TakeReadings();
  beat.readings.send_time = loop_->Now().wall;
  beat.readings.round_trip = std::exchange(round_trip_, std::nullopt);
  unanswered_[beat.sequence] = {loop_->Now().mono, BootNanos()};
  if (!beat.readings.gpu_errors.empty()) {
    unanswered_errors_[beat.sequence] = beat.readings.gpu_errors;
  }
  beat.gangs = source_->Progress();
  send_(beat);
  loop_->CancelTimer(timer_);
  timer_ = loop_->At(loop_->Now().mono + interval_,
                     lifetime_.Guard([this] { Beat(); }));
}

void Heartbeats::OnAck(uint64_t sequence) {
  acknowledged_ = std::max(acknowledged_, sequence);
  const auto sent = unanswered_.find(sequence);
  if (sent != unanswered_.end()) {
    round_trip_ = loop_->Now().mono - sent->second.mono;
    if (answered_) answered_(sent->second.boot);
  }
  // Answers come in order: of those before it none comes any more.
  unanswered_.erase(unanswered_.begin(), unanswered_.upper_bound(sequence));
  unanswered_errors_.erase(unanswered_errors_.begin(),
                           unanswered_errors_.upper_bound(sequence));
}

}  // namespace lockstep::worker::agent
