#include "common/model/reduction_plan.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "common/base/hash.h"

namespace lockstep {
namespace {

constexpr std::string_view kHead = "lockstep-reduction-plan";
constexpr uint64_t kVersion = 1;
constexpr uint64_t kMaxRanks = 65'536;
// A short text must not expand to an order that fills the memory.
constexpr uint64_t kMaxParameters = 1 << 20;
constexpr uint64_t kMaxBucketBytes = uint64_t{1} << 40;
constexpr uint64_t kMaxStep = uint64_t{1} << 53;
constexpr std::string_view kNoLine = "none";

// "13-10 8 9 7-0".
std::string FormatRuns(const std::vector<uint32_t>& order) {
  std::string text;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    const auto step = [&](size_t i) {
      return int64_t{order[i]} - int64_t{order[i - 1]};
    };
    if (end < order.size() && (step(end) == 1 || step(end) == -1)) {
      const int64_t by = step(end);
      while (end < order.size() && step(end) == by) ++end;
    }
    if (!text.empty()) text += ' ';
    text += std::to_string(order[begin]);
    if (end - begin > 1) text += "-" + std::to_string(order[end - 1]);
    begin = end;
  }
  return text;
}

// Everything except the hash.
std::string Body(const ReductionPlan& plan) {
  std::string text = fmt::format(
      "{} {}\nranks {}\nhosts {}\nwire {}\ncommunicator {}\n"
      "buckets {} {} {}\nparameters {}\nlayout {}\n",
      kHead, kVersion, plan.ranks, plan.hosts, plan.wire,
      plan.communicator.empty() ? kNoLine : plan.communicator,
      plan.bucket_bytes, plan.first_bucket_bytes, plan.last_bucket_bytes,
      plan.parameters, plan.layout);
  if (!plan.order.empty()) {
    text += fmt::format("learned-at {}\norder {}\n", plan.learned_at,
                        FormatRuns(plan.order));
  }
  return text;
}

std::string Hash(std::string_view text) {
  return fmt::format("{:016x}", Fnv1a(text));
}

// Makes the text safe for a sentence.
std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 40)) {
    out += c >= ' ' && c <= '~' ? c : '?';
  }
  return out + (text.size() > 40 ? "...'" : "'");
}

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= ' ' && c <= '~'; });
}

bool IsHex64(std::string_view text) {
  return text.size() == 16 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool ReadNumber(std::string_view text, uint64_t* out) {
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && next == end && !text.empty();
}

std::string_view CutWord(std::string_view* text) {
  const size_t space = text->find(' ');
  const std::string_view word = text->substr(0, space);
  text->remove_prefix(space == text->npos ? text->size() : space + 1);
  return word;
}

// The lines by their first word. Keeps the first error.
class Lines {
 public:
  static StatusOr<Lines> Split(std::string_view text) {
    Lines lines;
    bool head = false;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == text.npos ? text.size() : end + 1);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty() || line[0] == '#') continue;
      const std::string_view whole = line;
      const std::string_view key = CutWord(&line);
      if (!head) {
        LOCKSTEP_RETURN_IF_ERROR(CheckHead(whole, key, line));
        head = true;
      } else if (!lines.values_.emplace(key, line).second) {
        return InvalidArgument("the reduction plan has {} twice", Quoted(key));
      }
    }
    if (!head) return InvalidArgument("the reduction plan is empty");
    return lines;
  }

  // Returns "" if it is missing.
  std::string_view Optional(std::string_view key) {
    const auto it = values_.find(key);
    if (it == values_.end()) return {};
    const std::string_view value = it->second;
    values_.erase(it);
    if (value.empty()) Complain(key, value);
    return value;
  }
  std::string_view Text(std::string_view key) {
    if (!values_.contains(key) && status_.ok()) {
      status_ = InvalidArgument("the reduction plan has no '{}'", key);
    }
    return Optional(key);
  }
  uint64_t Number(std::string_view key, uint64_t low, uint64_t high) {
    const std::string_view text = Text(key);
    uint64_t value = 0;
    if (!ReadNumber(text, &value) || value < low || value > high) {
      Complain(key, text);
    }
    return value;
  }
  void Complain(std::string_view key, std::string_view value) {
    if (!status_.ok()) return;
    status_ = InvalidArgument("the reduction plan's '{}' cannot be {}", key,
                              Quoted(value));
  }
  // Includes an error for lines that were not read.
  Status status() const {
    if (!status_.ok() || values_.empty()) return status_;
    return InvalidArgument("{} is not a part of a reduction plan",
                           Quoted(values_.begin()->first));
  }

 private:
  static Status CheckHead(std::string_view line, std::string_view key,
                          std::string_view version) {
    uint64_t number = 0;
    if (key != kHead || !ReadNumber(version, &number)) {
      return InvalidArgument(
          "a reduction plan begins with the line '{} {}', not with {}", kHead,
          kVersion, Quoted(line));
    }
    if (number == kVersion) return OkStatus();
    return InvalidArgument(
        "the reduction plan has version {}, and this program reads version "
        "{}",
        number, kVersion);
  }

  std::map<std::string_view, std::string_view> values_;
  Status status_;
};

// Reads every parameter once.
bool ReadRuns(std::string_view text, size_t parameters,
              std::vector<uint32_t>* order) {
  std::vector<bool> seen(parameters);
  while (!text.empty()) {
    const std::string_view run = CutWord(&text);
    const size_t dash = run.find('-');
    uint64_t first = 0;
    if (!ReadNumber(run.substr(0, dash), &first)) return false;
    uint64_t last = first;
    if (dash != run.npos && !ReadNumber(run.substr(dash + 1), &last)) {
      return false;
    }
    if (first >= parameters || last >= parameters) return false;
    for (uint64_t i = first;; first < last ? ++i : --i) {
      if (seen[i]) return false;
      seen[i] = true;
      order->push_back(static_cast<uint32_t>(i));
      if (i == last) break;
    }
  }
  return order->size() == parameters;
}

void ReadBuckets(Lines* lines, ReductionPlan* plan) {
  const std::string_view text = lines->Text("buckets");
  std::string_view rest = text;
  for (uint64_t* const size : {&plan->bucket_bytes, &plan->first_bucket_bytes,
                               &plan->last_bucket_bytes}) {
    if (!ReadNumber(CutWord(&rest), size) || *size == 0 ||
        *size > kMaxBucketBytes) {
      lines->Complain("buckets", text);
    }
  }
  if (!rest.empty()) lines->Complain("buckets", text);
}

void ReadOrder(Lines* lines, ReductionPlan* plan) {
  const std::string_view order = lines->Optional("order");
  if (order.empty()) return;
  plan->learned_at =
      static_cast<int64_t>(lines->Number("learned-at", 0, kMaxStep));
  if (!ReadRuns(order, plan->parameters, &plan->order)) {
    lines->Complain("order", order);
  }
}

}  // namespace

StatusOr<std::string> Format(const ReductionPlan& plan) {
  std::string text = Body(plan);
  text += fmt::format("hash {}\n", Hash(text));
  if (text.size() <= kMaxReductionPlan) return text;
  return ResourceExhausted(
      "the reduction plan of {} parameters has {} bytes; at most "
      "{} are allowed",
      plan.parameters, text.size(), kMaxReductionPlan);
}

std::string HashOf(const ReductionPlan& plan) { return Hash(Body(plan)); }

StatusOr<ReductionPlan> ParseReductionPlan(std::string_view text) {
  if (text.size() > kMaxReductionPlan) {
    return InvalidArgument(
        "the reduction plan has {} bytes; at most {} are allowed", text.size(),
        kMaxReductionPlan);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Lines lines, Lines::Split(text));
  ReductionPlan plan;
  plan.ranks = static_cast<int32_t>(lines.Number("ranks", 2, kMaxRanks));
  plan.hosts =
      static_cast<int32_t>(lines.Number("hosts", 1, std::max(1, plan.ranks)));
  plan.wire = lines.Text("wire");
  if (plan.wire != "fp32" && plan.wire != "bf16") {
    lines.Complain("wire", plan.wire);
  }
  const std::string_view communicator = lines.Text("communicator");
  if (!IsPrintable(communicator)) {
    lines.Complain("communicator", communicator);
  }
  if (communicator != kNoLine) plan.communicator = communicator;
  ReadBuckets(&lines, &plan);
  plan.parameters =
      static_cast<uint32_t>(lines.Number("parameters", 0, kMaxParameters));
  plan.layout = lines.Text("layout");
  if (!IsHex64(plan.layout)) lines.Complain("layout", plan.layout);
  ReadOrder(&lines, &plan);
  const std::string hash(lines.Optional("hash"));
  LOCKSTEP_RETURN_IF_ERROR(lines.status());
  if (!hash.empty() && hash != HashOf(plan)) {
    return InvalidArgument(
        "the reduction plan was edited: its hash is {}, "
        "not {}; remove the line 'hash' to use it anyway",
        HashOf(plan), Quoted(hash));
  }
  return plan;
}

}  // namespace lockstep
