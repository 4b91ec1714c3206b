#include <fmt/format.h>

#include <memory>
#include <ostream>

#include "client/cli/await_checkpoint.h"
#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/follow.h"
#include "client/cli/parse.h"

namespace lockstep::cli {
namespace {

struct CheckpointFlags {
  std::string name;
  std::string timeout = "5m";
  bool wait = false;
};

// Until a checkpoint is there that was not there `before`.
StatusOr<int> Wait(const Cli& cli, Client* client, const v1::Job& before,
                   Duration timeout) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(const AwaitedCheckpoint awaited,
                            AwaitCheckpoint(env, client, before, timeout));
  if (awaited.code == kExitTimedOut) {
    *env->err << fmt::format(
        "lockstep: job {} has no new checkpoint after {}; it may still "
        "come\n",
        before.name(), FormatDuration(timeout));
  }
  if (awaited.code != 0) return awaited.code;
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  if (output != Output::kTable && output != Output::kWide) {
    LOCKSTEP_RETURN_IF_ERROR(WriteJob(cli, awaited.job));
    return 0;
  }
  const v1::Checkpoint& checkpoint = awaited.job.last_checkpoint();
  *env->out << fmt::format("checkpoint of {} at step {} in {}\n",
                           Printable(before.name()), Grouped(checkpoint.step()),
                           Printable(checkpoint.path()));
  return 0;
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
      "Make all ranks of a running job save a checkpoint at one step",
      "  lockstep jobs checkpoint fashion\n"
      "  lockstep jobs checkpoint fashion --wait && "
      "lockstep jobs cancel fashion\n\n"
      "For native jobs, and for programs whose ranks have joined and ask\n"
      "session.checkpoint_due() after each step.");
  AddJobArgument(&command, &options->name);
  command.Add("--wait", &options->wait, "Wait until it is complete");
  command.Add("--timeout DURATION", &options->timeout,
              "Stop waiting after this time: exit 124", ShowDefault);
  AddRequestOptions(&command, cli);
  command.run = [=] { return RunCheckpoint(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
