#include <unistd.h>

#include <memory>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/session_io.h"

namespace lockstep::cli {
namespace {

struct ExecFlags {
  std::string name;
  int32_t rank = 0;
  bool terminal = false;
  bool no_input = false;
};

StatusOr<int> RunExec(const Cli& cli, const ExecFlags& options) {
  v1::SessionRequest request;
  request.set_rank(options.rank);
  v1::CommandSession* const command = request.mutable_command();
  command->mutable_argv()->Add(cli.program.begin(), cli.program.end());
  if (options.terminal) {
    if (!cli.env->in_is_tty) {
      return InvalidArgument(
          "--tty: the standard input is not a terminal; without --tty the "
          "command gets what is piped to it");
    }
    *command->mutable_terminal() = SizeOfTerminal(STDIN_FILENO);
    command->set_term(cli.env->Variable("TERM"));
    if (command->argv().empty()) {
      for (const char* argument : kShell) command->add_argv(argument);
    }
  }
  if (command->argv().empty()) {
    return InvalidArgument(
        "no command: give one after --, as `lockstep exec JOB -- nvidia-smi`, "
        "or --tty for a shell");
  }
  HeldSignals held;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), options.name));
  request.set_name(name);
  const auto session = OpenSession(client.get(), request);
  return RunSession(cli, session.get(), {options.terminal, !options.no_input},
                    &held);
}

}  // namespace

Command ExecCommand(Cli* cli) {
  const auto options = std::make_shared<ExecFlags>();
  Command command = LeafCommand(
      "exec", "Run a command in a running rank",
      "  lockstep exec fashion -- nvidia-smi\n"
      "  lockstep exec fashion --rank 3 --tty\n"
      "  lockstep exec fashion -- tar c logs | tar x\n\n"
      "It has the rank's user, groups, limits, environment, directory and\n"
      "container, and no other rights; the resources that it uses are the\n"
      "rank's. --tty gives it a terminal; without a command that is a shell.\n"
      "It ends with the rank, and gets SIGHUP when this command ends.\n"
      "Returns its exit code, 128 + N after signal N, 127 if there is no such\n"
      "program. For the job's owner and admins; each use is in the job's\n"
      "history and the audit log.");
  AddJobArgument(&command, &options->name);
  command.Add("--rank R", &options->rank, "The rank", AtLeast(0), ShowDefault);
  command.Add("-t,--tty", &options->terminal,
              "With a terminal, the one of the standard input");
  command.Add("-n,--no-stdin", &options->no_input,
              "Without input, as in a loop that reads its own");
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunExec(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
