#include <fmt/format.h>

#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/follow.h"
#include "client/cli/parse.h"

namespace lockstep::cli {
namespace {

constexpr Duration kCheckpointPoll = std::chrono::milliseconds(200);

struct CheckpointFlags {
  std::string name;
  std::string timeout = "5m";
  bool wait = false;
};

bool IsNewer(const v1::Job& job, const v1::Job& before) {
  if (!job.has_last_checkpoint()) return false;
  if (!before.has_last_checkpoint()) return true;
  const v1::Checkpoint& a = job.last_checkpoint();
  const v1::Checkpoint& b = before.last_checkpoint();
  return a.step() != b.step() || a.generation() != b.generation();
}

// Until a checkpoint is there that was not there `before`.
StatusOr<int> Wait(const Cli& cli, Client* client, const v1::Job& before,
                   Duration timeout) {
  CliEnvironment* const env = cli.env;
  const std::string& name = before.name();
  const MonoTime start = env->clock->Now().mono;
  StopToken pause;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client->GetJob(name));
    if (IsNewer(job, before)) {
      LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
      if (output != Output::kTable && output != Output::kWide) {
        LOCKSTEP_RETURN_IF_ERROR(WriteJob(cli, job));
        return 0;
      }
      *env->out << fmt::format("checkpoint of {} at step {} in {}\n",
                               Printable(name),
                               Grouped(job.last_checkpoint().step()),
                               Printable(job.last_checkpoint().path()));
      return 0;
    }
    if (IsFinalState(job.state())) {
      return FailedPrecondition("job {} is {} and saved no checkpoint before",
                                name, Text(job.state()));
    }
    if (env->interrupted && env->interrupted()) return kExitInterrupted;
    if (env->clock->Now().mono - start >= timeout) {
      *env->err << fmt::format(
          "lockstep: job {} has no new checkpoint after {}; it may still "
          "come\n",
          name, FormatDuration(timeout));
      return kExitTimedOut;
    }
    pause.WaitFor(kCheckpointPoll);
  }
}

StatusOr<int> RunCheckpoint(const Cli& cli, const CheckpointFlags& options) {
  const auto timeout = ParseDuration(options.timeout);
  if (!timeout.ok()) return Annotate(timeout.status(), "--timeout");
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), options.name));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job before, client->GetJob(name));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Directive directive,
                            client->RequestCheckpoint(name));
  if (options.wait) return Wait(cli, client.get(), before, *timeout);
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  if (output == Output::kJson) {
    *cli.env->out << ToJson(directive);
    return 0;
  }
  *cli.env->out << fmt::format(
      "checkpoint {} of {} was requested; `lockstep jobs describe {}` shows it "
      "when it is complete\n",
      directive.id(), name, name);
  return 0;
}

}  // namespace

Command JobsCheckpointCommand(Cli* cli) {
  const auto options = std::make_shared<CheckpointFlags>();
  Command command = LeafCommand(
      "checkpoint",
      "Make a running native job save a checkpoint at its next step",
      "  lockstep jobs checkpoint fashion\n"
      "  lockstep jobs checkpoint fashion --wait && "
      "lockstep jobs cancel fashion");
  AddJobArgument(&command, &options->name);
  command.Add("--wait", &options->wait, "Wait until it is complete");
  command.Add("--timeout DURATION", &options->timeout,
              "Stop waiting after this time: exit 124", ShowDefault);
  AddRequestOptions(&command, cli);
  command.run = [=] { return RunCheckpoint(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
