// Rank 0's part of the agreement.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "worker/runtime/order_book.h"
#include "worker/runtime/order_text.h"

namespace lockstep::worker::runtime {
namespace {

using std::chrono::seconds;

// A program that asks does so after each step.
constexpr Duration kUnasked = seconds(5);
constexpr Duration kUnjoined = seconds(20);
constexpr Duration kUnanswered = seconds(10);
constexpr int kMaxTries = 12;
constexpr int kTriesOfSilence = 4;
// The first proposal is this far ahead; each next one twice as far.
constexpr double kAheadSeconds = 1;
constexpr int kMaxDoublings = 6;
constexpr int64_t kMinMargin = 2;
constexpr int64_t kMaxMargin = 1 << 24;
constexpr size_t kKeptSteps = 16;
// Open questions at a time: the link's queue has room for 4,096 messages.
constexpr size_t kOpenQuestions = 256;
// Rank 0's link repeats the newest orders to a daemon that has restarted.
constexpr int64_t kRepeatedOrders = 64;
constexpr size_t kNamedRanks = 8;
constexpr char kNoStep[] =
    "the ranks are at steps too far apart, or too fast, to agree on one";

void Put(std::string key, std::string value, OrderOutput* out) {
  out->messages.push_back(
      {OrderMessage::Kind::kPut, std::move(key), std::move(value)});
}
void Ask(std::string key, OrderOutput* out) {
  out->messages.push_back({OrderMessage::Kind::kAsk, std::move(key)});
}
void Forget(std::string key, OrderOutput* out) {
  out->messages.push_back({OrderMessage::Kind::kForget, std::move(key)});
}

const char* QuestionOf(OrderKind kind) {
  return kind == OrderKind::kStop ? "should_stop()" : "checkpoint_due()";
}

}  // namespace

void OrderSpeaker::Offer(uint32_t id, OrderKind kind, MonoTime now,
                         OrderOutput* out) {
  if (!known_.insert(id).second) return;
  const Directive directive{id, kind, now};
  // What is proposed is decided first.
  if (kind == OrderKind::kStop && !current_) {
    queue_.push_front(directive);
  } else if (kind == OrderKind::kStop) {
    queue_.insert(queue_.begin() + 1, directive);
  } else {
    queue_.push_back(directive);
  }
  TryPropose(now, out);
}

void OrderSpeaker::OnQuestion(OrderKind kind, MonoTime now, OrderOutput* out) {
  if (questions_.insert(kind).second) TryPropose(now, out);
}

void OrderSpeaker::OnStep(int64_t step, MonoTime now, OrderOutput* out) {
  if (!steps_.empty() && step < steps_.back().first) steps_.clear();
  if (steps_.empty() || step > steps_.back().first) {
    steps_.emplace_back(step, now);
    if (steps_.size() > kKeptSteps) steps_.pop_front();
  }
  if (current_ && step >= current_->step) Drop(1, kNoStep, now, out);
}

void OrderSpeaker::OnValue(const std::string& key, const std::string& value,
                           MonoTime now, OrderOutput* out) {
  const std::optional<OrderKey> parsed = ParseOrderKey(key);
  if (!parsed) return;
  if (parsed->kind == OrderKey::Kind::kHere) {
    here_.insert(parsed->rank);
    TryPropose(now, out);
    return;
  }
  if (!current_ || parsed->number != current_->number) return;
  if (parsed->kind == OrderKey::Kind::kProposal) {
    if (value == current_->text) return AskAnswers(out);
    // The number was used by another process of this rank.
    Forget(key, out);
    current_.reset();
    TryPropose(now, out);
  } else if (parsed->kind == OrderKey::Kind::kAnswer) {
    OnAnswer(parsed->rank, value, now, out);
  }
}

void OrderSpeaker::OnAnswer(int rank, const std::string& value, MonoTime now,
                            OrderOutput* out) {
  if (current_->asked.erase(rank) == 0) return;
  Forget(AnswerKey(current_->number, rank), out);
  const std::optional<AnswerText> answer = ParseAnswer(value);
  if (answer && answer->ok && answer->token == place_.token) {
    current_->ok.insert(rank);
    AskAnswers(out);
    if (current_->ok.size() + 1 == static_cast<size_t>(place_.world_size)) {
      Decide(true, out);
      TryPropose(now, out);
    }
    return;
  }
  if (answer) latest_ = std::max(latest_, answer->late);
  Drop(1, kNoStep, now, out);
}

void OrderSpeaker::OnTick(MonoTime now, OrderOutput* out) {
  if (current_) {
    if (now - current_->since < kUnanswered) return;
    Drop(kTriesOfSilence, "no answer came from " + Without(current_->ok), now,
         out);
    return;
  }
  if (queue_.empty()) return;
  const Directive& first = queue_.front();
  const Duration age = now - first.since;
  if (!questions_.contains(first.kind)) {
    // Nothing is asked before the first step, and a checkpoint can wait for it.
    if (age >= kUnasked &&
        (first.kind == OrderKind::kStop || !steps_.empty())) {
      GiveUp(fmt::format("the program does not ask session.{}",
                         QuestionOf(first.kind)),
             out);
    }
  } else if (age >= kUnjoined && !AllHere(out)) {
    GiveUp("no session was joined by " + Without(here_) +
               "; each rank calls lockstep.join()",
           out);
  }
  TryPropose(now, out);
}

void OrderSpeaker::Close(OrderOutput* out) {
  if (current_) Decide(false, out);
  while (!queue_.empty()) GiveUp("rank 0 closes its session", out);
}

void OrderSpeaker::TryPropose(MonoTime now, OrderOutput* out) {
  while (!current_ && !queue_.empty()) {
    const Directive& first = queue_.front();
    if (!questions_.contains(first.kind) || !AllHere(out)) return;
    const int64_t last = steps_.empty() ? 0 : steps_.back().first;
    Proposal proposal;
    proposal.since = now;
    if (place_.world_size == 1) {
      proposal.step = last + 1;
      current_ = std::move(proposal);
      Decide(true, out);
      continue;
    }
    proposal.number = next_number_++;
    proposal.step = std::max(last, latest_) + Margin(first.tries);
    proposal.text = FormatProposal(
        {place_.token, {first.kind, proposal.step, first.id, false}});
    Put(ProposalKey(proposal.number), proposal.text, out);
    Ask(ProposalKey(proposal.number), out);
    current_ = std::move(proposal);
  }
}

bool OrderSpeaker::AllHere(OrderOutput* out) {
  while (next_here_ < place_.world_size &&
         static_cast<size_t>(next_here_ - 1) < here_.size() + kOpenQuestions) {
    Ask(HereKey(next_here_++), out);
  }
  return here_.size() + 1 == static_cast<size_t>(place_.world_size);
}

void OrderSpeaker::AskAnswers(OrderOutput* out) {
  while (current_->next < place_.world_size &&
         current_->asked.size() < kOpenQuestions) {
    current_->asked.insert(current_->next);
    Ask(AnswerKey(current_->number, current_->next++), out);
  }
}

void OrderSpeaker::Decide(bool go, OrderOutput* out) {
  if (place_.world_size > 1) {
    Put(DecisionKey(current_->number), FormatDecision(place_.token, go), out);
    for (const int rank : current_->asked) {
      Forget(AnswerKey(current_->number, rank), out);
    }
    if (const int64_t old = current_->number - kRepeatedOrders; old > 0) {
      Forget(ProposalKey(old), out);
      Forget(DecisionKey(old), out);
    }
  }
  if (go) {
    const Directive& first = queue_.front();
    agreed_.push_back({first.kind, current_->step, first.id, false});
    const bool stop = first.kind == OrderKind::kStop;
    // The coordinator then waits for the ranks to end.
    if (stop) out->done = std::max(out->done, first.id);
    queue_.pop_front();
    // Nothing comes after a stop.
    if (stop) queue_.clear();
  }
  current_.reset();
}

void OrderSpeaker::Drop(int tries, const std::string& why, MonoTime now,
                        OrderOutput* out) {
  Decide(false, out);
  Directive& first = queue_.front();
  first.tries += tries;
  if (first.tries >= kMaxTries) GiveUp(why, out);
  std::stable_partition(queue_.begin(), queue_.end(), [](const Directive& d) {
    return d.kind == OrderKind::kStop;
  });
  TryPropose(now, out);
}

void OrderSpeaker::GiveUp(const std::string& why, OrderOutput* out) {
  const Directive& first = queue_.front();
  out->events.push_back(fmt::format("{} {} was given up: {}",
                                    first.kind == OrderKind::kStop
                                        ? "the request to stop"
                                        : "checkpoint request",
                                    first.id, why));
  // Nobody waits for a checkpoint any more. A stop that is not agreed on in
  // time is the coordinator's to make.
  if (first.kind == OrderKind::kCheckpoint) {
    out->done = std::max(out->done, first.id);
  }
  queue_.pop_front();
}

int64_t OrderSpeaker::Margin(int tries) const {
  const int doublings = std::min(tries, kMaxDoublings);
  if (steps_.size() < 2) return kMinMargin << (2 * doublings);
  const Duration time = steps_.back().second - steps_.front().second;
  const double each = std::max(
      1e-6,
      std::chrono::duration<double>(time).count() /
          static_cast<double>(steps_.back().first - steps_.front().first));
  const double ahead = kAheadSeconds * (1 << doublings) / each;
  return std::clamp(static_cast<int64_t>(std::min(ahead, 1e9)) + 1, kMinMargin,
                    kMaxMargin);
}

// "rank 2", "ranks 1, 2", "ranks 1, 2, ..., 8 and 4 others".
std::string OrderSpeaker::Without(const std::set<int>& ranks) const {
  std::vector<std::string> named;
  size_t more = 0;
  for (int rank = 1; rank < place_.world_size; ++rank) {
    if (ranks.contains(rank)) continue;
    if (named.size() < kNamedRanks) {
      named.push_back(std::to_string(rank));
    } else {
      ++more;
    }
  }
  std::string text = fmt::format("rank{} {}", named.size() == 1 ? "" : "s",
                                 fmt::join(named, ", "));
  if (more > 0) text += fmt::format(" and {} others", more);
  return text;
}

}  // namespace lockstep::worker::runtime
