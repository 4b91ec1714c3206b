#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/flag_names.h"
#include "client/cli/follow.h"
#include "client/cli/interactive.h"
#include "client/cli/job_file.h"
#include "client/cli/job_view.h"
#include "client/cli/plan.h"
#include "client/cli/resource_options.h"
#include "client/cli/submit_spec.h"
#include "common/base/file.h"
#include "common/base/random.h"
#include "common/model/limits.h"

namespace lockstep::cli {
namespace {

constexpr uint64_t kMaxJobFile = 1 << 20;

constexpr char kSubmitExamples[] =
    "  lockstep submit --tasks 2 --name hello -- echo hello\n"
    "  lockstep submit --tasks 2 --checkpoint-interval-steps 200 -- "
    "lockstep-train --train /data/fashion\n"
    "  lockstep submit -f job.yaml --dry-run\n\n"
    "The program and its arguments follow --; a program without \"/\" is\n"
    "looked up in PATH of the nodes. Flags override the file. Without\n"
    "--detach it follows the job to its end and returns its exit code: 0\n"
    "for SUCCEEDED; for FAILED that of the first rank that failed (or 1); 1\n"
    "for CANCELLED. Ctrl-C (130), SIGTERM (143) and SIGHUP (129) leave the\n"
    "job running.\n\n"
    "A job file has the fields of JobSpec in YAML:\n"
    "  name: fashion\n"
    "  kind: native\n"
    "  roles:\n"
    "  - {type: chief, count: 1, resources: {cpus: 1, memoryBytes: 1GiB}}\n"
    "  - {type: worker, count: 1, resources: {cpus: 1, memoryBytes: 1GiB}}\n"
    "  argv: [lockstep-train, --train, /data/fashion]\n"
    "  checkpoint: {intervalSteps: 200}";

constexpr char kPlanSubmitExamples[] =
    "  lockstep plan submit --tasks 2 --gpus 1 -- python3 train.py\n"
    "  lockstep plan submit -f job.yaml -o json\n\n"
    "The command line of `lockstep submit`, whose --help explains a job\n"
    "file. Shows each role with its machine and reservation, where its\n"
    "tasks would run now or why they would wait, and the cost per hour.\n"
    "Nothing is submitted. Returns 0, also if the job would wait; 5 if no\n"
    "node can ever run it.";

struct SubmitCommandFlags {
  SubmitFlags flags;
  std::string file;
  std::string reduction_plan;
  bool dry_run = false;
  bool detach = false;
  bool terminal = false;
};

StatusOr<v1::JobSpec> ReadFile(const std::string& path, CliEnvironment* env) {
  if (path.empty()) return v1::JobSpec();
  if (path == "-") {
    const std::string text{std::istreambuf_iterator<char>(*env->in), {}};
    return ParseJobFile(text, "stdin");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text,
                            RealFileSystem()->Read(path, kMaxJobFile));
  return ParseJobFile(text, path);
}

// For --tty: the program is a shell if there is none.
Status UseTerminal(const SubmitCommandFlags& options, const CliEnvironment& env,
                   SubmitFlags* flags) {
  if (!options.terminal) return OkStatus();
  if (!env.in_is_tty) {
    return InvalidArgument("--tty: the standard input is not a terminal");
  }
  if (flags->program.empty() && options.file.empty()) {
    flags->program.assign(std::begin(kShell), std::end(kShell));
  }
  return OkStatus();
}

StatusOr<int> RunSubmit(const Cli& cli, const SubmitCommandFlags& options) {
  CliEnvironment* const env = cli.env;
  SubmitFlags flags = options.flags;
  flags.program = cli.program;
  LOCKSTEP_RETURN_IF_ERROR(UseTerminal(options, *env, &flags));
  if (!options.reduction_plan.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        flags.reduction_plan,
        RealFileSystem()->Read(options.reduction_plan, kMaxReductionPlan));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::JobSpec file,
                            ReadFile(options.file, env));
  LOCKSTEP_ASSIGN_OR_RETURN(v1::JobSpec spec,
                            BuildSpec(flags, file, *env, RandomHex(3)));
  std::vector<std::string> program;
  std::optional<HeldSignals> held;
  if (options.terminal) {
    LOCKSTEP_ASSIGN_OR_RETURN(program, MakeInteractive(&spec));
    held.emplace();
  }
  *env->err << RelativeDataNote(spec, *env) << ContainerPathsNote(spec);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  // From here on a signal detaches and does not end this process at once.
  if (!held && env->interrupted && env->interrupted()) return kExitInterrupted;
  SubmitOptions submit;
  submit.validate_only = options.dry_run;
  const auto answer = client->SubmitJob(spec, submit);
  if (!answer.ok()) {
    return options.file.empty() ? WithSubmitFlags(answer.status())
                                : answer.status();
  }
  const v1::SubmitJobResponse& response = *answer;
  if (options.dry_run) return WritePlan(cli, response);
  *env->err << fmt::format("job {} submitted: {}, {}{}\n", spec.name(),
                           Count(TaskCount(spec), "task"),
                           Count(RankCount(spec), "rank"),
                           spec.output_directory().empty()
                               ? ""
                               : ", output in " + spec.output_directory());
  if (held) {
    return RunInteractive(cli, client.get(), spec.name(), program, &*held);
  }
  if (!options.detach) {
    FollowOptions follow;
    follow.job = spec.name();
    return FollowToEnd(cli, client.get(), follow);
  }
  *env->err << fmt::format("to follow it:  lockstep jobs wait {}\n",
                           spec.name());
  if (cli.output == "table" || cli.output == "wide") {
    *env->out << spec.name() << "\n";
  } else {
    LOCKSTEP_RETURN_IF_ERROR(WriteJob(cli, response.job()));
  }
  return 0;
}

void AddTaskOptions(const FlagGroup& group, SubmitFlags* f) {
  group.Add("--tasks", &f->tasks,
            "Tasks: a chief and N - 1 workers (default: 1)", AtLeast(1));
  group.Add("--workers", &f->workers,
            "N workers and no chief, instead of --tasks", AtLeast(1));
  group.Add("--ranks-per-task", &f->ranks_per_task,
            "Processes of a task (default: 1)", AtLeast(1));
  AddResourceOptions(group, f, "task");
  group.Add(
      "--working-directory,--workdir DIR", &f->working_directory,
      "Directory in which ranks start: a folder of the nodes, or \"output\", "
      "the output directory (default: the task's own folder, see "
      "`lockstep jobs files`)");
}

void AddJobOptions(const FlagGroup& group, SubmitFlags* f) {
  group.Add("--name", &f->name,
            "Job name, never reused (default: the program's, and six "
            "hexadecimal digits)");
  group.Add("--kind", &f->kind,
            "native or program (default: native for lockstep-train, otherwise "
            "program)",
            OneOf({"native", "program"}));
  group.Add("--output DIR", &f->output,
            "Output directory, shared by all hosts (default: for native jobs "
            "~/lockstep/NAME, for programs none)");
  group.Add("--checkpoint-interval-steps", &f->checkpoint_interval_steps,
            "A checkpoint every N steps (default: none by step)", AtLeast(0));
  group.Add("--checkpoint-keep", &f->checkpoint_keep,
            "Number of checkpoints to keep (default: 3)", AtLeast(1));
  group.Add("--restart-budget,--max-restarts", &f->restart_budget,
            "Restarts without progress before the job fails; 0: none (default: "
            "3)",
            AtLeast(0));
  AddEndOptions(group, f);
  AddHangOptions(group, f);
  group.Add("--priority", &f->priority, "0 to 1000, larger first (default: 0)",
            InRange(0, 1000));
  group.Add("--max-running-time DURATION", &f->max_running_time,
            "End the job after this time, as 2h (default: no limit)");
  group.Add("--max-wait-time DURATION", &f->max_wait_time,
            "End the job if it waits longer, as 10m (default: no limit)");
  group.Add("--label", &f->labels, "KEY=VALUE; may be given several times",
            MayRepeat);
  group.Add("--comment", &f->comment, "Free text");
}

}  // namespace

Command SubmitCommand(Cli* cli, bool plan) {
  const auto options = std::make_shared<SubmitCommandFlags>();
  Command command = LeafCommand(
      "submit",
      plan ? "Show what `submit` would do: [OPTIONS] -- PROGRAM ARGS..."
           : "Submit a job: [OPTIONS] -- PROGRAM ARGS...",
      plan ? kPlanSubmitExamples : kSubmitExamples);
  command.Add("-f,--file FILE", &options->file,
              "Job file in YAML; - reads it from stdin");
  command.Add("--dry-run", &options->dry_run,
              "Check the job and show its placement; submit nothing",
              HiddenIf(plan));
  command.Add("--detach", &options->detach, "Do not follow the job",
              HiddenIf(plan));
  command.Add("-t,--tty", &options->terminal,
              "Run the program, or a shell, with this terminal; the job ends "
              "with it, and after --idle-stop (default: 30m) without work",
              HiddenIf(plan), Excludes({"--detach", "--dry-run"}));
  const FlagGroup job = command.Group("Job");
  AddJobOptions(job, &options->flags);
  job.Add(
      "--reduction-plan FILE", &options->reduction_plan,
      "For native jobs: reduce gradients by this plan, which `jobs "
      "describe JOB --reduction-plan` prints (default: the first generation "
      "makes a plan)");
  AddTaskOptions(command.Group("Tasks"), &options->flags);
  AddRequestOptions(&command, cli);
  command.run = [=] {
    options->dry_run = options->dry_run || plan;
    return RunSubmit(*cli, *options);
  };
  return command;
}

}  // namespace lockstep::cli
