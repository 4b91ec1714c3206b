#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <optional>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/follow.h"

namespace lockstep::cli {
namespace {

struct RestoreFlags {
  std::string name;
  std::string target;
};

// Returns nullopt for the start.
StatusOr<std::optional<int64_t>> ParseTarget(const std::string& text) {
  if (text == "start") return std::optional<int64_t>();
  int64_t step = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, step);
  if (error != std::errc() || after != end || step < 1) {
    return InvalidArgument(
        "'{}' is neither the step of a checkpoint (1 or more) nor `start`",
        text);
  }
  return std::optional<int64_t>(step);
}

StatusOr<int> RunRestore(const Cli& cli, const RestoreFlags& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> step,
                            ParseTarget(options.target));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), options.name));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client->RestoreJob(name, step));
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  if (output != Output::kTable && output != Output::kWide) {
    LOCKSTEP_RETURN_IF_ERROR(WriteJob(cli, job));
    return 0;
  }
  *cli.env->out << fmt::format(
      "job {} {}; `lockstep jobs describe {}` shows its progress\n", name,
      step ? fmt::format("resumes from step {}", Grouped(*step))
           : std::string("starts from the beginning"),
      name);
  return 0;
}

}  // namespace

Command JobsRestoreToCommand(Cli* cli) {
  const auto options = std::make_shared<RestoreFlags>();
  Command command = LeafCommand(
      "restore-to",
      "Set the checkpoint that a held job resumes from. A job is held while "
      "its output "
      "directory or its newest checkpoint is missing, and continues by itself "
      "when that returns. No checkpoint is deleted",
      "  lockstep jobs restore-to fashion 4000\n"
      "  lockstep jobs restore-to fashion start");
  AddJobArgument(&command, &options->name);
  command.Add(
      "target STEP|start", &options->target,
      "The step of a checkpoint; or `start`: without a checkpoint, in the "
      "present output directory if the known one is missing",
      Required);
  AddRequestOptions(&command, cli);
  command.run = [=] { return RunRestore(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
