// `lockstep run`: runs torchrun's command line as a followed job.
#include <fmt/format.h>

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

namespace lockstep::cli {
namespace {

constexpr char kRunExamples[] =
    "  lockstep run --nnodes 2 --nproc-per-node 1 train.py --epochs 5\n"
    "  lockstep run --nnodes 2 --nproc-per-node gpu --gpus 4 -m "
    "trainer.task\n\n"
    "torchrun's command line: arguments after the script are its own. A job\n"
    "of a chief and NNODES - 1 workers with NPROC ranks each, which find\n"
    "their place in torchrun's variables; no start on the nodes is needed.\n"
    "They start in the working directory, which the nodes must see under\n"
    "the same path. --gpus is per node.\n\n"
    "The ranks' stdout and stderr appear on the command's. Ctrl-C ends the\n"
    "job, and so do SIGTERM and SIGHUP. Returns 0 for SUCCEEDED; for FAILED\n"
    "the code of the first rank that failed (or 1); 130 after Ctrl-C, 143\n"
    "after SIGTERM, 129 after SIGHUP.";

constexpr char kPlanRunExamples[] =
    "  lockstep plan run --nnodes 2 --nproc-per-node 1 train.py --epochs 5\n\n"
    "The command line of `lockstep run`, without flags for following a job.\n"
    "Shows each role with its machine and reservation, where its tasks\n"
    "would run now or why they would wait, and the cost per hour. Nothing\n"
    "is submitted. Returns 0, also if the job would wait; 5 if no node can\n"
    "ever run it.";

struct RunCommandFlags {
  RunFlags flags;
  bool prefix = false;
  bool dry_run = false;
  // For --help only; the value is removed from the arguments before.
  std::string script;
};

StatusOr<int> FollowRun(const Cli& cli, Client* client,
                        const RunCommandFlags& options,
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
  stream.print_note = [&](const std::string& text) { output.PrintNote(text); };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto job, StreamJob(cli, client, stream));
  output.Finish();
  // A job that Ctrl-C cancels is awaited.
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

StatusOr<int> SubmitRun(const Cli& cli, const RunCommandFlags& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const RunRequest request,
      BuildRun(options.flags, cli.program, *cli.env, RandomHex(3)));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  WriteNotes(cli, request.notes);
  // From here on a signal cancels the job and does not end this process.
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
  return FollowRun(cli, client.get(), options, name);
}

void AddTorchrunOptions(const FlagGroup& group, RunFlags* f) {
  group.Add("--nnodes N", &f->nnodes,
            "Nodes, each one task; MIN:MAX for a job that runs with as many as "
            "there is room for (default: 1)");
  group.Add("--nproc-per-node N", &f->nproc_per_node,
            "Ranks per node: a number, gpu, cpu or auto (default: 1)");
  group.Add("--max-restarts", &f->max_restarts,
            "Failures without progress before the job fails (default: 0)",
            AtLeast(0));
  group.Add("-m,--module", &f->module, "SCRIPT is a Python module");
  group.Add("--no-python", &f->no_python, "SCRIPT is an executable program");
  group.Add("--standalone", &f->standalone, "One node");
  for (const char* name :
       {"--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf",
        "--node-rank", "--master-addr", "--master-port", "--local-addr",
        "--monitor-interval", "--start-method", "--role", "--log-dir",
        "-r,--redirects", "-t,--tee", "--local-ranks-filter"}) {
    const std::string all = name;
    const size_t begin = all.find("--");
    const std::string flag = all.substr(begin, all.find(',', begin) - begin);
    group.Add(
        name, [f, flag](const std::string&) { f->settled.push_back(flag); },
        "Not used: lockstep sets it");
  }
}

void AddOwnOptions(const FlagGroup& group, SubmitFlags* f,
                   std::string* python) {
  group.Add("--name", &f->name,
            "Job name, never reused (default: the script's, and six "
            "hexadecimal digits)");
  group.Add("--python", python,
            "Interpreter (default: the active virtual environment's, or "
            "python3 on the nodes)");
  AddResourceOptions(group, f, "node");
  group.Add("--output DIR", &f->output,
            "Output directory, shared by all hosts (default: none)");
  AddEndOptions(group, f);
  AddHangOptions(group, f);
  group.Add(
      "--workdir DIR", &f->working_directory,
      "Directory in which ranks start: a folder of the nodes, or \"output\", "
      "the output directory (default: the working directory)");
  group.Add("--max-running-time DURATION", &f->max_running_time,
            "End the job after this time, as 2h (default: no limit)");
}

}  // namespace

Command RunCommand(Cli* cli, bool plan) {
  const auto options = std::make_shared<RunCommandFlags>();
  Command command =
      LeafCommand("run",
                  plan ? "Show what `run` would do: [OPTIONS] SCRIPT ARGS..."
                       : "Run a script on several nodes, as torchrun: "
                         "[OPTIONS] SCRIPT ARGS...",
                  plan ? kPlanRunExamples : kRunExamples);
  command.Add("script FILE", &options->script,
              "The script (or module, or program); the rest are its arguments");
  AddTorchrunOptions(command.Group("torchrun's"), &options->flags);
  AddOwnOptions(command.Group("lockstep's"), &options->flags.job,
                &options->flags.python);
  command.Add("--dry-run", &options->dry_run,
              "Check the job and show its placement; submit nothing",
              HiddenIf(plan));
  command.Add("--prefix", &options->prefix, "Print each line's rank and task",
              HiddenIf(plan));
  AddRequestOptions(&command, cli);
  command.run = [=] {
    options->dry_run = options->dry_run || plan;
    return SubmitRun(*cli, *options);
  };
  return command;
}

}  // namespace lockstep::cli
