// Formats the progress of a followed job for stderr. Pure: messages and `now`
// in, text out.
#ifndef LOCKSTEP_CLIENT_CLI_PROGRESS_H_
#define LOCKSTEP_CLIENT_CLI_PROGRESS_H_

#include <map>
#include <optional>
#include <string>

#include "client/cli/text.h"
#include "common/base/clock.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep::cli {

// "step 1,200/2,345 (51 %)  3,170 samples/s  loss 0.4321  eta 1 m 20 s".
// Unknown parts are omitted.
std::string ProgressText(const v1::JobProgress& progress,
                         bool with_loss = true);
// The same after a bar. The bar is omitted if the total is unknown or the line
// would be too long. Shorter than `columns`. `note` follows the text.
std::string ProgressBar(const v1::JobProgress& progress, int columns,
                        const std::string& note = "");

// Older reports show their age. Reports arrive once per second.
inline constexpr Duration kStaleProgress = std::chrono::seconds(5);

// On a terminal: one line per finished phase, and a last line that is
// overwritten. Otherwise plain lines: one per finished phase, one for a phase
// that lasts longer than 1 s, and then one every 10 s.
class FollowPrinter {
 public:
  FollowPrinter(bool is_tty, int columns, Style style)
      : is_tty_(is_tty), columns_(columns), style_(style) {}

  // Each returns the text to write now, with escape sequences and newlines.
  std::string OnJob(const v1::Job& job, Time now);
  std::string OnProgress(const v1::JobProgress& progress, Time now);
  // The line that a program is writing, such as a progress bar. Shown while it
  // runs and reports no steps. Empty for none.
  void SetProgramLine(const std::string& line);
  // Call it about 5 times per second.
  std::string OnTick(Time now);
  // Returns a message of the caller to print between the lines.
  std::string Note(const std::string& line);
  // Removes the live line.
  std::string Finish();

 private:
  std::string LiveText(Time now) const;
  std::string Line(const std::string& text) const;

  const bool is_tty_;
  const int columns_;
  const Style style_;
  std::optional<v1::Job> job_;
  std::optional<v1::JobProgress> progress_;
  std::string program_line_;
  // The value in the last plain line.
  std::string shown_program_line_;
  // Arrival time of progress_.
  MonoTime progress_time_{};
  // By phase: the time already printed.
  std::map<std::string, Duration> printed_;
  int printed_attempts_ = 0;
  std::optional<MonoTime> last_plain_;
  // The state or its reason changed since the last plain line.
  bool changed_ = false;
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_PROGRESS_H_
