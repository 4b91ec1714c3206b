#include "client/cli/cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <ostream>
#include <string_view>

#include "client/cli/completion.h"
#include "client/cli/errors.h"
#include "client/cli/external.h"
#include "common/base/file.h"
#include "common/base/utf8.h"
#include "common/base/version.h"
#include "common/model/names.h"
#include "common/pki/credentials.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kConnectionFlags[] = {"--context", "--address",
                                                 "--ca", "--cert", "--key"};
// Commands that take a program or its arguments after "--".
constexpr std::string_view kTakeProgram[] = {"submit", "run",   "training",
                                             "train",  "bench", "exec"};
constexpr Duration kExpiryWarning = std::chrono::hours(24 * 30);

template <size_t N>
bool IsOneOf(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

std::vector<std::string> CommandNames(const Command& command) {
  std::vector<std::string> names;
  for (const Command& child : command.children) names.push_back(child.name);
  return names;
}

// Returns the number of arguments up to the first that is neither a flag of
// `command` itself nor a flag's value.
size_t SkipFlags(const Command& command, const std::vector<std::string>& args,
                 size_t begin) {
  size_t i = begin;
  while (i < args.size() && args[i].size() > 1 && args[i][0] == '-') {
    const Flag* const flag = command.Find(args[i]);
    i += flag && flag->TakesValue() ? 2 : 1;
  }
  return i;
}

// Walks the tree along the words of `args`. Its errors are better than the
// parser's.
struct Walk {
  const Command* command = nullptr;
  // "lockstep jobs list".
  std::string full_name;
  // The word that is not a command of `command`, or "".
  std::string unknown;
  // Its index in the arguments.
  size_t index = 0;
  // Index of the first argument after the command's words.
  size_t end = 0;
};

Walk WalkTree(const Command& root, const std::vector<std::string>& args) {
  Walk walk{&root, root.name, "", 0, 0};
  size_t i = 0;
  while (!walk.command->children.empty()) {
    i = SkipFlags(*walk.command, args, i);
    if (i >= args.size()) return walk;
    const Command* const next = walk.command->Child(args[i]);
    if (!next) {
      walk.unknown = args[i];
      walk.index = i;
      return walk;
    }
    walk.command = next;
    walk.full_name += " " + next->name;
    walk.end = ++i;
  }
  return walk;
}

// Removes connection flags that precede the command from `args`.
std::vector<std::string> TakeConnectionOptions(std::vector<std::string>* args) {
  std::vector<std::string> taken;
  size_t i = 0;
  while (i < args->size()) {
    const std::string name =
        WithDashes((*args)[i].substr(0, (*args)[i].find('=')));
    if (name == "--insecure-loopback" ||
        (IsOneOf(kConnectionFlags, name) &&
         (*args)[i].find('=') != std::string::npos)) {
      i += 1;
    } else if (IsOneOf(kConnectionFlags, name)) {
      i = std::min(i + 2, args->size());
    } else {
      break;
    }
  }
  taken.assign(args->begin(), args->begin() + static_cast<ptrdiff_t>(i));
  args->erase(args->begin(), args->begin() + static_cast<ptrdiff_t>(i));
  return taken;
}

// Returns the first "--name" from args[begin] on that is not a flag of
// `command`, or an empty string. Values of flags are skipped.
std::string UnknownFlag(const Command& command,
                        const std::vector<std::string>& args, size_t begin) {
  for (size_t i = begin; i < args.size(); ++i) {
    const std::string name = args[i].substr(0, args[i].find('='));
    if (name.size() < 2 || name[0] != '-') continue;
    const Flag* const flag = command.Find(name);
    if (!flag && name.size() > 2 && name[1] == '-') return name;
    if (!flag || name != args[i] || !flag->TakesValue()) continue;
    const bool dashes = i + 1 < args.size() && args[i + 1].starts_with("--");
    if (!flag->value.is_optional || !dashes) ++i;
  }
  return "";
}

std::vector<std::string> LongNames(const Command& command) {
  std::vector<std::string> all;
  for (const Flag& flag : command.flags) {
    if (flag.hidden) continue;
    for (std::string& name : flag.Names()) {
      if (IsLongName(name)) all.push_back(std::move(name));
    }
  }
  return all;
}

// Reports a command or option that does not exist, and the nearest of `known`.
// Returns the exit code.
int Refuse(const Walk& walk, const std::string& kind, const std::string& name,
           const std::vector<std::string>& known, CliEnvironment* env) {
  const std::string near = Nearest(name, known);
  *env->err << fmt::format(
      "lockstep: {0} has no {1} {2}{3}\n{0} --help lists "
      "them\n",
      walk.full_name, kind, Printable(name),
      near.empty() ? "" : "; did you mean " + near + "?");
  return kExitUsage;
}

// `names` is its name, followed by "," and an alias if it has one.
template <typename... Children>
Command GroupCommand(const std::string& names, const std::string& description,
                     const std::string& example, Children... children) {
  const size_t comma = std::min(names.find(','), names.size());
  Command group(names.substr(0, comma), description,
                "\nExample:\n  " + example);
  if (comma < names.size()) group.alias = names.substr(comma + 1);
  (group.children.push_back(std::move(children)), ...);
  return group;
}

// Warns while there is time to replace an expiring certificate.
void WarnOfExpiry(const pki::Credentials& credentials, const std::string& path,
                  CliEnvironment* env) {
  const Duration left = credentials.not_after - env->clock->Now().wall;
  if (left >= kExpiryWarning) return;
  *env->err << fmt::format(
      "lockstep: the certificate {} expires in {}, at {}; `lockstep cert "
      "issue` "
      "makes another\n",
      path, FormatDuration(left), FormatWallTime(credentials.not_after));
}

// All arguments after the script's name belong to the script.
void TakeScript(const Walk& walk, const std::vector<std::string>& all,
                const std::vector<std::string>& leading,
                std::vector<std::string>* args, Cli* cli) {
  const size_t script = SkipFlags(*walk.command, *args, walk.end);
  if (script >= args->size()) return;
  cli->has_program = true;
  cli->program.assign(
      all.begin() + static_cast<ptrdiff_t>(leading.size() + script), all.end());
  args->resize(script);
}

// Keeps only the options of `bench` itself. The others, and --help after the
// benchmark's name, go to lockstep-bench.
void TakeBench(const Walk& walk, std::vector<std::string>* args, Cli* cli) {
  std::vector<std::string> own(
      args->begin(), args->begin() + static_cast<ptrdiff_t>(walk.end));
  std::vector<std::string> others;
  for (size_t i = walk.end; i < args->size(); ++i) {
    const std::string& word = (*args)[i];
    const std::string name = word.substr(0, word.find('='));
    const Flag* flag = walk.command->Find(name);
    const bool has_what = !others.empty() && !others[0].starts_with('-');
    if (flag && has_what && flag->IsHelp()) flag = nullptr;
    (flag ? own : others).push_back(word);
    const bool takes_value = flag && flag->TakesValue();
    if (takes_value && name == word && i + 1 < args->size()) {
      own.push_back((*args)[++i]);
    }
  }
  others.insert(others.end(), cli->program.begin(), cli->program.end());
  cli->program = std::move(others);
  cli->has_program = true;
  *args = std::move(own);
}

}  // namespace

StatusOr<std::unique_ptr<Client>> Cli::Connect() const {
  LOCKSTEP_ASSIGN_OR_RETURN(const ClientOptions options,
                            ResolveConnection(connection, *env));
  if (!options.insecure_loopback) {
    // Client reports their errors.
    const auto credentials = pki::LoadCredentials(
        RealFileSystem(), {options.ca, options.certificate, options.key},
        env->clock->Now().wall);
    if (credentials.ok()) WarnOfExpiry(*credentials, options.certificate, env);
  }
  return Client::Connect(options);
}

StatusOr<bool> Cli::Confirm(const std::string& question, bool yes) const {
  if (yes) return true;
  if (!env->in_is_tty || !env->err_is_tty) {
    return InvalidArgument(
        "{}? There is no terminal for the answer: give --yes", question);
  }
  *env->err << question << "? [y/N] " << std::flush;
  std::string answer;
  std::getline(*env->in, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

Command BuildCommands(Cli* cli) {
  Command root = GroupCommand(
      "lockstep",
      "Trains on several hosts in lockstep: submit, watch and cancel jobs.", "",
      GroupCommand("local", "A whole cluster on this machine",
                   "lockstep local up --workers 2", LocalUpCommand(cli),
                   LocalDownCommand(cli), LocalStatusCommand(cli),
                   LocalTrainCommand(cli)),
      SubmitCommand(cli, false), RunCommand(cli, false),
      GroupCommand(
          "plan", "Show placement and price of a submission; change nothing",
          "lockstep plan submit --tasks 2 --gpus 1 -- python3 train.py",
          SubmitCommand(cli, true), RunCommand(cli, true),
          TrainingCommand(cli, true)),
      GroupCommand(
          "jobs,job", "Jobs", "lockstep jobs describe fashion",
          GroupCommand(
              "submit", "Submit a job as `gcloud ai-platform` does",
              "lockstep jobs submit training vision_1 --config config.yaml",
              TrainingCommand(cli, false)),
          JobsListCommand(cli), JobsDescribeCommand(cli), JobsWaitCommand(cli),
          JobsCancelCommand(cli), JobsLogsCommand(cli),
          JobsCheckpointCommand(cli), JobsRestoreToCommand(cli),
          JobsResizeCommand(cli), JobsFilesCommand(cli), JobsCpCommand(cli),
          JobsStacksCommand(cli), JobsWhyCommand(cli), JobsProfileCommand(cli),
          JobsTensorboardCommand(cli), JobsDeleteCommand(cli),
          JobsUpdateCommand(cli), JobsStreamLogsCommand(cli)),
      GroupCommand("nodes,node", "Hosts with their worker daemons",
                   "lockstep nodes list -o wide", NodesListCommand(cli),
                   NodesDescribeCommand(cli), NodesDrainCommand(cli),
                   NodesUndrainCommand(cli), NodesCheckCommand(cli),
                   NodesApproveCommand(cli), NodesForgetCommand(cli)),
      ExecCommand(cli), ForwardCommand(cli), EventsCommand(cli),
      BenchCommand(cli), TopCommand(cli), UiCommand(cli), UsageCommand(cli),
      InitCommand(cli),
      GroupCommand("cert", "Certificates of daemons and users",
                   "lockstep cert issue worker host-a", CertIssueCommand(cli)),
      GroupCommand("context,contexts", "Clusters, and how to connect to them",
                   "lockstep context set lab --address HOST:7443 --credentials "
                   "user-ann",
                   ContextListCommand(cli), ContextShowCommand(cli),
                   ContextUseCommand(cli), ContextSetCommand(cli),
                   ContextDeleteCommand(cli)),
      CompletionCommand(cli), VersionCommand(cli));
  root.footer =
      "\nAny other NAME runs the program lockstep-NAME in this directory, as in"
      "\n`lockstep data pack`."
      "\n\nExit codes: 0 success, 1 any other error, 2 wrong usage or request,"
      "\n3 not found, 4 denied, 5 the job fits no node, 6 the coordinator is"
      "\nunreachable, 124 after --timeout, 130 after Ctrl-C. Commands that"
      "\nfollow a job to its end return its exit code.\n\nExample:\n"
      "  lockstep local up && lockstep submit --tasks 2 -- hostname";
  root.AddProgramFlags(
      {1,
       kVersion,
       "Connection",
       {"lockstep-coordinator(8)", "lockstep-worker(8)", "lockstep-train(1)",
        "lockstep-bench(1)", "lockstep-data(1)"}});
  return root;
}

int RunCli(const std::vector<std::string>& all, CliEnvironment* env) {
  if (!all.empty() && all[0] == "__complete") {
    return RunComplete({all.begin() + 1, all.end()}, env);
  }
  Cli cli;
  cli.env = env;
  const auto dashes = std::find(all.begin(), all.end(), "--");
  std::vector<std::string> args(all.begin(), dashes);
  const std::vector<std::string> leading = TakeConnectionOptions(&args);
  if (!args.empty() && args[0] == "help") {
    args.erase(args.begin());
    args.push_back("--help");
  }
  const Command root = BuildCommands(&cli);
  const Walk walk = WalkTree(root, args);
  if (!walk.unknown.empty()) {
    if (walk.command == &root && leading.empty()) {
      RunExternal(env->program_dir, all, walk.index);
    }
    return Refuse(walk, "command", walk.unknown, CommandNames(*walk.command),
                  env);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (IsUtf8(all[i])) continue;
    *env->err << fmt::format("lockstep: argument {} is not UTF-8\n", i + 1);
    return kExitUsage;
  }
  const std::string& name = walk.command->name;
  const bool is_leaf = walk.command->children.empty();
  if (dashes != all.end()) {
    cli.has_program = true;
    cli.program.assign(dashes + 1, all.end());
  }
  if (is_leaf && name == "run") TakeScript(walk, all, leading, &args, &cli);
  if (is_leaf && name == "bench") TakeBench(walk, &args, &cli);
  if (is_leaf) {
    if (const std::string bad = UnknownFlag(*walk.command, args, walk.end);
        !bad.empty()) {
      return Refuse(walk, "option", bad, LongNames(*walk.command), env);
    }
    args.insert(args.begin() + static_cast<ptrdiff_t>(walk.end),
                leading.begin(), leading.end());
  }
  const ParsedCommand parsed = Parse(root, args);
  *env->out << parsed.text;
  if (!parsed.error.empty()) {
    *env->err << fmt::format("lockstep: {}\nSee {} --help\n",
                             Printable(parsed.error), walk.full_name);
    return kExitUsage;
  }
  if (!parsed.command) return 0;
  if (cli.has_program && !IsOneOf(kTakeProgram, name)) {
    *env->err << fmt::format("lockstep: {} takes nothing after --\n",
                             walk.full_name);
    return kExitUsage;
  }
  const StatusOr<int> code = parsed.command->run();
  if (code.ok()) return *code;
  *env->err << ErrorLine(code.status()) << "\n";
  return ExitCodeOf(code.status());
}

}  // namespace lockstep::cli
