// The daemon's heartbeats on successive streams.
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

namespace lockstep::worker::agent {

// Source of a heartbeat's content.
class HeartbeatSource {
 public:
  virtual ~HeartbeatSource() = default;
  // Returns the readings of the node. Their GPU errors come again only after
  // ReturnErrors.
  virtual NodeReadings TakeReadings() = 0;
  // Returns errors that may not have reached the coordinator, for the next
  // readings.
  virtual void ReturnErrors(const std::vector<GpuError>& errors) = 0;
  // Returns the progress of running ranks.
  virtual std::vector<GangProgress> Progress() = 0;
};

class Heartbeats {
 public:
  // Pointers are borrowed. Calls `lost` instead of sending the next heartbeat
  // if the coordinator does not answer heartbeats. `answered` is called with
  // the time (BootNanos) at which an answered one, or Register, was sent; may
  // be null.
  Heartbeats(EventLoop* loop, HeartbeatSource* source,
             std::function<void(const NodeHeartbeat&)> send,
             std::function<void()> lost,
             std::function<void(int64_t sent)> answered = nullptr);

  // A new stream begins: Register is about to be sent.
  void Reset();
  // Register was answered, and the stream is open: sends a heartbeat now, and
  // then every `interval`.
  void Start(Duration interval);
  void Stop();
  // Sends one now if they are started.
  void BeatNow() {
    if (timer_ != 0) Beat();
  }
  void OnAck(uint64_t sequence);

 private:
  void Beat();

  EventLoop* const loop_;
  HeartbeatSource* const source_;
  const std::function<void(const NodeHeartbeat&)> send_;
  const std::function<void()> lost_;
  const std::function<void(int64_t)> answered_;
  Duration interval_{};
  uint64_t timer_ = 0;
  int64_t registered_ = 0;
  uint64_t sequence_ = 0;
  uint64_t acknowledged_ = 0;
  // Send times and GPU errors of unanswered heartbeats, by number.
  struct Sent {
    MonoTime mono;
    int64_t boot = 0;
  };
  std::map<uint64_t, Sent> unanswered_;
  std::map<uint64_t, std::vector<GpuError>> unanswered_errors_;
  std::optional<Duration> round_trip_;
  Lifetime lifetime_;
};

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_HEARTBEATS_H_
