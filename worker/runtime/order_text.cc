#include "worker/runtime/order_text.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>
#include <vector>

namespace lockstep::worker::runtime {
namespace {

constexpr std::string_view kPrefix = "order/";

std::vector<std::string_view> Split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t at = text.find(by);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// No value: not a decimal number from 0, or too large.
template <typename Number>
std::optional<Number> NumberOf(std::string_view text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number < 0) return std::nullopt;
  return number;
}

}  // namespace

std::string HereKey(int rank) {
  return fmt::format("{}here/{}", kPrefix, rank);
}
std::string ProposalKey(int64_t number) {
  return fmt::format("{}{}/p", kPrefix, number);
}
std::string AnswerKey(int64_t number, int rank) {
  return fmt::format("{}{}/a/{}", kPrefix, number, rank);
}
std::string DecisionKey(int64_t number) {
  return fmt::format("{}{}/d", kPrefix, number);
}

std::optional<OrderKey> ParseOrderKey(const std::string& key) {
  if (!std::string_view(key).starts_with(kPrefix)) return std::nullopt;
  const auto parts = Split(std::string_view(key).substr(kPrefix.size()), '/');
  OrderKey parsed;
  const auto rank = NumberOf<int>(parts.back());
  if (parts.size() == 2 && parts[0] == "here" && rank) {
    parsed.rank = *rank;
    return parsed;
  }
  const auto number = NumberOf<int64_t>(parts[0]);
  if (!number || parts.size() < 2) return std::nullopt;
  parsed.number = *number;
  if (parts.size() == 2 && parts[1] == "p") {
    parsed.kind = OrderKey::Kind::kProposal;
  } else if (parts.size() == 2 && parts[1] == "d") {
    parsed.kind = OrderKey::Kind::kDecision;
  } else if (parts.size() == 3 && parts[1] == "a" && rank) {
    parsed.kind = OrderKey::Kind::kAnswer;
    parsed.rank = *rank;
  } else {
    return std::nullopt;
  }
  return parsed;
}

std::string FormatProposal(const ProposalText& proposal) {
  return fmt::format(
      "{} {} {} {}", proposal.token,
      proposal.order.kind == OrderKind::kStop ? "stop" : "checkpoint",
      proposal.order.step, proposal.order.directive);
}

std::optional<ProposalText> ParseProposal(const std::string& text) {
  const auto parts = Split(text, ' ');
  if (parts.size() != 4) return std::nullopt;
  const auto step = NumberOf<int64_t>(parts[2]);
  const auto id = NumberOf<int64_t>(parts[3]);
  const bool stop = parts[1] == "stop";
  if ((!stop && parts[1] != "checkpoint") || !step || !id) return std::nullopt;
  ProposalText proposal{.token = std::string(parts[0])};
  proposal.order.kind = stop ? OrderKind::kStop : OrderKind::kCheckpoint;
  proposal.order.step = *step;
  proposal.order.directive = static_cast<uint32_t>(*id);
  return proposal;
}

std::string FormatAnswer(const AnswerText& answer) {
  return answer.ok ? fmt::format("{} ok {}", answer.token, answer.by)
                   : fmt::format("{} late {}", answer.token, answer.late);
}

std::optional<AnswerText> ParseAnswer(const std::string& text) {
  const auto parts = Split(text, ' ');
  if (parts.size() != 3) return std::nullopt;
  AnswerText answer{.token = std::string(parts[0])};
  if (parts[1] == "ok") {
    answer.ok = true;
    answer.by = parts[2];
    return answer;
  }
  const auto late = NumberOf<int64_t>(parts[2]);
  if (parts[1] != "late" || !late) return std::nullopt;
  answer.late = *late;
  return answer;
}

std::string FormatDecision(const std::string& token, bool go) {
  return fmt::format("{} {}", token, go ? "go" : "drop");
}

}  // namespace lockstep::worker::runtime
