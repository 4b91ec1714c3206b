// The keys and values by which ranks agree on orders; see order_book.h. PURE.
#ifndef LOCKSTEP_WORKER_RUNTIME_ORDER_TEXT_H_
#define LOCKSTEP_WORKER_RUNTIME_ORDER_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "worker/runtime/order_book.h"

namespace lockstep::worker::runtime {

std::string HereKey(int rank);
std::string ProposalKey(int64_t number);
std::string AnswerKey(int64_t number, int rank);
std::string DecisionKey(int64_t number);

struct OrderKey {
  enum class Kind { kHere, kProposal, kAnswer, kDecision };
  Kind kind = Kind::kHere;
  int64_t number = 0;  // Of all but kHere.
  int rank = 0;        // Of kHere and kAnswer.
};
// No value: not a key of orders.
std::optional<OrderKey> ParseOrderKey(const std::string& key);

struct ProposalText {
  std::string token;
  AgreedOrder order = {};
};
std::string FormatProposal(const ProposalText& proposal);
std::optional<ProposalText> ParseProposal(const std::string& text);

struct AnswerText {
  std::string token;  // Of the proposal.
  bool ok = false;
  std::string by = {};  // The rank's token.
  int64_t late = 0;     // Its last step, if not ok.
};
std::string FormatAnswer(const AnswerText& answer);
std::optional<AnswerText> ParseAnswer(const std::string& text);

std::string FormatDecision(const std::string& token, bool go);

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_ORDER_TEXT_H_
