#include "worker/agent/progress/step_lines.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace lockstep::worker::agent {
namespace {

// Longer lines are no progress bars.
constexpr size_t kLongestLine = 512;
constexpr size_t kKeys = 16;

// The first that matches names the step; all of them make the key. Where they
// have two groups, the second is the total.
constexpr const char* kPatterns[] = {
    // tqdm: " 45%|####  | 450/1000 [00:10<00:12, 43.2it/s]", "450it [00:10".
    R"((\d[\d.]*[kKMG]?)/(\d[\d.]*[kKMG]?|\?) *\[(?:\d+:)?\d+:\d\d)",
    R"((\d[\d.]*[kKMG]?)it \[(?:\d+:)?\d+:\d\d)",
    // Lightning's rich bar: "Epoch 0/4 ---- 120/938 0:00:02 * 0:00:16".
    R"((\d+)/(\d+) \d+:\d\d:\d\d )",
    // Keras: "120/938 ----- 2:35 166ms/step", "120/938 [==>...] - ETA: 3s",
    // "938/938 - 4s - 3ms/step".
    R"((?:^|\s)(\d+)/(\d+|Unknown) +(?:[^\x00-\x7f]|\[[=>.]|- \d|\d+s ))",
    (R"((?i)(?:^|[^a-z0-9_])(?:(?:global|train|training|optimizer)[_ ]?)?)"
     R"((?:steps?|iter|iters|iterations?|batch|batches|updates?))"
     R"(["']? *[:=#]? *[(\[]? *(\d[\d.,]*)(?: *(?:/|of) *(\d+))?)"),
    // "[ 640/60000 (1%)]".
    R"(\[ *(\d+) */ *(\d+)[^\d/])",
    (R"((?i)(?:^|[^a-z0-9_])(?:epochs?|episodes?|rounds?))"
     R"(["']? *[:=#]? *[(\[]? *(\d[\d.]*)(?: *(?:/|of) *(\d+))?)"),
    // CLU of JAX: "[1200] loss=0.3".
    R"(^\s*(?:[IWE]\d{4} .*\] )?\[(\d+)\] )",
};

const std::vector<ProgressPattern>& Patterns() {
  static const auto& patterns = *[] {
    auto* all = new std::vector<ProgressPattern>();
    for (const char* text : kPatterns) {
      StatusOr<ProgressPattern> pattern = ProgressPattern::Make(text);
      if (pattern.ok()) all->push_back(*std::move(pattern));
    }
    return all;
  }();
  return patterns;
}

// Without a number's thousands separators; nullopt if it is none.
std::optional<int64_t> NumberOf(std::string text) {
  std::erase(text, ',');
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || value < 0 ||
      value > (int64_t{1} << 53)) {
    return std::nullopt;
  }
  return value;
}

// Without the colours of a terminal.
std::string Plain(std::string_view line) {
  std::string plain;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      plain += line[i];
      continue;
    }
    ++i;  // '[', then parameters up to a letter.
    while (i + 1 < line.size() && (line[i + 1] < '@' || line[i + 1] > '~')) ++i;
    ++i;
  }
  return plain;
}

bool HasDigit(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

void AddTo(const std::vector<std::string>& groups, StepLine* line) {
  for (const std::string& group : groups) line->key += group + ' ';
  if (line->step || groups.empty()) return;
  line->step = NumberOf(groups[0]);
  if (line->step && groups.size() > 1) line->total = NumberOf(groups[1]);
}

}  // namespace

std::optional<StepLine> FindStep(std::string_view line) {
  if (!HasDigit(line)) return std::nullopt;
  const std::string plain = Plain(line);
  StepLine found;
  for (const ProgressPattern& pattern : Patterns()) {
    if (const auto groups = pattern.Match(plain)) AddTo(*groups, &found);
  }
  if (found.key.empty()) return std::nullopt;
  return found;
}

StepScanner::StepScanner(const std::string& pattern) {
  if (pattern.empty()) return;
  StatusOr<ProgressPattern> own = ProgressPattern::Make(pattern);
  if (own.ok()) own_ = *std::move(own);
}

std::optional<StepLine> StepScanner::Match(std::string_view line) const {
  if (!own_) return FindStep(line);
  const auto groups = own_->Match(Plain(line));
  if (!groups) return std::nullopt;
  StepLine found;
  AddTo(*groups, &found);
  return found;
}

bool StepScanner::TakeLine(std::string_view line) {
  const std::optional<StepLine> found = Match(line.substr(0, kLongestLine));
  if (!found) return false;
  if (found->step) {
    step_ = found->step;
    total_ = found->total;
  }
  const bool each = own_ && !own_->has_groups();
  if (!each) {
    if (std::find(keys_.begin(), keys_.end(), found->key) != keys_.end()) {
      return false;
    }
    keys_.push_back(found->key);
    if (keys_.size() > kKeys) keys_.pop_front();
  }
  if (own_) return true;
  return ++seen_ > kUnsure;
}

bool StepScanner::Take(std::string_view text) {
  bool shows = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());
    shows = TakeLine(text.substr(0, end)) || shows;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return shows;
}

}  // namespace lockstep::worker::agent
