#include "worker/runtime/light_orders.h"

#include <chrono>
#include <utility>

namespace lockstep::worker::runtime {
namespace {

void Offer(const v1::RankDirective& directive, OrderBook* book,
           OrderOutput* out) {
  const MonoTime now = MonotonicNow();
  switch (directive.kind()) {
    case v1::RankDirective::CHECKPOINT:
      return book->OnDirective(directive.id(), OrderKind::kCheckpoint, now,
                               out);
    case v1::RankDirective::STOP:
      return book->OnDirective(directive.id(), OrderKind::kStop, now, out);
    default:
      return;  // Of a newer daemon.
  }
}

}  // namespace

rank_link::RankLinkCallbacks LightOrders::Callbacks() {
  rank_link::RankLinkCallbacks callbacks;
  callbacks.abort = [this](const std::string& why) {
    MutexLock lock(&mu_);
    if (over_.ok()) over_ = Aborted("{}", why);
    changed_.NotifyAll();
  };
  callbacks.directive = [this](const v1::RankDirective& directive) {
    {
      MutexLock lock(&mu_);
      open_[directive.id()] = directive;
      if (!book_) return;
    }
    Tell([&](OrderBook* book, OrderOutput* out) {
      Offer(directive, book, out);
    });
  };
  callbacks.value = [this](const std::string& key, const std::string& value) {
    Tell([&](OrderBook* book, OrderOutput* out) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      // What another recovery asked for is over.
      if (!key.starts_with(prefix_)) return;
      book->OnValue(key.substr(prefix_.size()), value, MonotonicNow(), out);
    });
  };
  callbacks.tick = [this] {
    Tell([](OrderBook* book, OrderOutput* out) {
      book->OnTick(MonotonicNow(), out);
    });
  };
  return callbacks;
}

void LightOrders::Start(rank_link::RankLink* link, const OrderPlace& place) {
  MutexLock lock(&mu_);
  link_ = link;
  Begin(place, -1);
}

void LightOrders::Restart(const OrderPlace& place, uint32_t recovery,
                          int64_t step) {
  MutexLock lock(&mu_);
  if (!book_) return;
  prefix_ = fmt::format("recovery/{}/", recovery);
  Begin(place, step);
  changed_.NotifyAll();
}

void LightOrders::Begin(const OrderPlace& place, int64_t step) {
  book_.emplace(place);
  OrderOutput out;
  book_->Start(&out);
  if (step >= 0) book_->OnStep(step, MonotonicNow(), &out);
  for (const auto& [id, directive] : open_) Offer(directive, &*book_, &out);
  Send(out);
}

void LightOrders::OnStep(int64_t step) {
  Tell([&](OrderBook* book, OrderOutput* out) {
    book->OnStep(step, MonotonicNow(), out);
  });
}

void LightOrders::OnSaved(int64_t step) {
  Tell([&](OrderBook* book, OrderOutput* out) { book->OnSaved(step, out); });
}

StatusOr<bool> LightOrders::Ask(OrderKind question) {
  MutexLock lock(&mu_);
  std::optional<MonoTime> deadline;
  while (book_) {
    const MonoTime now = MonotonicNow();
    OrderOutput out;
    const OrderAnswer answer = book_->Ask(question, now, &out);
    Send(out);
    if (answer != OrderAnswer::kWait) return answer == OrderAnswer::kYes;
    LOCKSTEP_RETURN_IF_ERROR(over_);
    if (!deadline) deadline = now + kDecisionTime;
    if (now >= *deadline) {
      return DeadlineExceeded(
          "the chief has proposed an order for this step, and its decision did "
          "not arrive within {}: is the worker daemon running, and does it "
          "reach the coordinator?",
          FormatDuration(kDecisionTime));
    }
    changed_.WaitUntil(&mu_, *deadline);
  }
  if (deadline) return FailedPrecondition("the session was closed");
  return false;
}

void LightOrders::Close() {
  Tell([](OrderBook* book, OrderOutput* out) { book->Close(out); });
  MutexLock lock(&mu_);
  book_.reset();
  link_ = nullptr;
  changed_.NotifyAll();
}

void LightOrders::Tell(
    const std::function<void(OrderBook*, OrderOutput*)>& event) {
  MutexLock lock(&mu_);
  if (!book_) return;
  OrderOutput out;
  event(&*book_, &out);
  Send(out);
  changed_.NotifyAll();
}

// The link's errors say that the generation is over; so does `over_`.
void LightOrders::Send(const OrderOutput& out) {
  for (const OrderMessage& message : out.messages) {
    switch (message.kind) {
      case OrderMessage::Kind::kPut:
        (void)link_->Put(prefix_ + message.key, message.value);
        break;
      case OrderMessage::Kind::kAsk:
        link_->Ask(prefix_ + message.key);
        break;
      case OrderMessage::Kind::kForget:
        link_->Forget(prefix_ + message.key);
        break;
    }
  }
  for (const std::string& event : out.events) {
    v1::RankReport report;
    report.set_event(event);
    link_->Report(report);
  }
  if (out.done > 0) {
    open_.erase(open_.begin(), open_.upper_bound(out.done));
    v1::RankReport report;
    report.set_directive_done(out.done);
    link_->Report(report);
  }
}

}  // namespace lockstep::worker::runtime
