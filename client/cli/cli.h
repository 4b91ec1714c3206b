// The command line program `lockstep`: its tree of commands and how they run.
//
// Each command has its own file with a function, listed below, that returns its
// description. Parsing selects one and sets the targets of its flags.
#ifndef LOCKSTEP_CLIENT_CLI_CLI_H_
#define LOCKSTEP_CLIENT_CLI_CLI_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/config.h"
#include "client/cli/environment.h"
#include "client/cli/output.h"
#include "client/cli/text.h"
#include "client/lib/client.h"
#include "common/base/status.h"
#include "common/cli/command.h"

namespace lockstep::cli {

// Exit codes for errors of the CLI itself.
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotFound = 3;
inline constexpr int kExitDenied = 4;
inline constexpr int kExitUnschedulable = 5;
inline constexpr int kExitUnavailable = 6;
inline constexpr int kExitTimedOut = 124;
inline constexpr int kExitInterrupted = 130;

// The selected command and the values of shared flags.
struct Cli {
  CliEnvironment* env = nullptr;
  ConnectionFlags connection;
  std::string output = "table";
  std::string color = "auto";
  // For lists.
  bool no_headers = false;
  bool uri = false;
  std::vector<std::string> columns;
  // The arguments after "--".
  bool has_program = false;
  std::vector<std::string> program;

  // The style of stdout and stderr.
  Style OutStyle() const { return {WantsColor(color, *env, env->out_is_tty)}; }
  Style ErrStyle() const { return {WantsColor(color, *env, env->err_is_tty)}; }
  StatusOr<Output> OutputFormat() const { return ParseOutput(output); }
  // Warns on stderr if the user's certificate expires in less than 30 days.
  StatusOr<std::unique_ptr<Client>> Connect() const;
  // Asks "QUESTION?" on stderr and reads a line. Returns true for "y" or "yes",
  // or without asking if `yes`. InvalidArgument without a terminal and without
  // --yes.
  StatusOr<bool> Confirm(const std::string& question, bool yes) const;
};

// Returns the whole tree. Its flags point into `cli`, which must outlive it.
Command BuildCommands(Cli* cli);

// Runs one command line (without the program's name), writes errors to env->err
// and returns the exit code. Does not return if it becomes another program
// (`lockstep NAME` with a lockstep-NAME in env->program_dir).
int RunCli(const std::vector<std::string>& args, CliEnvironment* env);

// Used by the files of commands.
void AddConnectionOptions(Command* command, Cli* cli);
void AddOutputOption(Command* command, Cli* cli);
// Adds both for a command that shows the coordinator's answer.
void AddRequestOptions(Command* command, Cli* cli);
// AddOutputOption for lists, with jsonl, csv, --no-headers and --columns.
void AddListOptions(Command* command, Cli* cli);
void AddColorOption(Command* command, Cli* cli);
// gcloud's --format=json|yaml|value(...)|..., in place of -o.
Flag& AddFormatOption(Command* command, std::string* format);
// The positional argument for the name of a job or node, or a prefix of it.
void AddJobArgument(Command* command, std::string* name);
void AddNodeArgument(Command* command, std::string* name);
// Accepts numbers of at least `least`.
FlagSetting AtLeast(int64_t least);
// Returns a command without children. --help shows the examples.
Command LeafCommand(const std::string& name, const std::string& description,
                    const std::string& examples);

Command LocalUpCommand(Cli* cli);
Command LocalDownCommand(Cli* cli);
Command LocalStatusCommand(Cli* cli);
Command LocalTrainCommand(Cli* cli);
// `plan` accepts the same command line, changes nothing, and hides the flags
// without effect.
Command SubmitCommand(Cli* cli, bool plan);
Command RunCommand(Cli* cli, bool plan);
Command TrainingCommand(Cli* cli, bool plan);
Command JobsListCommand(Cli* cli);
Command JobsDescribeCommand(Cli* cli);
Command JobsWaitCommand(Cli* cli);
Command JobsCancelCommand(Cli* cli);
Command JobsLogsCommand(Cli* cli);
Command JobsCheckpointCommand(Cli* cli);
Command JobsRestoreToCommand(Cli* cli);
Command JobsResizeCommand(Cli* cli);
Command JobsFilesCommand(Cli* cli);
Command JobsCpCommand(Cli* cli);
Command JobsStacksCommand(Cli* cli);
Command JobsWhyCommand(Cli* cli);
Command JobsProfileCommand(Cli* cli);
Command JobsTensorboardCommand(Cli* cli);
Command JobsDeleteCommand(Cli* cli);
Command JobsUpdateCommand(Cli* cli);
Command JobsStreamLogsCommand(Cli* cli);
Command ExecCommand(Cli* cli);
Command ForwardCommand(Cli* cli);
Command EventsCommand(Cli* cli);
Command BenchCommand(Cli* cli);
Command TopCommand(Cli* cli);
Command NodesListCommand(Cli* cli);
Command NodesDescribeCommand(Cli* cli);
Command NodesDrainCommand(Cli* cli);
Command NodesUndrainCommand(Cli* cli);
Command NodesApproveCommand(Cli* cli);
Command NodesCheckCommand(Cli* cli);
Command NodesForgetCommand(Cli* cli);
Command InitCommand(Cli* cli);
Command CertIssueCommand(Cli* cli);
Command ContextListCommand(Cli* cli);
Command ContextShowCommand(Cli* cli);
Command ContextUseCommand(Cli* cli);
Command ContextSetCommand(Cli* cli);
Command ContextDeleteCommand(Cli* cli);
Command UiCommand(Cli* cli);
Command UsageCommand(Cli* cli);
Command VersionCommand(Cli* cli);
Command CompletionCommand(Cli* cli);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_CLI_H_
