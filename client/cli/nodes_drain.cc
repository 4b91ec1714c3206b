// `lockstep nodes drain`, `undrain` and `forget`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/describe.h"
#include "client/cli/find.h"
#include "client/cli/node_output.h"
#include "client/cli/parse.h"

namespace lockstep::cli {
namespace {

constexpr Duration kDrainPoll = std::chrono::milliseconds(300);

struct DrainFlags {
  std::string node;
  std::string reason;
  std::string grace;
  std::string timeout;
  bool wait = false;
};

// Waits until nothing runs there. Returns the exit code.
StatusOr<int> WaitDrained(const Cli& cli, Client* client,
                          const std::string& name,
                          std::optional<Duration> timeout, v1::Node* node) {
  CliEnvironment* const env = cli.env;
  const MonoTime start = env->clock->Now().mono;
  StopToken pause;
  size_t printed = SIZE_MAX;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(*node, client->GetNode(name));
    if (node->state() == v1::NODE_STATE_READY) {
      return FailedPrecondition("node {} was undrained meanwhile", name);
    }
    const size_t jobs = static_cast<size_t>(node->jobs_size());
    if (jobs == 0) return 0;
    if (jobs != printed) {
      *env->err << fmt::format(
          "  {} still on {}: {}\n", Count(node->jobs_size(), "job"), name,
          Printable(fmt::format("{}", fmt::join(node->jobs(), ", "))));
      printed = jobs;
    }
    if (env->interrupted && env->interrupted()) return kExitInterrupted;
    if (timeout && env->clock->Now().mono - start >= *timeout) {
      *env->err << fmt::format(
          "lockstep: node {} has {} after {}; it stays drained\n", name,
          Count(node->jobs_size(), "job"), FormatDuration(*timeout));
      return kExitTimedOut;
    }
    pause.WaitFor(kDrainPoll);
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

StatusOr<int> Undrain(const Cli& cli, const std::string& text,
                      const std::vector<int32_t>& gpus) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindNode(client.get(), text));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Node node,
                            client->UndrainNode(name, gpus));
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
      jobs.empty() ? "" : "; it had ranks of ",
      Printable(fmt::format("{}", fmt::join(jobs, ", "))));
  return 0;
}

}  // namespace

Command NodesDrainCommand(Cli* cli) {
  auto flags = std::make_shared<DrainFlags>();
  Command command = LeafCommand(
      "drain", "Give a node no new work and empty it",
      "  lockstep nodes drain host-a --reason \"new disk\"\n"
      "  lockstep nodes drain host-a --grace 30s --wait\n\n"
      "Without --grace its jobs run to their end. With it native jobs, and\n"
      "programs that ask session.should_stop(), save at an agreed step and\n"
      "continue elsewhere; other programs restart there, and ranks that\n"
      "still run after the grace are killed.\n"
      "Neither uses a job's restart budget. It lasts until `lockstep nodes\n"
      "undrain`; a second call replaces reason and grace.");
  AddNodeArgument(&command, &flags->node);
  command.Add("--reason TEXT", &flags->reason, "A text for users");
  command.Add("--grace DURATION", &flags->grace,
              "Move its jobs, and kill remaining ranks after this time, as 30s "
              "(default: they run to their end)");
  command.Add("--wait", &flags->wait, "Wait until nothing runs there");
  command.Add("--timeout DURATION", &flags->timeout,
              "Stop waiting after this time: exit 124 (default: never)");
  AddRequestOptions(&command, cli);
  command.run = [=] { return Drain(*cli, *flags); };
  return command;
}

Command NodesUndrainCommand(Cli* cli) {
  const auto name = std::make_shared<std::string>();
  const auto gpus = std::make_shared<std::vector<int32_t>>();
  Command command = LeafCommand(
      "undrain", "Give a node or its withheld GPUs work again",
      "  lockstep nodes undrain host-a\n"
      "  lockstep nodes undrain host-a --gpu 3\n\n"
      "Also lifts what withholds its GPUs. With --gpu it does only that, for\n"
      "these GPUs, and a drain stays.");
  AddNodeArgument(&command, name.get());
  command.Add("--gpu INDEX", gpus.get(),
              "Only lift what withholds this GPU; may be repeated");
  AddRequestOptions(&command, cli);
  command.run = [=] { return Undrain(*cli, *name, *gpus); };
  return command;
}

Command NodesForgetCommand(Cli* cli) {
  const auto name = std::make_shared<std::string>();
  auto yes = std::make_shared<bool>(false);
  Command command = LeafCommand(
      "forget", "Declare a silent node's host gone for good",
      "  lockstep nodes forget host-a --yes\n\n"
      "Its resources are free and its ranks count as lost, so jobs that\n"
      "wait for it continue elsewhere. Do it only if the host is off: ranks\n"
      "that still run there would write concurrently with the new ones. A\n"
      "connected node is rejected.");
  command.Add("node NODE", name.get(), "The node's full name", Required);
  command.Add("-y,--yes", yes.get(), "Do not ask");
  AddConnectionOptions(&command, cli);
  command.run = [=] { return Forget(*cli, *name, *yes); };
  return command;
}

}  // namespace lockstep::cli
