#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/errors.h"

namespace lockstep::cli {
namespace {

struct DeleteFlags {
  std::vector<std::string> names;
  bool yes = false;
};

// Reports missing jobs before it asks for confirmation.
StatusOr<int> Check(const Cli& cli, Client* client,
                    const DeleteFlags& options) {
  int code = 0;
  for (const std::string& name : options.names) {
    const Status status = client->GetJob(name).status();
    if (status.ok()) continue;
    if (status.code() != StatusCode::kNotFound) return status;
    *cli.env->err << ErrorLine(status) << "\n";
    code = ExitCodeOf(status);
  }
  return code;
}

StatusOr<int> RunDelete(const Cli& cli, const DeleteFlags& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  if (!options.yes) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int code,
                              Check(cli, client.get(), options));
    if (code != 0) return code;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const bool go,
      cli.Confirm(fmt::format("Delete {} {} with all logs and events",
                              options.names.size() == 1 ? "job" : "jobs",
                              Printable(fmt::format(
                                  "{}", fmt::join(options.names, ", ")))),
                  options.yes));
  if (!go) return kExitError;
  int code = 0;
  for (const std::string& name : options.names) {
    const Status status = client->DeleteJob(name);
    if (status.ok()) {
      *cli.env->err << fmt::format("deleted {}\n", name);
      continue;
    }
    *cli.env->err << ErrorLine(status) << "\n";
    code = std::max(code, ExitCodeOf(status));
  }
  return code;
}

}  // namespace

Command JobsDeleteCommand(Cli* cli) {
  const auto options = std::make_shared<DeleteFlags>();
  Command command = LeafCommand(
      "delete", "Delete ended jobs with their logs and events",
      "  lockstep jobs delete fashion --yes\n"
      "  lockstep jobs list --state failed -o name | xargs -r lockstep jobs "
      "delete --yes\n\n"
      "The working directories of its tasks are removed. Its output\n"
      "directory stays, and its name stays taken. An unfinished job is\n"
      "rejected: cancel it first.");
  command.Add("name JOB", &options->names, "Full names of the jobs", Required);
  command.Add("-y,--yes", &options->yes, "Do not ask");
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunDelete(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
