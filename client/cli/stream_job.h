// Streams a job's lines until it ends and handles Ctrl-C, for commands that
// submit and stay.
#ifndef LOCKSTEP_CLIENT_CLI_STREAM_JOB_H_
#define LOCKSTEP_CLIENT_CLI_STREAM_JOB_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/cli.h"

namespace lockstep::cli {

struct StreamJobOptions {
  std::string job;
  // Only these tasks, as in LogOptions. Empty for all.
  std::vector<std::string> tasks;
  // Includes the job's events as lines of the task "service".
  bool include_events = false;
  // Includes unfinished lines.
  bool partial_lines = false;
  // Called on the stream's thread. False means that the reader is gone:
  // StreamJob then returns (with `cancels`, after cancelling) at once and
  // quietly.
  std::function<bool(const v1::LogLine&)> write;
  // Prints a message, with its newline, on stderr, from any thread. Unset to
  // write there directly.
  std::function<void(const std::string&)> print_note;
  // Ctrl-C cancels the job and waits for its end. Otherwise the job runs on.
  bool cancels = false;
  // With `cancels`: the next signal returns at once. CliEnvironment::signals
  // must hold the signals back.
  bool leaves_at_second = false;
  // Prints on stderr why the job waits for placement.
  bool tells_waiting = false;
};

// Returns the job in its final state. Returns nullopt if it was interrupted
// while the job runs on, or if the reader is gone. If a lost node's lines do
// not arrive, it returns without them shortly after the job's end. Errors:
// those of StreamLogs and GetJob.
StatusOr<std::optional<v1::Job>> StreamJob(const Cli& cli, Client* client,
                                           const StreamJobOptions& options);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_STREAM_JOB_H_
