// Calls that hold no thread while they wait.
//
// What a call sends or takes is handled piece by piece by a StreamSource, on a
// pool of its caller's role (common/rpc/call_pools.h). It is asked for the next
// piece when the reader has taken the one before, so a slow reader has one
// message in memory and the source decides how far it may fall behind. Between
// pieces the source sleeps until StreamPeer::Wake, or until a time that it
// says.
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

namespace lockstep {

// What a source wants to happen next.
struct StreamStep {
  enum class Kind {
    kSend,   // The message that was filled.
    kRead,   // The client's next message, in the same place.
    kAgain,  // Nothing yet: ask again after others had their turn.
    kSleep,  // Nothing until it is woken, or until `wake`.
    kEnd,    // The call is over, with `status`; a unary one's answer is filled.
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

// The stream as its source knows it. Thread-safe.
class StreamPeer {
 public:
  virtual ~StreamPeer() = default;
  // There is news: Next is called, soon, once for any number of these. Never
  // blocks and may be called with any lock that Next takes.
  virtual void Wake() = 0;
  // The client is gone.
  virtual bool IsCancelled() const = 0;
  // Ends the call, as one whose client is gone. Any lock as for Wake.
  virtual void Cancel() = 0;
};

template <typename Message>
class StreamSource {
 public:
  virtual ~StreamSource() = default;
  // One call of either at a time, on a thread of the pool; they may read files
  // and take locks. `message` is empty.
  virtual StreamStep Next(Message* message) = 0;
  // What Read asked for; `ended`: there is none, and no more comes.
  virtual StreamStep OnRead(Message* message, bool ended) {
    return ended ? StreamStep::End(OkStatus()) : Next(message);
  }
  // About what it keeps in memory for its reader, beside `message`. Between
  // calls of the others.
  virtual int64_t KeptBytes() const { return 0; }
};

// Drives a source. Base is gRPC's reactor; those below say what a transfer is.
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
    // Where Run is still returning, it has the last word.
    const std::shared_ptr<CallDriver> self = std::move(self_);
  }

  // Once. `make_source` is called with this, which the source calls nothing of
  // after its destruction.
  template <typename MakeSource>
  void Start(const MakeSource& make_source) {
    self_ = this->shared_from_this();
    {
      // A source may be woken before it is made: Run waits until it is here.
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
  // Before the end of a call that is OK.
  virtual void Deliver(Message*) {}
  // After each step but the last one. Not OK: the call ends with it.
  virtual Status Keep(const Source& /*source*/, const Message* /*sent*/) {
    return OkStatus();
  }
  // Before the call ends.
  virtual void Leave() {}
  // A transfer has ended.
  void OnTransferred(bool ok) {
    transferred_ = ok;
    Post();
  }

 private:
  // Run follows. Only who has set busy_, or took it over, posts.
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
      // It stays busy: nothing runs any more.
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

  // Of gRPC: until OnDone.
  grpc::CallbackServerContext* const context_;
  const std::string caller_;
  WorkPool* const pool_;
  Timers* const timers_;
  std::atomic<bool> cancelled_ = false;
  // Until OnDone.
  std::shared_ptr<CallDriver> self_;
  // Run's; there is one at a time, and a transfer is between two.
  std::unique_ptr<Source> source_;
  std::unique_ptr<Message> message_;
  bool reads_ = false;
  // The last transfer was well.
  bool transferred_ = true;
  Mutex mu_;
  // Run is posted or runs, or a transfer is under way, or the call has ended.
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Timers::Id> timer_ ABSL_GUARDED_BY(mu_);
};

// Of a stream that the server sends. `readers`, which outlives the call, holds
// its reader to its limits; null: it has none.
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
    // As it is, and encoded.
    const size_t message = sent == nullptr ? 0 : 2 * sent->ByteSizeLong();
    return reader_->Keep(source.KeptBytes() + static_cast<int64_t>(message));
  }
  void Leave() override { reader_.reset(); }

  std::optional<StreamReaders::Reader> reader_;
};

// Of a stream that the client sends. The source fills the response.
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

// Of a unary call that waits for something before it is answered.
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

// For the return of a callback handler. `pools` outlives the call, and what the
// source needs outlives `pools`.
template <typename Reactor, typename MakeSource, typename... Arguments>
Reactor* StartCall(grpc::CallbackServerContext* context, CallPools* pools,
                   const MakeSource& make_source, Arguments... arguments) {
  const auto call = std::make_shared<Reactor>(context, pools, arguments...);
  call->Start(make_source);
  return call.get();
}

// The end of a call that cannot be served.
template <typename Message>
class RefusedStream final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const Status& status) { this->Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_STREAM_STREAM_REACTOR_H_
