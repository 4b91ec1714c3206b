// The command line program `lockstep`: its tree of commands and how one runs.
//
// Each command is a file of its own with an Add function, listed below, that
// hangs it into the tree; parsing picks one and sets Cli::run.
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

namespace CLI {
class App;
class Option;
}  // namespace CLI

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
  // Set by the command that was parsed. Returns the exit code.
  std::function<StatusOr<int>()> run;

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

// The whole tree. Options are bound to `cli`, which outlives it.
std::unique_ptr<CLI::App> BuildApp(Cli* cli);

// Runs one command line (without the program's name). Writes errors to
// env->err; returns the exit code. Does not return where it becomes another
// program (`lockstep NAME` with a lockstep-NAME in env->program_dir).
int RunCli(const std::vector<std::string>& args, CliEnvironment* env);

// For command files.
void AddConnectionOptions(CLI::App* app, Cli* cli);
void AddOutputOption(CLI::App* app, Cli* cli);
// AddOutputOption for lists: jsonl, csv, --no-headers and --columns, too.
void AddListOptions(CLI::App* app, Cli* cli);
// gcloud's --format=json|yaml|value(...)|..., instead of -o.
CLI::Option* AddFormatOption(CLI::App* app, std::string* format);
// For CLI::Option::check: a number, not below `least`.
std::function<std::string(const std::string&)> AtLeast(int64_t least);
// A leaf: what it does in one line, and examples for its --help.
CLI::App* AddCommand(CLI::App* parent, const std::string& name,
                     const std::string& description,
                     const std::string& examples);

void AddLocalUp(CLI::App* parent, Cli* cli);
void AddLocalDown(CLI::App* parent, Cli* cli);
void AddLocalStatus(CLI::App* parent, Cli* cli);
void AddLocalTrain(CLI::App* parent, Cli* cli);
void AddSubmit(CLI::App* parent, Cli* cli);
void AddRun(CLI::App* parent, Cli* cli);
void AddJobsSubmitTraining(CLI::App* parent, Cli* cli);
// The same commands as children of `plan`: they change nothing.
void AddPlanSubmit(CLI::App* parent, Cli* cli);
void AddPlanRun(CLI::App* parent, Cli* cli);
void AddPlanTraining(CLI::App* parent, Cli* cli);
void AddJobsList(CLI::App* parent, Cli* cli);
void AddJobsDescribe(CLI::App* parent, Cli* cli);
void AddJobsWait(CLI::App* parent, Cli* cli);
void AddJobsCancel(CLI::App* parent, Cli* cli);
void AddJobsLogs(CLI::App* parent, Cli* cli);
void AddJobsCheckpoint(CLI::App* parent, Cli* cli);
void AddJobsRestoreTo(CLI::App* parent, Cli* cli);
void AddJobsFiles(CLI::App* parent, Cli* cli);
void AddJobsCp(CLI::App* parent, Cli* cli);
void AddJobsDelete(CLI::App* parent, Cli* cli);
void AddJobsUpdate(CLI::App* parent, Cli* cli);
void AddJobsStreamLogs(CLI::App* parent, Cli* cli);
void AddEvents(CLI::App* parent, Cli* cli);
void AddBench(CLI::App* parent, Cli* cli);
void AddTop(CLI::App* parent, Cli* cli);
void AddNodesList(CLI::App* parent, Cli* cli);
void AddNodesDescribe(CLI::App* parent, Cli* cli);
void AddNodesDrain(CLI::App* parent, Cli* cli);
void AddNodesUndrain(CLI::App* parent, Cli* cli);
void AddNodesApprove(CLI::App* parent, Cli* cli);
void AddNodesForget(CLI::App* parent, Cli* cli);
void AddInit(CLI::App* parent, Cli* cli);
void AddCertIssue(CLI::App* parent, Cli* cli);
void AddContextList(CLI::App* parent, Cli* cli);
void AddContextShow(CLI::App* parent, Cli* cli);
void AddContextUse(CLI::App* parent, Cli* cli);
void AddContextSet(CLI::App* parent, Cli* cli);
void AddContextDelete(CLI::App* parent, Cli* cli);
void AddUi(CLI::App* parent, Cli* cli);
void AddVersion(CLI::App* parent, Cli* cli);
void AddCompletion(CLI::App* parent, Cli* cli);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_CLI_H_
