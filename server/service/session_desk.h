// Joins a client's session in a rank with the node that serves it.
//
// A client's call waits here until the daemon of the rank's node, which gets an
// order on its stream, opens a call of its own. Then the two are one: a message
// is read from one side when the other side has taken the one before it, so a
// session keeps at most one message of each direction, besides what gRPC's flow
// control lets arrive: up to 16 MiB on a fast line.
//
// Thread-safe.
#ifndef LOCKSTEP_SERVER_SERVICE_SESSION_DESK_H_
#define LOCKSTEP_SERVER_SERVICE_SESSION_DESK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/model/session.h"
#include "common/pki/identity.h"
#include "server/metrics/session_metrics.h"

namespace lockstep::server {

class SessionSplice;

enum class SessionKind { kCommand, kTerminal, kPort, kProfile };
inline constexpr size_t kSessionKinds = 4;
std::string_view Name(SessionKind kind);
SessionKind KindOf(const SessionRequest& request);

// How a session ended.
enum class SessionResult {
  kEnded,    // By itself: the command has ended, or could not start.
  kClient,   // The client went away.
  kRefused,  // It was not allowed, or beyond a limit, or its rank did not run.
  kBroken,   // The node did not answer, or the connection to it broke.
};
inline constexpr size_t kSessionResults = 4;
std::string_view Name(SessionResult result);

struct SessionCounts {
  std::array<int64_t, kSessionKinds> open = {};
  std::array<std::array<uint64_t, kSessionResults>, kSessionKinds> ended = {};
};

struct SessionDeskOptions {
  // For the node, from its order to its call.
  Duration patience = std::chrono::seconds(10);
  // Open sessions.
  size_t of_job = 64;
  size_t of_user = 64;
  size_t of_node = 64;
};

class SessionDesk {
 public:
  explicit SessionDesk(SessionDeskOptions options = {}) : options_(options) {}

  // A daemon's stream. `send` queues, and may be called for a moment after
  // Disconnect. A later stream of the node replaces it.
  using Connection = uint64_t;
  Connection Connect(const NodeName& node,
                     std::function<void(const SessionOrder&)> send);
  // Sessions that are joined go on: they have calls of their own.
  void Disconnect(Connection connection);

  // What counts against the limits.
  struct Place {
    std::string user;
    std::string job_uid;
    NodeName node;
  };
  // A session from its order to its end.
  class Ticket {
   public:
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    // The last call counts.
    void SetResult(SessionResult result) { result_ = result; }

   private:
    friend class SessionDesk;
    Ticket(SessionDesk* desk, uint64_t id, SessionKind kind, Place place)
        : desk_(desk), id_(id), kind_(kind), place_(std::move(place)) {}
    SessionDesk* const desk_;
    const uint64_t id_;
    const SessionKind kind_;
    const Place place_;
    // Only the owner's thread, one at a time.
    SessionResult result_ = SessionResult::kBroken;
  };
  // Sends the node its order, without the id, which is set here; the node's
  // call will find `splice`. ResourceExhausted (reason TOO_MANY_SESSIONS);
  // Unavailable (reason NODE_SILENT). The desk outlives the ticket.
  StatusOr<std::unique_ptr<Ticket>> Open(
      SessionOrder order, Place place,
      const std::shared_ptr<SessionSplice>& splice);
  // Gives the waiting session to the call of a node. NotFound: its client is
  // gone, or the node was too late. PermissionDenied: it is another node's.
  StatusOr<std::shared_ptr<SessionSplice>> Take(uint64_t id,
                                                const pki::Identity& node);

  // Counts a session that never had a ticket.
  void CountRefused(SessionKind kind);
  SessionCounts Counts() const;
  // The same for /metrics.
  std::vector<SessionFigures> Figures() const;
  const SessionDeskOptions& options() const { return options_; }

 private:
  struct Peer {
    NodeName node;
    std::function<void(const SessionOrder&)> send;
  };
  struct Waiting {
    NodeName node;
    std::weak_ptr<SessionSplice> splice;
  };
  Status CheckLimits(const Place& place) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End(const Ticket& ticket);

  const SessionDeskOptions options_;
  mutable Mutex mu_;
  Connection next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<Connection, Peer> peers_ ABSL_GUARDED_BY(mu_);
  std::map<NodeName, Connection> nodes_ ABSL_GUARDED_BY(mu_);
  // By id.
  std::map<uint64_t, Waiting> waiting_ ABSL_GUARDED_BY(mu_);
  // Open sessions, without zero entries.
  std::map<std::string, size_t> of_job_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, size_t> of_user_ ABSL_GUARDED_BY(mu_);
  std::map<NodeName, size_t> of_node_ ABSL_GUARDED_BY(mu_);
  SessionCounts counts_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_SESSION_DESK_H_
