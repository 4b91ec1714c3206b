// `lockstep nodes drain`, `undrain` and `forget`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/describe.h"
#include "client/cli/find.h"
#include "client/cli/node_output.h"
#include "client/cli/parse.h"

namespace lockstep {
namespace {

constexpr Duration kPoll = std::chrono::milliseconds(300);

struct DrainFlags {
  std::string node;
  std::string reason;
  std::string grace;
  std::string timeout;
  bool wait = false;
};

// Until nothing runs there. Returns the exit code.
StatusOr<int> WaitDrained(const Cli& cli, Client* client,
                          const std::string& name,
                          std::optional<Duration> timeout, v1::Node* node) {
  CliEnvironment* const env = cli.env;
  const MonoTime start = env->clock->Now().mono;
  StopToken pause;
  size_t told = SIZE_MAX;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(*node, client->GetNode(name));
    if (node->state() == v1::NODE_STATE_READY) {
      return FailedPrecondition("node {} was undrained meanwhile", name);
    }
    const size_t jobs = static_cast<size_t>(node->jobs_size());
    if (jobs == 0) return 0;
    if (jobs != told) {
      *env->err << fmt::format(
          "  {} still on {}: {}\n", Count(node->jobs_size(), "job"), name,
          Printable(fmt::format("{}", fmt::join(node->jobs(), ", "))));
      told = jobs;
    }
    if (env->interrupted && env->interrupted()) return kExitInterrupted;
    if (timeout && env->clock->Now().mono - start >= *timeout) {
      *env->err << fmt::format(
          "lockstep: node {} has {} after {}; it stays drained\n", name,
          Count(node->jobs_size(), "job"), FormatDuration(*timeout));
      return kExitTimedOut;
    }
    pause.WaitFor(kPoll);
  }
}

StatusOr<int> Drain(const Cli& cli, const DrainFlags& flags) {
  DrainOptions options;
  options.reason = flags.reason;
  std::optional<Duration> timeout;
  if (!flags.grace.empty()) {
    const auto grace = ParseDuration(flags.grace);
    if (!grace.ok()) return Annotate(grace.status(), "--grace");
    options.grace = *grace;
  }
  if (!flags.timeout.empty()) {
    const auto parsed = ParseDuration(flags.timeout);
    if (!parsed.ok()) return Annotate(parsed.status(), "--timeout");
    timeout = *parsed;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindNode(client.get(), flags.node));
  LOCKSTEP_ASSIGN_OR_RETURN(v1::Node node, client->DrainNode(name, options));
  int code = 0;
  if (flags.wait) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        code, WaitDrained(cli, client.get(), name, timeout, &node));
  }
  LOCKSTEP_RETURN_IF_ERROR(WriteNodeState(cli, node));
  return code;
}

StatusOr<int> Undrain(const Cli& cli, const std::string& text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindNode(client.get(), text));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Node node, client->UndrainNode(name));
  LOCKSTEP_RETURN_IF_ERROR(WriteNodeState(cli, node));
  return 0;
}

StatusOr<int> Forget(const Cli& cli, const std::string& name, bool yes) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const bool go,
      cli.Confirm(fmt::format("Forget node {}, whose ranks then count as lost "
                              "even where they still run",
                              name),
                  yes));
  if (!go) return kExitError;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> jobs,
                            client->ForgetNode(name));
  *cli.env->err << fmt::format(
      "node {} is forgotten{}{}\n", name,
      jobs.empty() ? "" : "; it had something of ",
      Printable(fmt::format("{}", fmt::join(jobs, ", "))));
  return 0;
}

}  // namespace

void AddNodesDrain(CLI::App* parent, Cli* cli) {
  auto flags = std::make_shared<DrainFlags>();
  CLI::App* const app = AddCommand(
      parent, "drain", "Give a node no new work, and have it emptied",
      "  lockstep nodes drain host-a --reason \"new disk\"\n"
      "  lockstep nodes drain host-a --grace 30s --wait\n"
      "\nWithout --grace its jobs run to their end. With one native jobs save"
      "\nat an agreed step and go on elsewhere, programs are started again"
      "\nelsewhere, and what still runs after the grace is killed. Neither"
      "\ncosts a job anything of its restart budget. It lasts until `lockstep"
      "\nnodes undrain`; given again it replaces reason and grace.");
  app->add_option("node", flags->node, "The node, or how its name begins")
      ->type_name("NODE")
      ->required();
  app->add_option("--reason", flags->reason, "Why, for people")
      ->type_name("TEXT");
  app->add_option("--grace", flags->grace,
                  "Move its jobs away, and kill what is left after so long, "
                  "as 30s (default: they run to their end)")
      ->type_name("DURATION");
  app->add_flag("--wait", flags->wait, "Return when nothing runs there");
  app->add_option("--timeout", flags->timeout,
                  "Give up waiting after so long: exit 124 (default: never)")
      ->type_name("DURATION");
  AddOutputOption(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Drain(*cli, *flags); }; });
}

void AddNodesUndrain(CLI::App* parent, Cli* cli) {
  auto name = std::make_shared<std::string>();
  CLI::App* const app = AddCommand(parent, "undrain", "Give a node work again",
                                   "  lockstep nodes undrain host-a");
  app->add_option("node", *name, "The node, or how its name begins")
      ->type_name("NODE")
      ->required();
  AddOutputOption(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Undrain(*cli, *name); }; });
}

void AddNodesForget(CLI::App* parent, Cli* cli) {
  auto name = std::make_shared<std::string>();
  auto yes = std::make_shared<bool>(false);
  CLI::App* const app = AddCommand(
      parent, "forget", "Say that a silent node's host is gone for good",
      "  lockstep nodes forget host-a --yes\n"
      "\nWhat it held is free and its ranks count as lost, so jobs that wait"
      "\nfor it go on elsewhere. Do it only when the host is off: ranks that"
      "\nstill run there would write beside the new ones. A node that is"
      "\nconnected is refused.");
  app->add_option("node", *name, "The node; its whole name")
      ->type_name("NODE")
      ->required();
  app->add_flag("-y,--yes", *yes, "Do not ask");
  AddConnectionOptions(app, cli);
  app->callback([=] { cli->run = [=] { return Forget(*cli, *name, *yes); }; });
}

}  // namespace lockstep
