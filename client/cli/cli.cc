#include "client/cli/cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <istream>
#include <ostream>
#include <string_view>

#include "client/cli/completion.h"
#include "client/cli/errors.h"
#include "client/cli/external.h"
#include "common/base/file.h"
#include "common/base/version.h"
#include "common/cli/man.h"
#include "common/model/names.h"
#include "common/pki/credentials.h"

namespace lockstep {
namespace {

constexpr std::string_view kConnectionFlags[] = {"--context", "--address",
                                                 "--ca", "--cert", "--key"};
// Commands behind whose "--" a program or its arguments stand.
constexpr std::string_view kTakeProgram[] = {"submit", "run", "training",
                                             "train", "bench"};
constexpr Duration kExpiryWarning = std::chrono::hours(24 * 30);

template <size_t N>
bool IsOneOf(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

// Every name and alias among the commands of `app`.
std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands({})) {
    names.push_back(sub->get_name());
  }
  return names;
}

CLI::App* FindCommand(CLI::App* app, const std::string& name) {
  for (CLI::App* sub : app->get_subcommands({})) {
    const auto& aliases = sub->get_aliases();
    if (sub->get_name() == name ||
        std::find(aliases.begin(), aliases.end(), name) != aliases.end()) {
      return sub;
    }
  }
  return nullptr;
}

// The number of arguments up to the first that is not an option of `app`
// itself or an option's value.
size_t SkipOptions(CLI::App* app, const std::vector<std::string>& args,
                   size_t begin) {
  size_t i = begin;
  while (i < args.size() && args[i].size() > 1 && args[i][0] == '-') {
    const CLI::Option* const option = app->get_option_no_throw(args[i]);
    const bool takes_value = option && option->get_items_expected_max() > 0;
    i += takes_value ? 2 : 1;
  }
  return i;
}

// Walks the tree along the words of `args`. What it finds wrong it says
// better than the parser would.
struct Walk {
  CLI::App* app = nullptr;
  // The word that is no command of `app`; empty: none.
  std::string unknown;
  // Its index in the arguments.
  size_t index = 0;
  // Of the first argument behind the command's words.
  size_t end = 0;
};

Walk WalkTree(CLI::App* root, const std::vector<std::string>& args) {
  Walk walk{root, "", 0, 0};
  size_t i = 0;
  while (!walk.app->get_subcommands({}).empty()) {
    i = SkipOptions(walk.app, args, i);
    if (i >= args.size()) return walk;
    CLI::App* const next = FindCommand(walk.app, args[i]);
    if (!next) {
      walk.unknown = args[i];
      walk.index = i;
      return walk;
    }
    walk.app = next;
    walk.end = ++i;
  }
  return walk;
}

// Options of how to connect that stand before the command, out of `args`.
std::vector<std::string> TakeConnectionOptions(std::vector<std::string>* args) {
  std::vector<std::string> taken;
  size_t i = 0;
  while (i < args->size()) {
    const std::string name = (*args)[i].substr(0, (*args)[i].find('='));
    if (name == "--insecure-loopback" || name == "--insecure_loopback" ||
        (IsOneOf(kConnectionFlags, name) && name != (*args)[i])) {
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

// The first "--name" behind args[begin] that is no option of `app`; empty:
// there is none. The value of an option is none.
std::string UnknownOption(CLI::App* app, const std::vector<std::string>& args,
                          size_t begin) {
  for (size_t i = begin; i < args.size(); ++i) {
    const std::string name = args[i].substr(0, args[i].find('='));
    if (name.size() < 2 || name[0] != '-') continue;
    const CLI::Option* const option = app->get_option_no_throw(name);
    if (!option && name.size() > 2 && name[1] == '-') return name;
    if (!option || name != args[i] || option->get_items_expected_max() == 0) {
      continue;
    }
    const bool may_lack = option->get_items_expected_min() == 0;
    const bool dashes = i + 1 < args.size() && args[i + 1].starts_with("--");
    if (!may_lack || !dashes) ++i;
  }
  return "";
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

std::string FullName(const CLI::App* app) {
  std::string name = app->get_name();
  for (const CLI::App* p = app->get_parent(); p; p = p->get_parent()) {
    name = p->get_name() + " " + name;
  }
  return name;
}

int UnknownCommand(const Walk& walk, CliEnvironment* env) {
  const std::string near = Nearest(walk.unknown, CommandNames(*walk.app));
  *env->err << fmt::format("lockstep: {} has no command {}", FullName(walk.app),
                           Printable(walk.unknown));
  if (!near.empty()) *env->err << fmt::format("; did you mean {}?", near);
  *env->err << fmt::format("\n{} --help lists them\n", FullName(walk.app));
  return kExitUsage;
}

int BadOption(const Walk& walk, const std::string& option,
              CliEnvironment* env) {
  const std::string near = Nearest(option, OptionNames(*walk.app));
  *env->err << fmt::format(
      "lockstep: {} has no option {}{}\n{} --help lists "
      "them\n",
      FullName(walk.app), Printable(option),
      near.empty() ? "" : "; did you mean " + near + "?", FullName(walk.app));
  return kExitUsage;
}

int Parse(CLI::App* app, const Walk& walk, std::vector<std::string> args,
          CliEnvironment* env) {
  // CLI11 wants them back to front.
  std::reverse(args.begin(), args.end());
  try {
    app->parse(args);
  } catch (const CLI::CallForHelp&) {
    *env->out << walk.app->help(
        walk.app->get_parent() ? FullName(walk.app->get_parent()) : "");
    return 0;
  } catch (const CLI::CallForVersion&) {
    *env->out << "lockstep " << kVersion << "\n";
    return 0;
  } catch (const CLI::Success&) {
    return 0;  // The manual page is written.
  } catch (const CLI::ParseError& e) {
    *env->err << fmt::format("lockstep: {}\n{} --help tells more\n",
                             Printable(e.what()), FullName(walk.app));
    return kExitUsage;
  }
  return -1;
}

CLI::App* AddGroup(CLI::App* root, const std::string& name,
                   const std::string& alias, const std::string& description,
                   const std::string& example) {
  CLI::App* const group = root->add_subcommand(name, description);
  if (!alias.empty()) group->alias(alias);
  group->require_subcommand(1);
  group->footer("\nExample:\n  " + example);
  return group;
}

void AddFormats(CLI::App* app, Cli* cli, const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& format : all) {
    text += text.empty() ? "" : format == all.back() ? " or " : ", ";
    text += format;
  }
  app->add_option("-o,--output-format", cli->output, text)
      ->check(CLI::IsMember(all))
      ->type_name("FORMAT")
      ->capture_default_str();
  app->add_flag_callback(
      "--json", [cli] { cli->output = "json"; }, "As -o json");
  app->add_option("--color", cli->color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN")
      ->capture_default_str();
}

// A certificate that ends soon is told of while there is time to replace it.
void WarnOfExpiry(const Credentials& credentials, const std::string& path,
                  CliEnvironment* env) {
  const Duration left = credentials.not_after - env->clock->Now().wall;
  if (left >= kExpiryWarning) return;
  *env->err << fmt::format(
      "lockstep: the certificate {} ends in {}, at {}; `lockstep cert issue` "
      "makes another\n",
      path, FormatDuration(left), FormatWallTime(credentials.not_after));
}

// What follows the script's name is its own, whatever it looks like.
void TakeScript(const Walk& walk, const std::vector<std::string>& all,
                const std::vector<std::string>& leading,
                std::vector<std::string>* args, Cli* cli) {
  const size_t script = SkipOptions(walk.app, *args, walk.end);
  if (script >= args->size()) return;
  cli->has_program = true;
  cli->program.assign(
      all.begin() + static_cast<ptrdiff_t>(leading.size() + script), all.end());
  args->resize(script);
}

// Of `bench` only its own options stay; the others are lockstep-bench's, and
// so is --help behind what is measured.
void TakeBench(const Walk& walk, std::vector<std::string>* args, Cli* cli) {
  std::vector<std::string> own(
      args->begin(), args->begin() + static_cast<ptrdiff_t>(walk.end));
  std::vector<std::string> others;
  for (size_t i = walk.end; i < args->size(); ++i) {
    const std::string& word = (*args)[i];
    const std::string name = word.substr(0, word.find('='));
    const CLI::Option* option =
        name.starts_with('-') ? walk.app->get_option_no_throw(name) : nullptr;
    const bool has_what = !others.empty() && !others[0].starts_with('-');
    if (has_what && option == walk.app->get_help_ptr()) option = nullptr;
    (option ? own : others).push_back(word);
    const bool takes_value = option && option->get_items_expected_max() > 0;
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
    // What is wrong with them Client says.
    const auto credentials = LoadCredentials(
        RealFileSystem(), {options.ca, options.certificate, options.key},
        env->clock->Now().wall);
    if (credentials.ok()) WarnOfExpiry(*credentials, options.certificate, env);
  }
  return Client::Connect(options);
}

StatusOr<bool> Cli::Confirm(const std::string& question, bool yes) const {
  if (yes) return true;
  if (!env->in_is_tty || !env->err_is_tty) {
    return InvalidArgument("{}? Give --yes: nobody can be asked here",
                           question);
  }
  *env->err << question << "? [y/N] " << std::flush;
  std::string answer;
  std::getline(*env->in, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

void AddConnectionOptions(CLI::App* app, Cli* cli) {
  ConnectionFlags* const c = &cli->connection;
  const char* const group = "Connection (else LOCKSTEP_*, else the context)";
  app->add_option("--context", c->context, "Context of the configuration file")
      ->group(group);
  app->add_option("--address", c->address, "HOST:PORT of the coordinator")
      ->group(group);
  app->add_option("--ca", c->ca, "PEM file of the cluster's CA")->group(group);
  app->add_option("--cert", c->cert, "PEM file of our certificate")
      ->group(group);
  app->add_option("--key", c->key, "PEM file of its key")->group(group);
  app->add_flag("--insecure-loopback,--insecure_loopback", c->insecure_loopback,
                "No TLS; on this machine only")
      ->group(group);
}

void AddOutputOption(CLI::App* app, Cli* cli) {
  AddFormats(app, cli, {"table", "wide", "json", "yaml", "name"});
}

void AddListOptions(CLI::App* app, Cli* cli) {
  AddFormats(app, cli,
             {"table", "wide", "json", "jsonl", "yaml", "csv", "name"});
  app->add_flag("--no-headers", cli->no_headers,
                "Without the line of column names");
  app->add_flag("--uri", cli->uri, "Only the URI of each, as gcloud's");
  app->add_option("--columns", cli->columns,
                  "Only these columns of -o wide, in this order, as NAME,STATE")
      ->delimiter(',')
      ->type_name("NAMES");
}

CLI::Option* AddFormatOption(CLI::App* app, std::string* format) {
  return app
      ->add_option("--format", *format,
                   "As gcloud takes it, instead of -o: json, yaml, "
                   "value(FIELDS), csv(FIELDS), table(FIELDS) or default; "
                   "FIELDS as jobId,trainingInput.scaleTier,lockstep.owner")
      ->type_name("FORMAT");
}

std::function<std::string(const std::string&)> AtLeast(int64_t least) {
  return [least](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0') {
      return fmt::format("\"{}\" is not a number", Printable(text));
    }
    if (!(value >= static_cast<double>(least))) {
      return fmt::format("{} is less than {}", Printable(text), least);
    }
    return "";
  };
}

CLI::App* AddCommand(CLI::App* parent, const std::string& name,
                     const std::string& description,
                     const std::string& examples) {
  CLI::App* const app = parent->add_subcommand(name, description);
  app->footer("\nExamples:\n" + examples);
  return app;
}

std::unique_ptr<CLI::App> BuildApp(Cli* cli) {
  auto root = std::make_unique<CLI::App>(
      "Trains on several hosts in lockstep: submit, watch and cancel jobs.",
      "lockstep");
  root->set_version_flag("--version", kVersion);
  root->require_subcommand(1);
  root->footer(
      "\nAny other NAME runs the program lockstep-NAME beside this one, as in"
      "\n`lockstep data pack`."
      "\n\nExit codes: 0 good, 1 any other error, 2 wrong usage or request,"
      "\n3 not found, 4 denied, 5 the job fits no node, 6 the coordinator is"
      "\nnot reached, 124 --timeout is over, 130 after Ctrl-C. Commands that"
      "\nfollow a job to its end return its exit code.\n\nExample:\n"
      "  lockstep local up && lockstep submit --tasks 2 -- hostname");
  CLI::App* const local =
      AddGroup(root.get(), "local", "", "A whole cluster on this machine",
               "lockstep local up --workers 2");
  AddLocalUp(local, cli);
  AddLocalDown(local, cli);
  AddLocalStatus(local, cli);
  AddLocalTrain(local, cli);
  AddSubmit(root.get(), cli);
  AddRun(root.get(), cli);
  CLI::App* const plan =
      AddGroup(root.get(), "plan", "",
               "What a submission would come to: place, price; changes nothing",
               "lockstep plan submit --tasks 2 --gpus 1 -- python3 train.py");
  AddPlanSubmit(plan, cli);
  AddPlanRun(plan, cli);
  AddPlanTraining(plan, cli);
  CLI::App* const jobs = AddGroup(root.get(), "jobs", "job", "Jobs",
                                  "lockstep jobs describe fashion");
  CLI::App* const jobs_submit =
      AddGroup(jobs, "submit", "", "Submit a job as `gcloud ai-platform` does",
               "lockstep jobs submit training vision_1 --config config.yaml");
  AddJobsSubmitTraining(jobs_submit, cli);
  AddJobsList(jobs, cli);
  AddJobsDescribe(jobs, cli);
  AddJobsWait(jobs, cli);
  AddJobsCancel(jobs, cli);
  AddJobsLogs(jobs, cli);
  AddJobsCheckpoint(jobs, cli);
  AddJobsRestoreTo(jobs, cli);
  AddJobsFiles(jobs, cli);
  AddJobsCp(jobs, cli);
  AddJobsDelete(jobs, cli);
  AddJobsUpdate(jobs, cli);
  AddJobsStreamLogs(jobs, cli);
  CLI::App* const nodes =
      AddGroup(root.get(), "nodes", "node", "Hosts with their worker daemons",
               "lockstep nodes list -o wide");
  AddNodesList(nodes, cli);
  AddNodesDescribe(nodes, cli);
  AddNodesDrain(nodes, cli);
  AddNodesUndrain(nodes, cli);
  AddNodesApprove(nodes, cli);
  AddNodesForget(nodes, cli);
  AddEvents(root.get(), cli);
  AddBench(root.get(), cli);
  AddTop(root.get(), cli);
  AddUi(root.get(), cli);
  AddInit(root.get(), cli);
  CLI::App* const cert =
      AddGroup(root.get(), "cert", "", "Certificates of daemons and users",
               "lockstep cert issue worker host-a");
  AddCertIssue(cert, cli);
  CLI::App* const context = AddGroup(
      root.get(), "context", "contexts", "Clusters, and how to connect to them",
      "lockstep context set lab --address HOST:7443 --credentials user-ann");
  AddContextList(context, cli);
  AddContextShow(context, cli);
  AddContextUse(context, cli);
  AddContextSet(context, cli);
  AddContextDelete(context, cli);
  AddCompletion(root.get(), cli);
  AddVersion(root.get(), cli);
  if (cli->env && cli->env->out) {
    AddManOption(
        root.get(),
        {1,
         kVersion,
         "Connection",
         {"lockstep-coordinator(8)", "lockstep-worker(8)", "lockstep-train(1)",
          "lockstep-bench(1)", "lockstep-data(1)"}},
        cli->env->out);
  }
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
  const std::unique_ptr<CLI::App> app = BuildApp(&cli);
  const Walk walk = WalkTree(app.get(), args);
  if (!walk.unknown.empty()) {
    if (walk.app == app.get() && leading.empty()) {
      RunExternal(env->program_dir, all, walk.index);
    }
    return UnknownCommand(walk, env);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    if (IsUtf8(all[i])) continue;
    *env->err << fmt::format("lockstep: argument {} is not UTF-8\n", i + 1);
    return kExitUsage;
  }
  const std::string& name = walk.app->get_name();
  const bool is_leaf = walk.app->get_subcommands({}).empty();
  if (dashes != all.end()) {
    cli.has_program = true;
    cli.program.assign(dashes + 1, all.end());
  }
  if (is_leaf && name == "run") TakeScript(walk, all, leading, &args, &cli);
  if (is_leaf && name == "bench") TakeBench(walk, &args, &cli);
  if (is_leaf) {
    if (const std::string bad = UnknownOption(walk.app, args, walk.end);
        !bad.empty()) {
      return BadOption(walk, bad, env);
    }
    args.insert(args.begin() + static_cast<ptrdiff_t>(walk.end),
                leading.begin(), leading.end());
  }
  const int parsed = Parse(app.get(), walk, args, env);
  if (parsed >= 0) return parsed;
  if (cli.has_program && !IsOneOf(kTakeProgram, name)) {
    *env->err << fmt::format("lockstep: {} takes nothing after --\n",
                             FullName(walk.app));
    return kExitUsage;
  }
  const StatusOr<int> code = cli.run();
  if (code.ok()) return *code;
  *env->err << ErrorLine(code.status()) << "\n";
  return ExitCodeOf(code.status());
}

}  // namespace lockstep
