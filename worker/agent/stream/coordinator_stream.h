// The daemon's stream to the coordinator: connects, registers, reconnects,
// follows one coordinator, sends heartbeats and ships logs.
//
// Everything runs on the event loop's thread unless noted otherwise.
#ifndef LOCKSTEP_WORKER_AGENT_STREAM_COORDINATOR_STREAM_H_
#define LOCKSTEP_WORKER_AGENT_STREAM_COORDINATOR_STREAM_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/wire/worker_wire.h"
#include "lockstep/v1/worker.pb.h"
#include "worker/agent/host/daemon_setup.h"
#include "worker/agent/loop/event_loop.h"
#include "worker/agent/loop/lifetime.h"
#include "worker/agent/stream/coordinator_client.h"
#include "worker/agent/stream/heartbeats.h"
#include "worker/agent/stream/log_shipper.h"
#include "worker/agent/stream/obeyed_point.h"
#include "worker/agent/stream/reconnects.h"

namespace lockstep::worker::agent {

struct StreamOptions {
  // Names the certificate that is expired or not yet valid, after the
  // connection ended with this status; may take half a second, and runs on a
  // thread of its own. May be empty.
  std::function<Status(const Status&)> check_dates;
  // First and longest wait before a reconnect.
  Duration reconnect_first = std::chrono::milliseconds(100);
  Duration reconnect_most = std::chrono::seconds(1);
  // Timeout of the answer to Register.
  Duration welcome_timeout = std::chrono::seconds(10);
};

// Callbacks into the rest of the daemon, on the loop's thread.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // Fills in the daemon's full report: gangs, working directories, and the port
  // for probes.
  virtual void FillRegistration(Registration* registration) = 0;
  // The coordinator is followed, and Send reaches it. `other_epoch` is set if
  // its epoch differs from the last one.
  virtual void OnWelcome(bool other_epoch) = 0;
  // Any message that does not concern the stream itself. `stream` is its
  // number.
  virtual void OnMessage(uint64_t stream,
                         const v1::CoordinatorMessage& message) = 0;
  // The coordinator has answered what was sent at `sent` (BootNanos): this node
  // is not alone.
  virtual void OnContact(int64_t sent) = 0;
  // Another daemon has registered as this node. `cloned`: it runs on another
  // host, so all ranks here must end.
  virtual void OnReplaced(bool cloned) = 0;
};

class CoordinatorStream {
 public:
  // Pointers are borrowed.
  CoordinatorStream(const DaemonSetup* setup, const StreamOptions& options,
                    EventLoop* loop, FileSystem* files, LogShipper* logs,
                    HeartbeatSource* source, StreamHandler* handler);

  // Reads which coordinator was followed. DataLoss if the record is damaged.
  Status Load() { return obeyed_.Load(); }
  // Create the client with these; its events are posted to the loop.
  CoordinatorClient::Events ClientEvents();
  // Connects through `client`, which is borrowed.
  void Start(CoordinatorClient* client);
  bool started() const { return client_ != nullptr; }
  // Reconnects, so that Register carries the changes. Sends nothing before
  // Start.
  void Reregister();

  // Drops the message if no stream is open: Register then sends the full state.
  void Send(const v1::WorkerMessage& message);
  // Sends if `stream` is still open: an answer is valid only on the stream of
  // its request.
  void Answer(uint64_t stream, const v1::WorkerMessage& message);
  // Sends new bytes of the ranks' logs.
  void ShipLogs();
  // Sends a heartbeat now if the stream is open.
  void Beat() { heartbeats_.BeatNow(); }

  // Returns whether to follow an order of this epoch from the welcomed
  // coordinator. If not, Ready returns the reason.
  bool Obeys(uint64_t epoch);
  void NoteVersion(int64_t version) { obeyed_.NoteVersion(version); }

  bool welcomed() const { return state_ == State::kWelcomed; }
  // Number of broken streams.
  uint64_t reconnects() const { return reconnects_.broken(); }
  // ABORTED: another daemon has registered as this node.
  const Status& fatal() const { return fatal_; }
  // Unavailable while the coordinator has not admitted this daemon,
  // FailedPrecondition while this daemon does not follow the coordinator that
  // answers. Safe from any thread.
  Status Ready() const { return ready_.Get(); }

 private:
  // kOpen: Register is sent or on its way.
  enum class State { kClosed, kOpen, kWelcomed };

  // Safe from any thread.
  class Readiness {
   public:
    Readiness();
    Status Get() const ABSL_LOCKS_EXCLUDED(mu_);
    void Set(Status status) ABSL_LOCKS_EXCLUDED(mu_);

   private:
    mutable Mutex mu_;
    Status status_ ABSL_GUARDED_BY(mu_);
  };

  void Connect();
  void OnMessage(uint64_t stream, const v1::CoordinatorMessage& message);
  void OnClosed(uint64_t stream, const Status& status);
  void OnWelcome(const WelcomeInfo& welcome);
  void Refuse(const Status& status);

  const DaemonSetup* const setup_;
  const Duration welcome_timeout_;
  EventLoop* const loop_;
  LogShipper* const logs_;
  StreamHandler* const handler_;
  CoordinatorClient* client_ = nullptr;
  ObeyedPoint obeyed_;
  Heartbeats heartbeats_;
  Readiness ready_;
  State state_ = State::kClosed;
  uint64_t stream_ = 0;
  uint64_t welcome_timer_ = 0;
  Status fatal_;
  Lifetime lifetime_;
  Reconnects reconnects_;  // Last: it has a thread.
};

// Logs a malformed message of the coordinator.
void LogMalformed(const Status& status);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_STREAM_COORDINATOR_STREAM_H_
