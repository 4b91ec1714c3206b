// The two calls of one session, joined: JobService.OpenSession of the client
// and WorkerService.ServeSession of the rank's node.
//
//   client reads ---> node writes      one message at a time, each read when
//   client writes <-- node reads       the one before it is written
//
// Either call ends the other. The splice holds no thread. Thread-safe.
#ifndef LOCKSTEP_SERVER_SERVICE_SESSION_SPLICE_H_
#define LOCKSTEP_SERVER_SERVICE_SESSION_SPLICE_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/rpc/call_pools.h"
#include "lockstep/v1/session.pb.h"
#include "server/service/session_desk.h"

namespace lockstep::server {

using SessionClientReactor =
    grpc::ServerBidiReactor<v1::SessionInput, v1::SessionOutput>;
using SessionNodeReactor =
    grpc::ServerBidiReactor<v1::SessionOutput, v1::SessionInput>;

class SessionSplice : public std::enable_shared_from_this<SessionSplice> {
 public:
  // Looks at the first message, on a thread of the caller's pool: gives the
  // session's ticket, or why there is no session. It may be called once.
  using Begin = std::function<StatusOr<std::unique_ptr<SessionDesk::Ticket>>(
      const v1::SessionRequest& open,
      const std::shared_ptr<SessionSplice>& splice)>;

  // Serves a client's call. All but `begin` outlive the call.
  static SessionClientReactor* ServeClient(grpc::CallbackServerContext* context,
                                           CallPools* pools, Duration patience,
                                           Begin begin);
  // Serves a node's call, which finds its splice at the desk; null: none has.
  static SessionNodeReactor* ServeNode(grpc::CallbackServerContext* context,
                                       SessionDesk* desk);

 private:
  class Client;
  class Node;

  SessionSplice(CallPools* pools, Duration patience, Begin begin)
      : timers_(pools->timers()),
        patience_(patience),
        begin_(std::move(begin)) {}

  // Of the client's call.
  void OnOpened(bool ok);
  void OnInput(bool ok);
  void OnOutputTaken(bool ok);
  void OnClientGone();
  void OnClientDone();
  // Of the node's call, which is `node` from Attach on. False: the session has
  // ended meanwhile.
  bool Attach(Node* node);
  void OnOutput(bool ok);
  void OnInputTaken(bool ok);
  void OnNodeDone();

  // Ends both calls.
  void End(const Status& status, SessionResult result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnLate();

  Timers* const timers_;
  const Duration patience_;
  const Begin begin_;
  Mutex mu_;
  // Null after the call's end.
  Client* client_ ABSL_GUARDED_BY(mu_) = nullptr;
  Node* node_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  SessionResult result_ ABSL_GUARDED_BY(mu_) = SessionResult::kClient;
  // The node's last message is on its way to the client.
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<SessionDesk::Ticket> ticket_ ABSL_GUARDED_BY(mu_);
  std::optional<Timers::Id> timer_ ABSL_GUARDED_BY(mu_);
  // Between a read and the write of the same message.
  v1::SessionInput input_;
  v1::SessionOutput output_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SERVICE_SESSION_SPLICE_H_
