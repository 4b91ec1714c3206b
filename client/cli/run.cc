// `lockstep run`: torchrun's command line as a job that is followed.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/job_view.h"
#include "client/cli/live_output.h"
#include "client/cli/log_text.h"
#include "client/cli/plan.h"
#include "client/cli/resource_options.h"
#include "client/cli/run_spec.h"
#include "client/cli/stream_job.h"
#include "client/cli/summary.h"
#include "common/base/random.h"

namespace lockstep {
namespace {

constexpr char kExamples[] =
    "  lockstep run --nnodes 2 --nproc-per-node 1 train.py --epochs 5\n"
    "  lockstep run --nnodes 2 --nproc-per-node gpu --gpus 4 -m trainer.task\n"
    "\ntorchrun's command line: what follows the script is its own. A job of a"
    "\nchief and NNODES - 1 workers with NPROC ranks each, which find their"
    "\nplace in torchrun's variables; nobody starts anything on a node. They"
    "\nstart in the working directory, which the nodes must see under the same"
    "\npath. GPUs are those asked for by --gpus, of each node.\n"
    "\nWhat ranks write to stdout and stderr is written to these. Ctrl-C ends"
    "\nthe job, and so do SIGTERM and SIGHUP. Returns 0 for SUCCEEDED, for"
    "\nFAILED the code of the first rank that failed (else 1), 130 after"
    "\nCtrl-C, 143 after SIGTERM, 129 after SIGHUP.";

constexpr char kPlanExamples[] =
    "  lockstep plan run --nnodes 2 --nproc-per-node 1 train.py --epochs 5\n"
    "\nThe command line of `lockstep run`, without what follows a job. Shows"
    "\neach role with its machine and what it reserves, where its tasks would"
    "\ngo now or why they would wait, and what an hour costs. Nothing is"
    "\nsubmitted. Returns 0, also where the job would wait; 5 where no node"
    "\ncould ever take it.";

struct Options {
  RunFlags flags;
  bool prefix = false;
  bool dry_run = false;
  // For --help: what it would be is taken off before.
  std::string script;
};

StatusOr<int> Follow(const Cli& cli, Client* client, const Options& options,
                     const std::string& name) {
  CliEnvironment* const env = cli.env;
  StreamJobOptions stream;
  stream.job = name;
  stream.cancels = true;
  stream.tells_waiting = true;
  LogFormat format;
  format.prefix = options.prefix;
  const Style style = cli.OutStyle();
  LiveOutput output(env);
  stream.partial_lines = true;
  stream.write = [&](const v1::LogLine& line) {
    return output.Write(line, FormatLogLine(line, format, style),
                        line.stream() == "stderr");
  };
  stream.say = [&](const std::string& text) { output.Say(text); };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto job, StreamJob(cli, client, stream));
  output.Finish();
  // A job that Ctrl-C cancels is waited for.
  if (!job) return kExitInterrupted;
  *env->out << std::flush;
  if (job->state() == v1::JOB_STATE_FAILED) {
    *env->err << "lockstep: " << name << " FAILED; "
              << FormatFailure(*job, {}, cli.ErrStyle());
  } else if (job->state() == v1::JOB_STATE_CANCELLED) {
    *env->err << fmt::format("lockstep: {} CANCELLED: {}\n", name,
                             Printable(job->cause().message()));
    const bool ours = env->interrupted && env->interrupted();
    return ours ? kExitInterrupted : kExitError;
  }
  return ExitCodeOf(*job);
}

StatusOr<int> Run(const Cli& cli, const Options& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const RunRequest request,
      BuildRun(options.flags, cli.program, *cli.env, RandomHex(3)));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  WriteNotes(cli, request.notes);
  // From here on a signal cancels the job; it does not end this process.
  if (cli.env->interrupted && cli.env->interrupted()) return kExitInterrupted;
  SubmitOptions submit;
  submit.validate_only = options.dry_run;
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::SubmitJobResponse response,
                            client->SubmitJob(request.spec, submit));
  if (options.dry_run) return WritePlan(cli, response);
  const std::string& name = request.spec.name();
  *cli.env->err << fmt::format("job {} submitted: {}, {}\n", name,
                               Count(TaskCount(request.spec), "task"),
                               Count(RankCount(request.spec), "rank"));
  return Follow(cli, client.get(), options, name);
}

void AddTorchrunOptions(CLI::App* app, RunFlags* f) {
  const char* const group = "torchrun's";
  app->add_option("--nnodes", f->nnodes, "Nodes, each one task (default: 1)")
      ->type_name("N")
      ->group(group);
  app->add_option("--nproc-per-node,--nproc_per_node", f->nproc_per_node,
                  "Ranks of a node: a number, gpu, cpu or auto (default: 1)")
      ->type_name("N")
      ->group(group);
  app->add_option("--max-restarts,--max_restarts", f->max_restarts,
                  "Failures without progress before it fails (default: 0)")
      ->check(AtLeast(0))
      ->group(group);
  app->add_flag("-m,--module", f->module, "SCRIPT is a Python module")
      ->group(group);
  app->add_flag("--no-python,--no_python", f->no_python,
                "SCRIPT is a program of its own")
      ->group(group);
  app->add_flag("--standalone", f->standalone, "One node")->group(group);
  for (const char* name :
       {"--rdzv-backend,--rdzv_backend", "--rdzv-endpoint,--rdzv_endpoint",
        "--rdzv-id,--rdzv_id", "--rdzv-conf,--rdzv_conf",
        "--node-rank,--node_rank", "--master-addr,--master_addr",
        "--master-port,--master_port", "--local-addr,--local_addr",
        "--monitor-interval,--monitor_interval",
        "--start-method,--start_method", "--role", "--log-dir,--log_dir",
        "-r,--redirects", "-t,--tee",
        "--local-ranks-filter,--local_ranks_filter"}) {
    const std::string all = name;
    const size_t begin = all.find("--");
    const std::string flag = all.substr(begin, all.find(',', begin) - begin);
    app->add_option_function<std::string>(
           name, [f, flag](const std::string&) { f->settled.push_back(flag); },
           "Not used: lockstep settles it")
        ->group(group);
  }
}

void AddOwnOptions(CLI::App* app, SubmitFlags* f, std::string* python) {
  const char* const group = "lockstep's";
  app->add_option("--name", f->name,
                  "Unique for ever (default: the script's, and six "
                  "hexadecimal digits)")
      ->group(group);
  app->add_option("--python", *python,
                  "Interpreter (default: of the active virtual environment, "
                  "else python3 of the nodes)")
      ->group(group);
  AddResourceOptions(app, f, "node", group);
  app->add_option("--output", f->output,
                  "Output directory, seen by all hosts (default: none)")
      ->type_name("DIR")
      ->group(group);
  AddEndOptions(app, f, group);
  app->add_option("--workdir", f->working_directory,
                  "Where ranks start: a folder that the nodes have, or "
                  "\"output\", the output directory (default: the working "
                  "directory)")
      ->type_name("DIR")
      ->group(group);
  app->add_option("--max-running-time", f->max_running_time,
                  "End it after so long, as 2h (default: no limit)")
      ->type_name("DURATION")
      ->group(group);
}

void Add(CLI::App* parent, Cli* cli, const std::string& description,
         bool plan) {
  auto options = std::make_shared<Options>();
  CLI::App* const app =
      AddCommand(parent, "run", description, plan ? kPlanExamples : kExamples);
  app->add_option("script", options->script,
                  "The script (or module, or program), behind which all is its "
                  "own")
      ->type_name("FILE");
  AddTorchrunOptions(app, &options->flags);
  AddOwnOptions(app, &options->flags.job, &options->flags.python);
  CLI::Option* const dry_run =
      app->add_flag("--dry-run", options->dry_run,
                    "Check it and show where it would go; submit nothing");
  CLI::Option* const prefix = app->add_flag("--prefix", options->prefix,
                                            "Each line's rank and task first");
  if (plan) {
    // The same command line is taken.
    for (CLI::Option* option : {dry_run, prefix}) option->group(kNoEffect);
  }
  AddOutputOption(app, cli);
  AddConnectionOptions(app, cli);
  app->callback([=] {
    options->dry_run = options->dry_run || plan;
    cli->run = [=] { return Run(*cli, *options); };
  });
}

}  // namespace

void AddRun(CLI::App* parent, Cli* cli) {
  Add(parent, cli,
      "Run a script on several nodes, as torchrun: [OPTIONS] SCRIPT ARGS...",
      false);
}

void AddPlanRun(CLI::App* parent, Cli* cli) {
  Add(parent, cli, "What `run` would do: [OPTIONS] SCRIPT ARGS...", true);
}

}  // namespace lockstep
