#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/describe.h"
#include "client/cli/find.h"

namespace lockstep::cli {
namespace {

// "GPU 3  memory      passed   1875 GB/s".
Table ChecksTable(const v1::CheckNodeResponse& response, const Style& style) {
  Table table{{"GPU", "PART", "RESULT", "MEASURED", "WHY"}, {}};
  for (const v1::GpuCheck& check : response.checks()) {
    const std::string gpu = fmt::format("{}", check.index());
    bool told = check.failure().empty();
    for (const v1::GpuCheckPart& part : check.parts()) {
      const bool failed = !part.failure().empty();
      told = told || failed;
      const std::string why = failed ? part.failure() : part.skipped();
      table.rows.push_back(
          {gpu, Printable(part.name()),
           failed                   ? style.Red("failed")
           : part.skipped().empty() ? "passed"
                                    : "skipped",
           part.unit().empty()
               ? "-"
               : fmt::format("{:.4g} {}", part.value(), Printable(part.unit())),
           Printable(why)});
    }
    // A hang, or what its readings said meanwhile, is of no part.
    if (!told) {
      table.rows.push_back(
          {gpu, "-", style.Red("failed"), "-", Printable(check.failure())});
    }
  }
  return table;
}

Status WriteChecks(const Cli& cli, const std::string& node,
                   const v1::CheckNodeResponse& response) {
  std::ostream& out = *cli.env->out;
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  switch (output) {
    case Output::kJson:
      out << ToJson(response);
      return OkStatus();
    case Output::kJsonl:
      out << ToJsonLine(response);
      return OkStatus();
    case Output::kYaml:
      out << ToYaml(response);
      return OkStatus();
    case Output::kName:
      out << node << "\n";
      return OkStatus();
    default:
      out << RenderTable(ChecksTable(response, cli.OutStyle()));
      return OkStatus();
  }
}

StatusOr<int> Check(const Cli& cli, const std::string& text,
                    const std::vector<int32_t>& gpus) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindNode(client.get(), text));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::CheckNodeResponse response,
                            CheckNode(client.get(), name, gpus));
  LOCKSTEP_RETURN_IF_ERROR(WriteChecks(cli, name, response));
  int failed = 0;
  for (const v1::GpuCheck& check : response.checks()) {
    if (!check.failure().empty()) ++failed;
  }
  *cli.env->err << fmt::format("node {}: {} checked, {} failed{}\n", name,
                               Count(response.checks_size(), "GPU"), failed,
                               failed == 0 ? "" : ": no new work goes there");
  return failed == 0 ? 0 : kExitError;
}

}  // namespace

Command NodesCheckCommand(Cli* cli) {
  const auto name = std::make_shared<std::string>();
  const auto gpus = std::make_shared<std::vector<int32_t>>();
  Command command = LeafCommand(
      "check", "Check the GPUs of a node, or some of them",
      "  lockstep nodes check host-a\n"
      "  lockstep nodes check host-a --gpu 3 -o json\n\n"
      "Takes about 20 s, in which these GPUs get no work: their memory is\n"
      "written and read, matrices are multiplied, and two GPUs all-reduce;\n"
      "all is compared with known results. What it measures is printed, and\n"
      "nothing fails because it is slow. A GPU that passes loses what\n"
      "withholds it, one that fails is withheld, and the exit code is 1.\n"
      "Without --gpu: all that no job holds.");
  AddNodeArgument(&command, name.get());
  command.Add("--gpu INDEX", gpus.get(), "Only this GPU; may be repeated");
  AddRequestOptions(&command, cli);
  command.run = [=] { return Check(*cli, *name, *gpus); };
  return command;
}

}  // namespace lockstep::cli
