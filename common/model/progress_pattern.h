// The expression of a job for log lines that show progress.
#ifndef LOCKSTEP_COMMON_MODEL_PROGRESS_PATTERN_H_
#define LOCKSTEP_COMMON_MODEL_PROGRESS_PATTERN_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace re2 {
class RE2;
}

namespace lockstep {

// Pure; safe from any thread.
class ProgressPattern {
 public:
  // InvalidArgument unless `text` is an expression of RE2 that is not empty
  // and has at most kMaxGroups groups.
  static StatusOr<ProgressPattern> Make(const std::string& text);
  static constexpr int kMaxGroups = 8;

  // Returns what the groups match in `line`; nullopt if it does not match.
  std::optional<std::vector<std::string>> Match(std::string_view line) const;
  bool has_groups() const { return groups_ > 0; }

 private:
  explicit ProgressPattern(std::shared_ptr<const re2::RE2> expression);

  std::shared_ptr<const re2::RE2> expression_;
  int groups_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_MODEL_PROGRESS_PATTERN_H_
