// The command line program `lockstep`: its tree of commands and how one runs.
//
// Each command has a file of its own, with a function listed below that
// returns its description. Parsing picks one and sets what its flags point to.
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

namespace lockstep {

// Exit codes of the CLI's own errors.
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotFound = 3;
inline constexpr int kExitDenied = 4;
inline constexpr int kExitUnschedulable = 5;
inline constexpr int kExitUnavailable = 6;
inline constexpr int kExitTimedOut = 124;
inline constexpr int kExitInterrupted = 130;

// What flags that several commands share were set to, and the command.
struct Cli {
  CliEnvironment* env = nullptr;
  ConnectionFlags connection;
  std::string output = "table";
  std::string color = "auto";
  // Of lists.
  bool no_headers = false;
  bool uri = false;
  std::vector<std::string> columns;
  // What came after "--".
  bool has_program = false;
  std::vector<std::string> program;

  // For stdout and stderr.
  Style OutStyle() const { return {WantsColor(color, *env, env->out_is_tty)}; }
  Style ErrStyle() const { return {WantsColor(color, *env, env->err_is_tty)}; }
  StatusOr<Output> OutputFormat() const { return ParseOutput(output); }
  // Warns on stderr when our certificate ends in less than 30 days.
  StatusOr<std::unique_ptr<Client>> Connect() const;
  // Asks "QUESTION?" on stderr and reads a line: true for "y" or "yes". `yes`
  // skips it.
  // InvalidArgument without a terminal and without --yes.
  StatusOr<bool> Confirm(const std::string& question, bool yes) const;
};

// The whole tree. Its flags point into `cli`, which must outlive it.
Command BuildCommands(Cli* cli);

// Runs one command line (without the program's name). Writes errors to
// env->err; returns the exit code. Does not return where it becomes another
// program (`lockstep NAME` with a lockstep-NAME in env->program_dir).
int RunCli(const std::vector<std::string>& args, CliEnvironment* env);

// For command files.
void AddConnectionOptions(Command* command, Cli* cli);
void AddOutputOption(Command* command, Cli* cli);
// Both of a command that shows what the coordinator answers.
void AddRequestOptions(Command* command, Cli* cli);
// AddOutputOption for lists: jsonl, csv, --no-headers and --columns, too.
void AddListOptions(Command* command, Cli* cli);
void AddColorOption(Command* command, Cli* cli);
// gcloud's --format=json|yaml|value(...)|..., instead of -o.
Flag& AddFormatOption(Command* command, std::string* format);
// The positional argument that names a job or node, or how its name begins.
void AddJobArgument(Command* command, std::string* name);
void AddNodeArgument(Command* command, std::string* name);
// Accepts numbers that are not below `least`.
FlagSetting AtLeast(int64_t least);
// A command without children; --help shows the examples.
Command LeafCommand(const std::string& name, const std::string& description,
                    const std::string& examples);

Command LocalUpCommand(Cli* cli);
Command LocalDownCommand(Cli* cli);
Command LocalStatusCommand(Cli* cli);
Command LocalTrainCommand(Cli* cli);
// `plan` accepts the same command line, changes nothing, and hides the flags
// that have no effect then.
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
Command JobsFilesCommand(Cli* cli);
Command JobsCpCommand(Cli* cli);
Command JobsDeleteCommand(Cli* cli);
Command JobsUpdateCommand(Cli* cli);
Command JobsStreamLogsCommand(Cli* cli);
Command EventsCommand(Cli* cli);
Command BenchCommand(Cli* cli);
Command TopCommand(Cli* cli);
Command NodesListCommand(Cli* cli);
Command NodesDescribeCommand(Cli* cli);
Command NodesDrainCommand(Cli* cli);
Command NodesUndrainCommand(Cli* cli);
Command NodesApproveCommand(Cli* cli);
Command NodesForgetCommand(Cli* cli);
Command InitCommand(Cli* cli);
Command CertIssueCommand(Cli* cli);
Command ContextListCommand(Cli* cli);
Command ContextShowCommand(Cli* cli);
Command ContextUseCommand(Cli* cli);
Command ContextSetCommand(Cli* cli);
Command ContextDeleteCommand(Cli* cli);
Command UiCommand(Cli* cli);
Command VersionCommand(Cli* cli);
Command CompletionCommand(Cli* cli);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_CLI_H_
