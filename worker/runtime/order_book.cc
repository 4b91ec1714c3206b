#include "worker/runtime/order_book.h"

#include <algorithm>

#include "worker/runtime/order_text.h"

namespace lockstep::worker::runtime {

OrderBook::OrderBook(const OrderPlace& place) : place_(place) {
  if (place.rank == 0) speaker_.emplace(place);
}

void OrderBook::Start(OrderOutput* out) {
  if (place_.rank <= 0) return;
  out->messages.push_back(
      {OrderMessage::Kind::kPut, HereKey(place_.rank), place_.token});
  out->messages.push_back(
      {OrderMessage::Kind::kAsk, ProposalKey(next_number_)});
}

void OrderBook::OnDirective(uint32_t id, OrderKind kind, MonoTime now,
                            OrderOutput* out) {
  if (!speaker_) return;
  speaker_->Offer(id, kind, now, out);
  TakeAgreed();
}

void OrderBook::OnStep(int64_t step, MonoTime now, OrderOutput* out) {
  last_step_ = step;
  if (!speaker_) return;
  speaker_->OnStep(step, now, out);
  TakeAgreed();
}

void OrderBook::OnValue(const std::string& key, const std::string& value,
                        MonoTime now, OrderOutput* out) {
  if (speaker_) {
    speaker_->OnValue(key, value, now, out);
    TakeAgreed();
    return;
  }
  const std::optional<OrderKey> parsed = ParseOrderKey(key);
  if (!parsed) return;
  if (parsed->kind == OrderKey::Kind::kProposal) {
    if (parsed->number == next_number_) {
      OnProposal(parsed->number, value, out);
    }
    return;
  }
  const auto it = promises_.find(parsed->number);
  if (it == promises_.end()) return;
  Promise& promise = it->second;
  if (parsed->kind == OrderKey::Kind::kAnswer) {
    // Of an earlier process of this rank: it was asked, and not this one.
    if (value != promise.answer) return Settle(parsed->number, false, out);
    promise.confirmed = true;
  } else if (parsed->kind == OrderKey::Kind::kDecision) {
    if (value != FormatDecision(promise.token, true)) {
      return Settle(parsed->number, false, out);
    }
    promise.go = true;
  }
  if (promise.confirmed && promise.go) Settle(parsed->number, true, out);
}

void OrderBook::OnProposal(int64_t number, const std::string& value,
                           OrderOutput* out) {
  using Kind = OrderMessage::Kind;
  // Rank 0 has decided about the one before, so it has the answer.
  if (!promises_.contains(number - 1)) {
    out->messages.push_back(
        {Kind::kForget, AnswerKey(number - 1, place_.rank)});
  }
  ++next_number_;
  out->messages.push_back({Kind::kAsk, ProposalKey(next_number_)});
  const std::optional<ProposalText> proposal = ParseProposal(value);
  if (!proposal) return;
  AnswerText answer{.token = proposal->token, .by = place_.token};
  answer.ok = last_step_ < proposal->order.step;
  answer.late = std::max<int64_t>(0, last_step_);
  const std::string text = FormatAnswer(answer);
  out->messages.push_back({Kind::kPut, AnswerKey(number, place_.rank), text});
  if (!answer.ok) return;
  promises_[number] = {proposal->order, proposal->token, text};
  out->messages.push_back({Kind::kAsk, AnswerKey(number, place_.rank)});
  out->messages.push_back({Kind::kAsk, DecisionKey(number)});
}

void OrderBook::Settle(int64_t number, bool go, OrderOutput* out) {
  if (go) agreed_.push_back(promises_[number].order);
  promises_.erase(number);
  // Rank 0 has decided, so it has this rank's answer.
  for (std::string key :
       {AnswerKey(number, place_.rank), DecisionKey(number)}) {
    out->messages.push_back({OrderMessage::Kind::kForget, std::move(key)});
  }
}

void OrderBook::OnTick(MonoTime now, OrderOutput* out) {
  if (!speaker_) return;
  speaker_->OnTick(now, out);
  TakeAgreed();
}

void OrderBook::OnSaved(int64_t step, OrderOutput* out) {
  std::erase_if(agreed_, [&](const AgreedOrder& order) {
    if (order.kind == OrderKind::kStop || !order.told || step < order.step) {
      return false;
    }
    out->done = std::max(out->done, order.directive);
    return true;
  });
}

void OrderBook::Close(OrderOutput* out) {
  if (speaker_) speaker_->Close(out);
}

OrderAnswer OrderBook::Ask(OrderKind question, MonoTime now, OrderOutput* out) {
  if (speaker_) {
    speaker_->OnQuestion(question, now, out);
    TakeAgreed();
  }
  const auto concerns = [&](const AgreedOrder& order) {
    return order.step <= last_step_ && (question == OrderKind::kCheckpoint ||
                                        order.kind == OrderKind::kStop);
  };
  for (const auto& [number, promise] : promises_) {
    if (concerns(promise.order)) return OrderAnswer::kWait;
  }
  bool yes = false;
  for (AgreedOrder& order : agreed_) {
    if (!concerns(order)) continue;
    if (question == OrderKind::kStop) return OrderAnswer::kYes;
    yes = yes || !order.told;
    order.told = true;
  }
  // Only rank 0 learns that a checkpoint was saved.
  if (!speaker_) {
    std::erase_if(agreed_, [](const AgreedOrder& order) {
      return order.told && order.kind == OrderKind::kCheckpoint;
    });
  }
  return yes ? OrderAnswer::kYes : OrderAnswer::kNo;
}

void OrderBook::TakeAgreed() {
  for (const AgreedOrder& order : speaker_->TakeAgreed()) {
    agreed_.push_back(order);
  }
}

}  // namespace lockstep::worker::runtime
