#include <fmt/format.h>

#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/follow.h"

namespace lockstep::cli {
namespace {

struct ResizeFlags {
  std::string name;
  int32_t tasks = 0;
};

StatusOr<int> RunResize(const Cli& cli, const ResizeFlags& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), options.name));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job,
                            ResizeJob(client.get(), name, options.tasks));
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  if (output != Output::kTable && output != Output::kWide) {
    LOCKSTEP_RETURN_IF_ERROR(WriteJob(cli, job));
    return 0;
  }
  *cli.env->out << fmt::format(
      "job {} is to have {} task{}; `lockstep jobs describe {}` shows its "
      "progress\n",
      name, options.tasks, options.tasks == 1 ? "" : "s", name);
  return 0;
}

}  // namespace

Command JobsResizeCommand(Cli* cli) {
  const auto options = std::make_shared<ResizeFlags>();
  Command command = LeafCommand(
      "resize",
      "Set how many tasks of chief and workers a job has at most, of one that "
      "was submitted with --elastic MIN: with fewer at once, with more as soon "
      "as there is room. The other ranks train on; with --rescale, the job "
      "saves, where it can, and restarts",
      "  lockstep jobs resize fashion --tasks 2");
  AddJobArgument(&command, &options->name);
  command.Add("--tasks N", &options->tasks,
              "From MIN to the number that the job was submitted with",
              Required);
  AddRequestOptions(&command, cli);
  command.run = [=] { return RunResize(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
