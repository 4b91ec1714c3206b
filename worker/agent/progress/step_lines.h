// Finds steps in the log lines of a program: progress bars of tqdm (Lightning,
// Hugging Face), Keras and rich, and lines such as "step 120/1000", "Epoch: 3",
// "[640/60000]" or "{'epoch': 0.5}". A job's own expression replaces these.
// Pure.
#ifndef LOCKSTEP_WORKER_AGENT_PROGRESS_STEP_LINES_H_
#define LOCKSTEP_WORKER_AGENT_PROGRESS_STEP_LINES_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/model/progress_pattern.h"

namespace lockstep::worker::agent {

// What a line says of its program's progress.
struct StepLine {
  // Lines with the same numbers have the same key. Empty: each line is news.
  std::string key;
  std::optional<int64_t> step;
  std::optional<int64_t> total;

  bool operator==(const StepLine&) const = default;
};

// Reads lines of one rank, in order.
class StepScanner {
 public:
  // `pattern` is the job's; empty or unusable: those of common frameworks.
  explicit StepScanner(const std::string& pattern);

  // Takes a line or a part of one; a progress bar has carriage returns in it.
  // Returns whether it shows progress: it names other numbers than the lines
  // before it. Without a pattern of the job the first kUnsure such lines may
  // be settings ("epochs: 10") and do not count.
  bool Take(std::string_view text);
  static constexpr int kUnsure = 2;

  // Of the last line that named a step.
  std::optional<int64_t> step() const { return step_; }
  std::optional<int64_t> total() const { return total_; }

 private:
  bool TakeLine(std::string_view line);
  std::optional<StepLine> Match(std::string_view line) const;

  std::optional<ProgressPattern> own_;
  // Of the newest lines: two that alternate are no progress.
  std::deque<std::string> keys_;
  int seen_ = 0;
  std::optional<int64_t> step_;
  std::optional<int64_t> total_;
};

// What the patterns of common frameworks find in `line`.
std::optional<StepLine> FindStep(std::string_view line);

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_PROGRESS_STEP_LINES_H_
