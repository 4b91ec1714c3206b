// Streams that hold no thread while they wait.
//
// A StreamSource handles a call's messages one by one on a pool of the caller's
// role (common/rpc/call_pools.h). It is asked for the next message after the
// reader took the one before. So a slow reader has one message in memory, and
// the source decides how far it may fall behind. Between messages the source
// sleeps until StreamPeer::Wake or a set time.
#ifndef LOCKSTEP_SERVER_STREAM_STREAM_REACTOR_H_
#define LOCKSTEP_SERVER_STREAM_STREAM_REACTOR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/pki/identity.h"
#include "common/rpc/call_pools.h"
#include "common/rpc/caller.h"
#include "common/rpc/end_call.h"
#include "common/rpc/status_conversion.h"
#include "server/stream/stream_readers.h"

namespace lockstep::server {

// A source's next step.
struct StreamStep {
  enum class Kind {
    kSend,   // Send the filled message.
    kRead,   // Read the client's next message into it.
    kAgain,  // Nothing yet; ask again after other calls.
    kSleep,  // Wait for Wake or until `wake`.
    kEnd,    // End with `status`; a unary response is filled.
  };
  Kind kind = Kind::kSleep;
  Status status;
  std::optional<MonoTime> wake = std::nullopt;

  static StreamStep Send() { return {Kind::kSend, OkStatus()}; }
  static StreamStep Read() { return {Kind::kRead, OkStatus()}; }
  static StreamStep Again() { return {Kind::kAgain, OkStatus()}; }
  static StreamStep Sleep(std::optional<MonoTime> wake) {
    return {Kind::kSleep, OkStatus(), wake};
  }
  static StreamStep End(Status status) {
    return {Kind::kEnd, std::move(status)};
  }
};

// The stream as its source sees it. Thread-safe.
class StreamPeer {
 public:
  virtual ~StreamPeer() = default;
  // Next will be called soon, once for any number of wakes. Never blocks, and
  // may be called with any lock that Next takes.
  virtual void Wake() = 0;
  // True if the client is gone.
  virtual bool IsCancelled() const = 0;
  // Ends the call as if the client were gone. Locks as for Wake.
  virtual void Cancel() = 0;
};

template <typename Message>
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  // Calls of the two are serial, on a thread of the pool. They may read files
  // and take locks. `message` is empty.
  virtual StreamStep Next(Message* message) = 0;
  // Gets the message that kRead asked for. `ended`: there are no more.
  virtual StreamStep OnRead(Message* message, bool ended) {
    return ended ? StreamStep::End(OkStatus()) : Next(message);
  }
  // Approximate memory kept for its reader, besides `message`. Called between
  // the other calls.
  virtual int64_t KeptBytes() const { return 0; }
};

// Drives a source. Base is gRPC's reactor; subclasses define a transfer.
template <typename Base, typename Message>
class CallDriver
    : public Base,
      public StreamPeer,
      public std::enable_shared_from_this<CallDriver<Base, Message>> {
 public:
  using Source = StreamSource<Message>;

  void Wake() override {
    MutexLock lock(&mu_);
    woken_ = true;
    if (busy_) return;
    busy_ = true;
    Post();
  }
  bool IsCancelled() const override { return cancelled_; }
  void Cancel() override { context_->TryCancel(); }

  void OnCancel() override {
    cancelled_ = true;
    Wake();
  }
  void OnDone() override {
    // A Run that is still returning may hold the last reference.
    const std::shared_ptr<CallDriver> self = std::move(self_);
  }

  // Called once. `make_source` gets this object, which the source must not use
  // after its destruction.
  template <typename MakeSource>
  void Start(const MakeSource& make_source) {
    self_ = this->shared_from_this();
    {
      // A source may be woken before it exists, so Run waits for it here.
      MutexLock lock(&mu_);
      busy_ = true;
    }
    source_ = make_source(this);
    Post();
  }

 protected:
  CallDriver(grpc::CallbackServerContext* context, CallPools* pools,
             WorkPool* pool)
      : context_(context),
        caller_(FormatIdentity(CallerOf(*context))),
        pool_(pool),
        timers_(pools->timers()) {}

  // Begins to send or read.
  virtual void Transfer(Message*) {}
  // Called before the end of an OK call.
  virtual void Deliver(Message*) {}
  // Called after each step but the last. An error ends the call.
  virtual Status Keep(const Source& /*source*/, const Message* /*sent*/) {
    return OkStatus();
  }
  // Called before the call ends.
  virtual void Leave() {}
  // A transfer has ended.
  void OnTransferred(bool ok) {
    transferred_ = ok;
    Post();
  }

 private:
  // Posts Run. Only the setter or taker of busy_ posts.
  void Post() {
    pool_->Post(caller_, [self = this->shared_from_this()] { self->Run(); });
  }

  StreamStep Step() {
    if (!message_) message_ = std::make_unique<Message>();
    if (cancelled_) {
      return StreamStep::End(Cancelled("the call was cancelled"));
    }
    const bool has_read = std::exchange(reads_, false);
    if (has_read) return source_->OnRead(message_.get(), !transferred_);
    if (!transferred_) {
      return StreamStep::End(Cancelled("the call was cancelled"));
    }
    message_->Clear();
    return source_->Next(message_.get());
  }

  void Run() {
    for (;;) {
      {
        MutexLock lock(&mu_);
        woken_ = false;
      }
      const StreamStep step = Step();
      if (step.kind != StreamStep::Kind::kEnd) {
        const bool sends = step.kind == StreamStep::Kind::kSend;
        const Status kept = Keep(*source_, sends ? message_.get() : nullptr);
        if (!kept.ok()) return End(kept);
      }
      switch (step.kind) {
        case StreamStep::Kind::kRead:
          reads_ = true;
          message_->Clear();
          return Transfer(message_.get());
        case StreamStep::Kind::kSend:
          return Transfer(message_.get());
        case StreamStep::Kind::kAgain:
          return Post();
        case StreamStep::Kind::kEnd:
          return End(step.status);
        case StreamStep::Kind::kSleep:
          break;
      }
      message_.reset();
      MutexLock lock(&mu_);
      if (woken_) continue;
      SetTimer(step.wake);
      busy_ = false;
      return;
    }
  }

  void End(const Status& status) {
    {
      // It stays busy, so nothing runs any more.
      MutexLock lock(&mu_);
      SetTimer(std::nullopt);
    }
    if (status.ok()) Deliver(message_.get());
    Leave();
    source_.reset();
    message_.reset();
    this->Finish(ToGrpc(status));
  }

  void SetTimer(std::optional<MonoTime> wake)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (timer_) timers_->Drop(*timer_);
    timer_.reset();
    if (!wake) return;
    timer_ = timers_->Set(*wake, [weak = this->weak_from_this()] {
      if (const auto self = weak.lock()) self->Wake();
    });
  }

  // Owned by gRPC until OnDone.
  grpc::CallbackServerContext* const context_;
  const std::string caller_;
  WorkPool* const pool_;
  Timers* const timers_;
  std::atomic<bool> cancelled_ = false;
  // Set until OnDone.
  std::shared_ptr<CallDriver> self_;
  // Used by Run only. Runs are serial, and a transfer is between two of them.
  std::unique_ptr<Source> source_;
  std::unique_ptr<Message> message_;
  bool reads_ = false;
  // The last transfer succeeded.
  bool transferred_ = true;
  Mutex mu_;
  // Run is posted or running, a transfer is in progress, or the call has ended.
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Timers::Id> timer_ ABSL_GUARDED_BY(mu_);
};

// For a stream that the server sends. `readers`, which outlives the call,
// applies its limits; null for none.
template <typename Message>
class StreamReactor final
    : public CallDriver<grpc::ServerWriteReactor<Message>, Message> {
 public:
  using Driver = CallDriver<grpc::ServerWriteReactor<Message>, Message>;

  StreamReactor(grpc::CallbackServerContext* context, CallPools* pools,
                StreamReaders* readers = nullptr)
      : Driver(context, pools, pools->streams(CallRoleOf(CallerOf(*context)))) {
    if (readers == nullptr) return;
    reader_.emplace(
        readers, CallerOf(*context),
        [context](const Status& status) { EndCall(context, status); });
  }
  void OnWriteDone(bool ok) override {
    if (reader_) reader_->SetWaiting(false);
    this->OnTransferred(ok);
  }

 private:
  void Transfer(Message* message) override {
    if (reader_) reader_->SetWaiting(true);
    this->StartWrite(message);
  }
  Status Keep(const typename Driver::Source& source,
              const Message* sent) override {
    if (!reader_) return OkStatus();
    // The message itself and its encoded form.
    const size_t message = sent == nullptr ? 0 : 2 * sent->ByteSizeLong();
    return reader_->Keep(source.KeptBytes() + static_cast<int64_t>(message));
  }
  void Leave() override { reader_.reset(); }

  std::optional<StreamReaders::Reader> reader_;
};

// For a stream that the client sends. The source fills in the response.
template <typename Message>
class UploadReactor final
    : public CallDriver<grpc::ServerReadReactor<Message>, Message> {
 public:
  UploadReactor(grpc::CallbackServerContext* context, CallPools* pools)
      : CallDriver<grpc::ServerReadReactor<Message>, Message>(
            context, pools, pools->streams(CallRoleOf(CallerOf(*context)))) {}
  void OnReadDone(bool ok) override { this->OnTransferred(ok); }

 private:
  void Transfer(Message* message) override { this->StartRead(message); }
};

// For a unary call that waits before it answers.
template <typename Message>
class WaitingReactor final
    : public CallDriver<grpc::ServerUnaryReactor, Message> {
 public:
  WaitingReactor(grpc::CallbackServerContext* context, CallPools* pools,
                 Message* response)
      : CallDriver<grpc::ServerUnaryReactor, Message>(
            context, pools, pools->unary(CallRoleOf(CallerOf(*context)))),
        response_(response) {}

 private:
  void Deliver(Message* message) override { response_->Swap(message); }

  Message* const response_;
};

// For the return statement of a callback handler. `pools` outlives the call,
// and the source's dependencies outlive `pools`.
template <typename Reactor, typename MakeSource, typename... Arguments>
Reactor* StartCall(grpc::CallbackServerContext* context, CallPools* pools,
                   const MakeSource& make_source, Arguments... arguments) {
  const auto call = std::make_shared<Reactor>(context, pools, arguments...);
  call->Start(make_source);
  return call.get();
}

// Ends a call that cannot be served.
template <typename Message>
class RefusedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const Status& status) { this->Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STREAM_STREAM_REACTOR_H_
