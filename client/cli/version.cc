#include "common/base/version.h"

#include <ostream>

#include "client/cli/cli.h"

namespace lockstep::cli {
namespace {

StatusOr<int> ShowVersion(const Cli& cli) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  if (output == Output::kJson) {
    *cli.env->out << "{\"version\": \"" << kVersion << "\"}\n";
  } else if (output == Output::kYaml) {
    *cli.env->out << "version: " << kVersion << "\n";
  } else {
    *cli.env->out << "lockstep " << kVersion << "\n";
  }
  return 0;
}

}  // namespace

Command VersionCommand(Cli* cli) {
  Command command = LeafCommand("version", "Print the version of lockstep",
                                "  lockstep version -o json");
  AddOutputOption(&command, cli);
  command.run = [=] { return ShowVersion(*cli); };
  return command;
}

}  // namespace lockstep::cli
