// Prints lines of ranks to stdout and stderr. Some of them are unfinished
// (LogLine.partial), such as progress bars and prompts.
//
// On a terminal an unfinished line is the last one on the screen and is
// overwritten until it ends. There is at most one, that of the rank that wrote
// last. On other outputs it is printed as its own line, at most once per second
// for each stream of a rank, and only if it has changed.
#ifndef LOCKSTEP_CLIENT_CLI_LIVE_OUTPUT_H_
#define LOCKSTEP_CLIENT_CLI_LIVE_OUTPUT_H_

#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "client/cli/environment.h"
#include "common/base/mutex.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep::cli {

// Clears the current line of a terminal.
inline constexpr char kClearLine[] = "\r\x1b[K";

// Returns text that fits one terminal line and can be overwritten: without
// control characters and escape sequences, except colours if `colors`.
std::string RedrawableText(std::string_view text, bool colors);

// Thread-safe.
class LiveOutput {
 public:
  // `env` outlives it.
  explicit LiveOutput(CliEnvironment* env) : env_(env) {}
  // Calls Finish.
  ~LiveOutput();
  LiveOutput(const LiveOutput&) = delete;
  LiveOutput& operator=(const LiveOutput&) = delete;

  // Writes `shown`, the formatted `line` with its newline, to stderr if
  // `to_err`, otherwise to stdout. Returns false if it cannot be written.
  bool Write(const v1::LogLine& line, const std::string& shown,
             bool to_err = false);
  // Prints a message of the CLI, with its newline, to stderr between the lines.
  void PrintNote(const std::string& text);
  // Ends the redrawn line and keeps its last state.
  void Finish();

 private:
  // Attempt, rank, stream.
  using Origin = std::tuple<int32_t, int32_t, std::string>;
  struct Printed {
    std::string text;
    MonoTime time;
  };

  std::ostream& Stream(bool to_err) const;
  bool IsTty(bool to_err) const;
  // True if the redrawn line is on the screen that shows `to_err`.
  bool LiveOnScreenOf(bool to_err) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteOnTty(const v1::LogLine& line, const std::string& shown,
                  bool to_err) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WritePlain(const v1::LogLine& line, const std::string& shown,
                  bool to_err) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes full lines, and the redrawn line below them.
  void WriteAbove(const std::string& text, bool to_err)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  CliEnvironment* const env_;
  Mutex mu_;
  // The redrawn text on the terminal, clipped to it, or empty.
  std::string live_ ABSL_GUARDED_BY(mu_);
  Origin live_origin_ ABSL_GUARDED_BY(mu_);
  bool live_on_err_ ABSL_GUARDED_BY(mu_) = false;
  // On other outputs: the last states of unfinished lines.
  std::map<Origin, Printed> printed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_LIVE_OUTPUT_H_
