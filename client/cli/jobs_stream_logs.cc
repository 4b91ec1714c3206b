// `lockstep jobs stream-logs`, like gcloud's.
#include <memory>
#include <optional>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/errors.h"
#include "client/cli/find.h"
#include "client/cli/live_output.h"
#include "client/cli/log_text.h"
#include "client/cli/stream_job.h"

namespace lockstep::cli {
namespace {

struct StreamLogsFlags {
  std::string name;
  std::string task;
  // Accepted for compatibility.
  int64_t polling_interval = 60;
  bool allow_multiline = false;
};

// Returns nullopt if it was interrupted while the job runs on.
StatusOr<std::optional<v1::Job>> StreamToEnd(const Cli& cli,
                                             const StreamLogsFlags& options) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  StreamJobOptions stream;
  LOCKSTEP_ASSIGN_OR_RETURN(stream.job, FindJob(client.get(), options.name));
  if (env->end_with_reader) env->end_with_reader();
  stream.include_events = options.task.empty();
  if (!options.task.empty()) stream.tasks = {options.task};
  LiveOutput output(env);
  stream.partial_lines = true;
  stream.write = [&](const v1::LogLine& line) {
    return output.Write(line, FormatStreamedLine(line));
  };
  stream.print_note = [&](const std::string& text) { output.PrintNote(text); };
  return StreamJob(cli, client.get(), stream);
}

// Returns 0 or 1, like gcloud.
StatusOr<int> RunStreamLogs(const Cli& cli, const StreamLogsFlags& options) {
  const auto job = StreamToEnd(cli, options);
  if (job.ok()) {
    if (!*job) return kExitInterrupted;
    return (*job)->state() == v1::JOB_STATE_SUCCEEDED ? 0 : kExitError;
  }
  if (job.status().code() == StatusCode::kInvalidArgument) return job.status();
  *cli.env->err << ErrorLine(job.status()) << "\n";
  return kExitError;
}

}  // namespace

Command JobsStreamLogsCommand(Cli* cli) {
  const auto options = std::make_shared<StreamLogsFlags>();
  Command command = LeafCommand(
      "stream-logs",
      "Stream a job's lines with severity, time and task until it ends",
      "  lockstep jobs stream-logs fashion\n"
      "  lockstep jobs stream-logs fashion --task-name worker-replica-0\n\n"
      "The columns, separated by tabs, are severity, time, task, trial\n"
      "(empty) and message. Events of the job have the task service.\n"
      "Returns 0 if the job SUCCEEDED, otherwise 1.");
  AddJobArgument(&command, &options->name);
  command.Add("--task-name TASK", &options->task,
              "Only this task, as worker-replica-0 (default: all)");
  command.Add("--allow-multiline-logs", &options->allow_multiline,
              "No effect: each line is its own message");
  command.Add("--polling-interval SECONDS", &options->polling_interval,
              "No effect: lines arrive as they are written", AtLeast(1));
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunStreamLogs(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
