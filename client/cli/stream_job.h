// A job's lines until it has ended, with an eye on Ctrl-C: behind commands
// that submit and stay.
#ifndef LOCKSTEP_CLIENT_CLI_STREAM_JOB_H_
#define LOCKSTEP_CLIENT_CLI_STREAM_JOB_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/cli.h"

namespace lockstep {

struct StreamJobOptions {
  std::string job;
  // Only of these, as in LogOptions; empty: of all.
  std::vector<std::string> tasks;
  // Also what happens to the job, as lines of the task "service".
  bool include_events = false;
  // Also lines that have no end yet.
  bool partial_lines = false;
  // On the thread of the stream; false: nobody reads any more, and it is left
  // (with `cancels`, cancelled) at once and quietly.
  std::function<bool(const v1::LogLine&)> write;
  // Says a sentence, with its newline, on stderr, from any thread. Unset: it is
  // written there at once.
  std::function<void(const std::string&)> say;
  // Ctrl-C cancels the job and waits for its end; else it leaves it running.
  bool cancels = false;
  // With `cancels`: the next signal leaves it at once, whatever it does then.
  // CliEnvironment::signals must hold them back.
  bool leaves_at_second = false;
  // Says on stderr why the job waits for its place.
  bool tells_waiting = false;
};

// The job in its final state, without value when it goes on and we were
// interrupted, or when nobody reads any more. Where lines of a node that is gone do not come, it ends without
// them a moment after the job did.
// Errors: those of StreamLogs and GetJob.
StatusOr<std::optional<v1::Job>> StreamJob(const Cli& cli, Client* client,
                                           const StreamJobOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_STREAM_JOB_H_
