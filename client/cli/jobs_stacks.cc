#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/evidence_text.h"
#include "client/cli/find.h"
#include "client/cli/parse.h"

namespace lockstep::cli {
namespace {

struct StacksFlags {
  std::string name;
  std::string ranks;
  bool all = false;
};

StatusOr<int> RunStacks(const Cli& cli, const StacksFlags& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  std::vector<int32_t> ranks;
  if (!options.ranks.empty()) {
    const auto parsed = ParseRanks(options.ranks);
    if (!parsed.ok()) return Annotate(parsed.status(), "--rank");
    ranks = *parsed;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), options.name));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::JobEvidence evidence,
                            client->CollectEvidence(name, ranks));
  std::ostream& out = *cli.env->out;
  if (output == Output::kJson) {
    out << ToJson(evidence);
  } else if (output == Output::kJsonl) {
    out << ToJsonLine(evidence);
  } else if (output == Output::kYaml) {
    out << ToYaml(evidence);
  } else {
    out << EvidenceText(evidence, options.all || output == Output::kWide,
                        cli.OutStyle());
  }
  return 0;
}

}  // namespace

Command JobsStacksCommand(Cli* cli) {
  const auto options = std::make_shared<StacksFlags>();
  Command command = LeafCommand(
      "stacks", "Show what the ranks of a running job do now, in groups",
      "  lockstep jobs stacks fashion\n"
      "  lockstep jobs stacks fashion --rank 3 --all\n"
      "  lockstep jobs stacks fashion -o json | jq .groups\n\n"
      "Python programs are read by py-spy, if the nodes have it, without\n"
      "being stopped; others are held for the milliseconds that their stack\n"
      "takes. For the job's owner and admins.");
  AddJobArgument(&command, &options->name);
  command.Add("--rank RANKS", &options->ranks,
              "Only these ranks, as 0-3,5 (default: all)");
  command.Add("--all", &options->all,
              "Also every thread, process and socket, as -o wide does");
  AddRequestOptions(&command, cli);
  command.run = [=] { return RunStacks(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
