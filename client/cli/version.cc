#include "common/base/version.h"

#include <CLI/CLI.hpp>
#include <ostream>

#include "client/cli/cli.h"

namespace lockstep {
namespace {

StatusOr<int> Run(const Cli& cli) {
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

void AddVersion(CLI::App* parent, Cli* cli) {
  CLI::App* const app = AddCommand(parent, "version", "The version of lockstep",
                                   "  lockstep version -o json");
  AddOutputOption(app, cli);
  app->callback([=] { cli->run = [=] { return Run(*cli); }; });
}

}  // namespace lockstep
