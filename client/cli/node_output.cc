#include "client/cli/node_output.h"

#include <fmt/format.h>

#include <ostream>

#include "client/cli/describe.h"

namespace lockstep::cli {
namespace {

// Returns false if a table was requested.
bool WriteMessage(const Cli& cli, Output output, const v1::Node& node) {
  std::ostream& out = *cli.env->out;
  switch (output) {
    case Output::kJson:
      out << ToJson(node);
      return true;
    case Output::kJsonl:
      out << ToJsonLine(node);
      return true;
    case Output::kYaml:
      out << ToYaml(node);
      return true;
    case Output::kName:
      out << node.name() << "\n";
      return true;
    default:
      return false;
  }
}

}  // namespace

Status WriteNode(const Cli& cli, const v1::Node& node) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  if (!WriteMessage(cli, output, node)) {
    *cli.env->out << FormatNode(node, cli.env->clock->Now().wall,
                                cli.OutStyle());
  }
  return OkStatus();
}

Status WriteNodeState(const Cli& cli, const v1::Node& node) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  if (!WriteMessage(cli, output, node)) {
    const std::string& why = node.drain().reason();
    *cli.env->out << fmt::format("{} {}{}\n", Printable(node.name()),
                                 cli.OutStyle().State(node.state()),
                                 why.empty() ? "" : ": " + Printable(why));
  }
  return OkStatus();
}

}  // namespace lockstep::cli
