// The orders of a program's ranks: "save after step S", "stop after step S", at
// the same S on all ranks. PURE.
//
// The coordinator's directive reaches the chief, which speaks for all. Here the
// members of the newest recovery are numbered from 0, and the chief is rank 0.
// It agrees with the others by keys of their rendezvous, which are written
// once:
//
//   order/here/RANK   each other rank, when it joins
//   order/N/p         rank 0's proposal N: "TOKEN KIND STEP ID"
//   order/N/a/RANK    the rank's answer: "TOKEN ok TOKEN-OF-THE-RANK", or
//                     "TOKEN late STEP"
//   order/N/d         rank 0's decision: "TOKEN go" or "TOKEN drop"
//
// A rank answers "ok" only before its step STEP has ended, and from then on it
// answers no question about STEP before it knows the decision. "go" needs the
// ok of every rank, and rank 0 drops a proposal whose step it reaches first. So
// all ranks obey an order at the same step or none does, whatever is late or
// lost: a lost message costs waiting, and no wrong answer.
//
// A second process of a rank in one generation takes no part in the orders of
// the first: it finds another token in the answer, and rank 0 in the proposal.
#ifndef LOCKSTEP_WORKER_RUNTIME_ORDER_BOOK_H_
#define LOCKSTEP_WORKER_RUNTIME_ORDER_BOOK_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"

namespace lockstep::worker::runtime {

enum class OrderKind { kCheckpoint, kStop };

struct OrderMessage {
  enum class Kind {
    kPut,
    // Wants the value, now or later.
    kAsk,
    // The key was put or asked for, and no rank needs it any more.
    kForget,
  };
  Kind kind = Kind::kPut;
  std::string key;
  std::string value = {};
};

// The result of an event; the caller sends it.
struct OrderOutput {
  std::vector<OrderMessage> messages;
  // Sentences for the job's events.
  std::vector<std::string> events;
  // The highest directive that is done: a checkpoint that was saved or given
  // up, or a stop that was agreed on.
  uint32_t done = 0;
};

// All ranks obey it after `step`.
struct AgreedOrder {
  OrderKind kind = OrderKind::kCheckpoint;
  int64_t step = 0;
  uint32_t directive = 0;
  // A question about checkpoints was answered with yes.
  bool told = false;
};

struct OrderPlace {
  int rank = 0;
  int world_size = 1;
  // Random, of this process.
  std::string token;
};

// Rank 0's part: proposals, one at a time.
class OrderSpeaker {
 public:
  explicit OrderSpeaker(OrderPlace place) : place_(std::move(place)) {}

  // A directive, perhaps a repeated one. Stops come first.
  void Offer(uint32_t id, OrderKind kind, MonoTime now, OrderOutput* out);
  // The program asks about orders of `kind`. Without that none is proposed.
  void OnQuestion(OrderKind kind, MonoTime now, OrderOutput* out);
  void OnStep(int64_t step, MonoTime now, OrderOutput* out);
  void OnValue(const std::string& key, const std::string& value, MonoTime now,
               OrderOutput* out);
  void OnTick(MonoTime now, OrderOutput* out);
  // Gives up what is not agreed.
  void Close(OrderOutput* out);

  // Agreed since the last call.
  std::vector<AgreedOrder> TakeAgreed() { return std::exchange(agreed_, {}); }

 private:
  struct Directive {
    uint32_t id = 0;
    OrderKind kind = OrderKind::kCheckpoint;
    MonoTime since;
    int tries = 0;
  };
  struct Proposal {
    int64_t number = 0;
    int64_t step = 0;
    MonoTime since;
    std::string text;
    int next = 1;  // The next rank whose answer is asked for.
    std::set<int> asked;
    std::set<int> ok;
  };

  void TryPropose(MonoTime now, OrderOutput* out);
  // False: not all others have joined yet; they are asked for.
  bool AllHere(OrderOutput* out);
  void AskAnswers(OrderOutput* out);
  void OnAnswer(int rank, const std::string& value, MonoTime now,
                OrderOutput* out);
  void Decide(bool go, OrderOutput* out);
  void Drop(int tries, const std::string& why, MonoTime now, OrderOutput* out);
  void GiveUp(const std::string& why, OrderOutput* out);
  // How many steps ahead the next proposal is.
  int64_t Margin(int tries) const;
  std::string Without(const std::set<int>& ranks) const;

  const OrderPlace place_;
  std::deque<Directive> queue_;
  std::set<uint32_t> known_;
  std::optional<Proposal> current_;
  int64_t next_number_ = 1;
  std::set<int> here_;
  int next_here_ = 1;  // The next rank whose presence is asked for.
  std::set<OrderKind> questions_;
  // The newest steps and when they ended.
  std::deque<std::pair<int64_t, MonoTime>> steps_;
  int64_t latest_ = 0;  // The highest step of another rank that was late.
  std::vector<AgreedOrder> agreed_;
};

enum class OrderAnswer {
  kNo,
  kYes,
  // Not decided yet: ask again after the next value.
  kWait,
};

// The state of one rank. Times are its own monotonic ones.
class OrderBook {
 public:
  explicit OrderBook(const OrderPlace& place);

  // Before all others.
  void Start(OrderOutput* out);
  // Rank 0 only.
  void OnDirective(uint32_t id, OrderKind kind, MonoTime now, OrderOutput* out);
  // Also backwards, where the program resumes from an earlier step.
  void OnStep(int64_t step, MonoTime now, OrderOutput* out);
  // The answer to kAsk.
  void OnValue(const std::string& key, const std::string& value, MonoTime now,
               OrderOutput* out);
  // Every second or so.
  void OnTick(MonoTime now, OrderOutput* out);
  // A checkpoint of `step` is complete. Rank 0 only.
  void OnSaved(int64_t step, OrderOutput* out);
  void Close(OrderOutput* out);

  // About the last step. Checkpoints are due once for each order; a stop makes
  // one due, too.
  OrderAnswer Ask(OrderKind question, MonoTime now, OrderOutput* out);

 private:
  struct Promise {
    AgreedOrder order;
    std::string token;   // Of the proposal.
    std::string answer;  // Of this rank.
    // The answer that counts is this process's.
    bool confirmed = false;
    bool go = false;
  };

  void OnProposal(int64_t number, const std::string& value, OrderOutput* out);
  void Settle(int64_t number, bool go, OrderOutput* out);
  void TakeAgreed();

  const OrderPlace place_;
  std::optional<OrderSpeaker> speaker_;
  int64_t last_step_ = -1;
  int64_t next_number_ = 1;
  std::map<int64_t, Promise> promises_;
  std::vector<AgreedOrder> agreed_;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_ORDER_BOOK_H_
