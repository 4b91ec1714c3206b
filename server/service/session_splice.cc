#include "server/service/session_splice.h"

#include <utility>

#include "common/base/logging.h"
#include "common/rpc/caller.h"
#include "common/rpc/status_conversion.h"
#include "common/wire/session_wire.h"

namespace lockstep::server {

// Both delete themselves at their end.
class SessionSplice::Client final : public SessionClientReactor {
 public:
  Client(grpc::CallbackServerContext* context, WorkPool* pool,
         std::shared_ptr<SessionSplice> splice)
      : pool_(pool),
        caller_(FormatIdentity(CallerOf(*context))),
        splice_(std::move(splice)) {}

  void Start() {
    {
      MutexLock lock(&splice_->mu_);
      splice_->client_ = this;
    }
    StartRead(&splice_->input_);
  }
  // A client that does not read gets the status behind what is on its way.
  void End(const Status& status) { Finish(ToGrpc(status)); }

  void OnReadDone(bool ok) override {
    if (opened_) return splice_->OnInput(ok);
    opened_ = true;
    // It takes the coordinator's lock.
    pool_->Post(caller_, [splice = splice_, ok] { splice->OnOpened(ok); });
  }
  void OnWriteDone(bool ok) override { splice_->OnOutputTaken(ok); }
  void OnCancel() override { splice_->OnClientGone(); }
  void OnDone() override {
    splice_->OnClientDone();
    delete this;
  }

 private:
  WorkPool* const pool_;
  const std::string caller_;
  const std::shared_ptr<SessionSplice> splice_;
  // Reads are serial.
  bool opened_ = false;
};

class SessionSplice::Node final : public SessionNodeReactor {
 public:
  Node(grpc::CallbackServerContext* context, SessionDesk* desk)
      : desk_(desk), caller_(CallerOf(*context)) {}

  void Start() { StartRead(&first_); }

  void OnReadDone(bool ok) override {
    if (splice_ != nullptr) return splice_->OnOutput(ok);
    if (const Status status = Begin(ok); !status.ok()) {
      Finish(ToGrpc(status));
    }
  }
  void OnWriteDone(bool ok) override { splice_->OnInputTaken(ok); }
  void OnDone() override {
    if (splice_ != nullptr) splice_->OnNodeDone();
    delete this;
  }

 private:
  Status Begin(bool ok) {
    if (!ok) return Cancelled("the daemon is gone");
    if (!first_.has_accept()) {
      return InvalidArgument("the first message must be accept");
    }
    if (desk_ == nullptr) return Unimplemented("this server has no sessions");
    LOCKSTEP_ASSIGN_OR_RETURN(auto splice,
                              desk_->Take(first_.accept(), caller_));
    splice_ = std::move(splice);
    if (splice_->Attach(this)) return OkStatus();
    splice_ = nullptr;
    return NotFound("no such session waits: its client is gone");
  }

  SessionDesk* const desk_;
  const pki::Identity caller_;
  v1::SessionOutput first_;
  // Set by the first read; the calls that use it come later.
  std::shared_ptr<SessionSplice> splice_;
};

SessionClientReactor* SessionSplice::ServeClient(
    grpc::CallbackServerContext* context, CallPools* pools, Duration patience,
    Begin begin) {
  const std::shared_ptr<SessionSplice> splice(
      new SessionSplice(pools, patience, std::move(begin)));
  auto* const client = new Client(
      context, pools->streams(CallRoleOf(CallerOf(*context))), splice);
  client->Start();
  return client;
}

SessionNodeReactor* SessionSplice::ServeNode(
    grpc::CallbackServerContext* context, SessionDesk* desk) {
  auto* const node = new Node(context, desk);
  node->Start();
  return node;
}

void SessionSplice::OnOpened(bool ok) {
  Status refused;
  std::unique_ptr<SessionDesk::Ticket> ticket;
  // A copy: the node may be quick, and then the next message is read.
  const v1::SessionRequest open = input_.open();
  if (!ok || !input_.has_open()) {
    refused = InvalidArgument("the first message must be open");
  } else if (auto begun = begin_(open, shared_from_this()); begun.ok()) {
    ticket = *std::move(begun);
  } else {
    refused = begun.status();
  }
  MutexLock lock(&mu_);
  ticket_ = std::move(ticket);
  if (over_ || client_ == nullptr) {
    if (ticket_ != nullptr) ticket_->SetResult(result_);
    ticket_ = nullptr;
    return;
  }
  if (!refused.ok()) return End(refused, SessionResult::kRefused);
  if (node_ != nullptr) return;  // It was quicker than this.
  timer_ = timers_->Set(MonotonicNow() + patience_, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnLate();
  });
}

void SessionSplice::OnLate() {
  MutexLock lock(&mu_);
  if (node_ != nullptr) return;
  End(WithReason(
          Unavailable("the rank's node did not open the session within {}: its "
                      "worker daemon may be older than this coordinator",
                      FormatDuration(patience_)),
          "NODE_SILENT"),
      SessionResult::kBroken);
}

bool SessionSplice::Attach(Node* node) {
  MutexLock lock(&mu_);
  if (over_ || client_ == nullptr) return false;
  if (timer_) timers_->Drop(*timer_);
  timer_.reset();
  node_ = node;
  client_->StartRead(&input_);
  node_->StartRead(&output_);
  return true;
}

void SessionSplice::OnInput(bool ok) {
  MutexLock lock(&mu_);
  // A client that sends no more may still read.
  if (!ok || over_ || node_ == nullptr) return;
  if (const Status status = CheckInput(input_); !status.ok()) {
    return End(status, SessionResult::kClient);
  }
  node_->StartWrite(&input_);
}

void SessionSplice::OnInputTaken(bool ok) {
  MutexLock lock(&mu_);
  // Without ok the node's end follows.
  if (ok && !over_ && client_ != nullptr) client_->StartRead(&input_);
}

void SessionSplice::OnOutput(bool ok) {
  MutexLock lock(&mu_);
  if (over_ || client_ == nullptr || ending_) return;
  if (!ok) {
    return End(
        WithReason(Unavailable("the connection to the rank's node broke"),
                   "NODE_SILENT"),
        SessionResult::kBroken);
  }
  if (output_.has_accept() ||
      output_.output_case() == v1::SessionOutput::OUTPUT_NOT_SET) {
    return node_->StartRead(&output_);
  }
  ending_ = output_.has_end();
  client_->StartWrite(&output_);
}

void SessionSplice::OnOutputTaken(bool ok) {
  MutexLock lock(&mu_);
  if (!ok || over_) return;
  if (ending_) return End(OkStatus(), SessionResult::kEnded);
  if (node_ != nullptr) node_->StartRead(&output_);
}

void SessionSplice::OnClientGone() {
  MutexLock lock(&mu_);
  End(Cancelled("the client went away"), SessionResult::kClient);
}

void SessionSplice::OnClientDone() {
  MutexLock lock(&mu_);
  client_ = nullptr;
  End(Cancelled("the client went away"), SessionResult::kClient);
}

void SessionSplice::OnNodeDone() {
  MutexLock lock(&mu_);
  node_ = nullptr;
  if (ending_) return;
  End(WithReason(Unavailable("the connection to the rank's node broke"),
                 "NODE_SILENT"),
      SessionResult::kBroken);
}

void SessionSplice::End(const Status& status, SessionResult result) {
  if (over_) return;
  over_ = true;
  result_ = result;
  if (timer_) timers_->Drop(*timer_);
  timer_.reset();
  if (ticket_ != nullptr) ticket_->SetResult(result);
  ticket_ = nullptr;
  if (client_ != nullptr) client_->End(status);
  if (node_ != nullptr) {
    node_->Finish(ToGrpc(
        status.ok() ? status
                    : Cancelled("the session has ended: {}", Message(status))));
  }
}

}  // namespace lockstep::server
