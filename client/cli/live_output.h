// Lines of ranks on their way to stdout and stderr, of which some have no end
// yet (LogLine.partial): progress bars that are redrawn, prompts.
//
// On a terminal such a line is the last one of the screen and is written over
// until it ends; there is one, that of the rank that wrote last. Elsewhere it
// is a line of its own, at most once a second for each stream of a rank, and
// only when it has changed.
#ifndef LOCKSTEP_CLIENT_CLI_LIVE_OUTPUT_H_
#define LOCKSTEP_CLIENT_CLI_LIVE_OUTPUT_H_

#include <map>
#include <string>
#include <string_view>
#include <tuple>

#include "client/cli/environment.h"
#include "common/base/mutex.h"
#include "lockstep/v1/job.pb.h"

namespace lockstep {

// Clears the current line of a terminal.
inline constexpr char kClearLine[] = "\r\x1b[K";

// What can stand in one line of a terminal and be written over: control
// characters and escape sequences are left out, but for colours where `colors`.
std::string RedrawableText(std::string_view text, bool colors);

// Thread-safe.
class LiveOutput {
 public:
  // `env` outlives it.
  explicit LiveOutput(CliEnvironment* env) : env_(env) {}
  // As Finish.
  ~LiveOutput();
  LiveOutput(const LiveOutput&) = delete;
  LiveOutput& operator=(const LiveOutput&) = delete;

  // Writes `shown`, which is `line` as it should look, with its newline; to
  // stderr with `to_err`, else to stdout. False: it could not be written.
  bool Write(const v1::LogLine& line, const std::string& shown,
             bool to_err = false);
  // A sentence of our own, with its newline, on stderr between the lines.
  void Say(const std::string& text);
  // Ends the line that is redrawn, and keeps its last state.
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
  // Whether the line that is redrawn is on the screen that shows `to_err`.
  bool LiveOnScreenOf(bool to_err) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteOnTty(const v1::LogLine& line, const std::string& shown,
                  bool to_err) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WritePlain(const v1::LogLine& line, const std::string& shown,
                  bool to_err) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes the text of full lines and leaves the line that is redrawn below.
  void WriteAbove(const std::string& text, bool to_err)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  CliEnvironment* const env_;
  Mutex mu_;
  // What is redrawn on the terminal, clipped to it; empty: there is none.
  std::string live_ ABSL_GUARDED_BY(mu_);
  Origin live_origin_ ABSL_GUARDED_BY(mu_);
  bool live_on_err_ ABSL_GUARDED_BY(mu_) = false;
  // Elsewhere: the last states of lines that have no end yet.
  std::map<Origin, Printed> printed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_LIVE_OUTPUT_H_
