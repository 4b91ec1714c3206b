// Following a job: what is written to stderr while it goes. Pure: messages and
// `now` in, text out.
#ifndef LOCKSTEP_CLIENT_CLI_PROGRESS_H_
#define LOCKSTEP_CLIENT_CLI_PROGRESS_H_

#include <map>
#include <optional>
#include <string>

#include "client/cli/text.h"
#include "common/base/clock.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep {

// "step 1,200/2,345 (51 %)  3,170 samples/s  loss 0.4321  eta 1 m 20 s"; what
// is not known is left out.
std::string ProgressText(const v1::JobProgress& progress,
                         bool with_loss = true);
// The same behind a bar; without one where the total is not known or the line
// would be too long. Shorter than `columns`. `note` comes behind the text.
std::string ProgressBar(const v1::JobProgress& progress, int columns,
                        const std::string& note = "");

// How old a report is when it is told: they come once a second.
inline constexpr Duration kStaleProgress = std::chrono::seconds(5);

// On a terminal: one line per finished phase, and a last line that is written
// over and over. Else plain lines: of each finished phase, of a phase that
// lasts (after 1 s), and then every 10 s.
class FollowPrinter {
 public:
  FollowPrinter(bool is_tty, int columns, Style style)
      : is_tty_(is_tty), columns_(columns), style_(style) {}

  // Each returns what to write now, escape sequences and newlines included.
  std::string OnJob(const v1::Job& job, Time now);
  std::string OnProgress(const v1::JobProgress& progress, Time now);
  // The line that a program is writing, such as a progress bar; shown while it
  // runs and says nothing of steps. Empty: none.
  void SetProgramLine(const std::string& line);
  // To be called about 5 times a second.
  std::string OnTick(Time now);
  // A sentence of the caller between the lines.
  std::string Say(const std::string& line);
  // Takes the live line away.
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
  // As the last plain line had it.
  std::string shown_program_line_;
  // When progress_ came.
  MonoTime progress_time_{};
  // By phase: how much of its time was told already.
  std::map<std::string, Duration> told_;
  int attempts_told_ = 0;
  std::optional<MonoTime> last_plain_;
  // The state or its reason changed since the last plain line.
  bool news_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_PROGRESS_H_
