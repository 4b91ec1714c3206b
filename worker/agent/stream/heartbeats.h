// The daemon's heartbeats on one stream after the other.
//
// Belongs to the event loop's thread.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_HEARTBEATS_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_HEARTBEATS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "common/base/clock.h"
#include "common/model/node.h"
#include "common/wire/worker_wire.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"

namespace lockstep {

// Source of a heartbeat's content.
class HeartbeatSource {
 public:
  virtual ~HeartbeatSource() = default;
  // Takes the readings of the node. The next call has their GPU errors again
  // only if ReturnErrors gave them back.
  virtual NodeReadings TakeReadings() = 0;
  // Errors that may not have reached the coordinator, to be taken again.
  virtual void ReturnErrors(const std::vector<GpuError>& errors) = 0;
  // How far the ranks are that run.
  virtual std::vector<GangProgress> Progress() = 0;
};

class Heartbeats {
 public:
  // Pointers are borrowed. `lost` is called, instead of the next heartbeat,
  // when the coordinator takes heartbeats and answers none.
  Heartbeats(EventLoop* loop, HeartbeatSource* source,
             std::function<void(const NodeHeartbeat&)> send,
             std::function<void()> lost);

  // A new stream, on which nothing was sent so far.
  void Reset();
  // The stream is open: beats now, and each `interval` from then on.
  void Start(Duration interval);
  void Stop();
  void OnAck(uint64_t sequence);

 private:
  void Beat();

  EventLoop* const loop_;
  HeartbeatSource* const source_;
  const std::function<void(const NodeHeartbeat&)> send_;
  const std::function<void()> lost_;
  Duration interval_{};
  uint64_t timer_ = 0;
  uint64_t sequence_ = 0;
  uint64_t acknowledged_ = 0;
  // By number, heartbeats that were not answered yet: when they were sent, and
  // the errors of GPUs in them.
  std::map<uint64_t, MonoTime> unanswered_;
  std::map<uint64_t, std::vector<GpuError>> unanswered_errors_;
  std::optional<Duration> round_trip_;
  Lifetime lifetime_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_HEARTBEATS_H_
