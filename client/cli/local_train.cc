// `lockstep local train`: runs all tasks of a job on this machine in a
// temporary cluster.
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/job_view.h"
#include "client/cli/live_output.h"
#include "client/cli/local_train_spec.h"
#include "client/cli/log_text.h"
#include "client/cli/plan.h"
#include "client/cli/stream_job.h"
#include "client/cli/summary.h"
#include "client/cli/training_packages.h"
#include "client/local/local_cluster.h"
#include "client/local/ports.h"
#include "common/base/file.h"
#include "common/os/process.h"

namespace lockstep::cli {
namespace {

constexpr int32_t kHighestStartPort = 65000;

constexpr char kLocalTrainExamples[] =
    "  lockstep local train --package-path trainer --module-name trainer.task "
    "\\\n"
    "      --distributed --worker-count 2 --parameter-server-count 1 -- "
    "--epochs 1\n\n"
    "The command line of `gcloud ai-platform`. Every task is a process of\n"
    "this machine, with the variables of a cluster. The chief gets port\n"
    "START, parameter servers and workers the following ones. Tasks start\n"
    "in the package's parent folder, with the variables that are set here;\n"
    "a relative --job-dir is below the working directory. The first failed\n"
    "task ends all; so does Ctrl-C. Returns the chief's exit code, or that\n"
    "of a task that failed before it.";

// Removes a temporary cluster if this process is killed. A process in its own
// session waits for the end of a pipe.
class ClusterGuard {
 public:
  // If it fails, the run continues without it.
  void Start(const CliEnvironment& env, const std::string& dir) {
    const std::string program = JoinPath(env.program_dir, "lockstep");
    if (access(program.c_str(), X_OK) != 0) return;
    auto pipe = MakePipe();
    if (!pipe.ok()) return;
    SpawnOptions options;
    options.program = "/bin/sh";
    options.argv = {"sh", "-c",
                    "read -r word && exit; \"$0\" local down --clean --yes "
                    "--dir \"$1\" && rm -rf -- \"$1\"",
                    program, dir};
    options.env = CurrentEnvironment();
    options.cwd = "/";
    options.stdin_fd = pipe->read.get();
    options.new_session = true;
    auto process = Spawn(options);
    if (!process.ok()) return;
    process_ = *std::move(process);
    end_ = std::move(pipe->write);
  }
  // The cluster is removed.
  void Dismiss() {
    if (!end_) return;
    (void)!write(end_.get(), "done\n", 5);
    end_.Reset();
    const MonoTime deadline = MonotonicNow() + kGuardTime;
    WaitExit(process_, deadline).IgnoreError();
  }

 private:
  static constexpr Duration kGuardTime = std::chrono::seconds(2);

  Process process_;
  Fd end_;  // The pipe's end, which no other process has.
};

// A cluster in its own folder. Both are removed at the end.
class ThrowAwayCluster {
 public:
  ThrowAwayCluster() = default;
  ~ThrowAwayCluster() {
    if (cluster_) {
      DownOptions down;
      down.clean = true;
      // After a second signal it does not wait for jobs.
      if (signals_ && signals_() > 1) down.job_patience = Duration::zero();
      cluster_->Down(down).status().IgnoreError();
    }
    if (!dir_.empty()) RealFileSystem()->RemoveAll(dir_).IgnoreError();
    guard_.Dismiss();
  }
  ThrowAwayCluster(const ThrowAwayCluster&) = delete;
  ThrowAwayCluster& operator=(const ThrowAwayCluster&) = delete;

  Status Start(const CliEnvironment& env, const std::string& ports) {
    const std::string tmp = env.Variable("TMPDIR");
    std::string dir =
        JoinPath(tmp.empty() ? "/tmp" : tmp, "lockstep-train-XXXXXX");
    if (!mkdtemp(dir.data())) {
      return ErrnoStatus(errno, "making a folder " + dir);
    }
    dir_ = dir;
    signals_ = env.signals;
    guard_.Start(env, dir);
    LocalClusterOptions options;
    options.dir = dir;
    options.workers = 1;
    options.bin_dir = env.Variable("LOCKSTEP_BIN");
    if (options.bin_dir.empty()) options.bin_dir = env.program_dir;
    options.log_level = "warn";
    options.extra_arguments[WorkerName(0)] = {"--ports", ports};
    options.stopped = env.interrupted;
    LOCKSTEP_ASSIGN_OR_RETURN(cluster_, LocalCluster::Make(options));
    return cluster_->Up().status();
  }
  ClientOptions client_options() const { return cluster_->client_options(); }

 private:
  std::string dir_;
  std::function<int()> signals_;
  ClusterGuard guard_;
  std::unique_ptr<LocalCluster> cluster_;
};

// How far the start port may move to avoid used ports.
constexpr int32_t kFarthestMove = 1000;

// The tasks' ports are contiguous. If one is in use, all begin later, and
// `*note` says so.
Status FindStartPort(LocalTrainFlags* flags, std::string* note) {
  const int32_t wanted = flags->start_port;
  const int32_t tasks = LocalTrainTasks(*flags);
  int32_t used = 0;
  for (int32_t start = wanted; start <= wanted + kFarthestMove;) {
    int32_t free = 0;
    while (free < tasks && start + free <= kHighestStartPort &&
           PortIsFree(static_cast<uint16_t>(start + free))) {
      ++free;
    }
    if (free == tasks) {
      flags->start_port = start;
      if (start != wanted) {
        *note = fmt::format(
            "--start-port {}: another program uses port {}; the tasks' ports "
            "begin at {}",
            wanted, used, start);
      }
      return OkStatus();
    }
    if (used == 0) used = start + free;
    start += free + 1;
  }
  return FailedPrecondition(
      "--start-port {}: another program uses port {}, and there are no {} free "
      "contiguous ports up to {}; give another",
      wanted, used, tasks, wanted + kFarthestMove);
}

// Returns the chief's exit code if it decided.
int ExitOf(const v1::Job& job) {
  for (const RankView& rank : LastRanks(job)) {
    const v1::ExitStatus& exit = rank.rank->exit();
    if (rank.task->type() == v1::TASK_TYPE_CHIEF && rank.rank->has_exit() &&
        !exit.victim() && exit.has_code() && exit.code() != 0) {
      return exit.code();
    }
  }
  return ExitCodeOf(job);
}

StatusOr<int> FollowLocalTrain(const Cli& cli, Client* client,
                               const std::string& name) {
  CliEnvironment* const env = cli.env;
  StreamJobOptions stream;
  stream.job = name;
  stream.cancels = true;
  stream.leaves_at_second = true;
  stream.tells_waiting = true;
  const Style style = cli.OutStyle();
  LiveOutput output(env);
  stream.partial_lines = true;
  stream.write = [&](const v1::LogLine& line) {
    return output.Write(line, FormatLogLine(line, {}, style),
                        line.stream() == "stderr");
  };
  stream.print_note = [&](const std::string& text) { output.PrintNote(text); };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto job, StreamJob(cli, client, stream));
  output.Finish();
  if (!job) return kExitInterrupted;
  *env->out << std::flush;
  if (job->state() == v1::JOB_STATE_CANCELLED) return kExitInterrupted;
  if (job->state() == v1::JOB_STATE_FAILED) {
    *env->err << "lockstep: FAILED; "
              << FormatFailure(*job, {}, cli.ErrStyle());
  }
  return ExitOf(*job);
}

StatusOr<int> RunLocalTrain(const Cli& cli, LocalTrainFlags flags) {
  CliEnvironment* const env = cli.env;
  flags.args = cli.program;
  LOCKSTEP_ASSIGN_OR_RETURN(v1::JobSpec spec, BuildLocalTrain(flags, *env));
  // From now on signals are events, because the cluster must be stopped.
  if (env->signals) env->signals();
  if (env->interrupted && env->interrupted()) return kExitInterrupted;
  WriteNotes(cli, LocalTrainNotes(flags));
  const std::string folder =
      JoinPath(env->working_directory, flags.package_path);
  // Python searches the start directory for the module before the package, so
  // it must not hold another package of that name.
  LOCKSTEP_ASSIGN_OR_RETURN(const ModulePlace place,
                            FindModule(folder, flags.module_name));
  spec.set_working_directory(place.root);
  std::vector<PackedPackage> packages;
  LOCKSTEP_ASSIGN_OR_RETURN(packages.emplace_back(),
                            PackForModule(folder, flags.module_name, *env));
  std::string moved;
  LOCKSTEP_RETURN_IF_ERROR(FindStartPort(&flags, &moved));
  if (!moved.empty()) WriteNotes(cli, {moved});
  ThrowAwayCluster cluster;
  LOCKSTEP_RETURN_IF_ERROR(cluster.Start(*env, LocalTrainPorts(flags)));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client,
                            Client::Connect(cluster.client_options()));
  LOCKSTEP_RETURN_IF_ERROR(UploadAll(cli, client.get(), packages, true));
  for (const v1::Package& package : PackageMessages(packages)) {
    *spec.add_packages() = package;
  }
  LOCKSTEP_RETURN_IF_ERROR(client->SubmitJob(spec).status());
  return FollowLocalTrain(cli, client.get(), spec.name());
}

}  // namespace

Command LocalTrainCommand(Cli* cli) {
  const auto flags = std::make_shared<LocalTrainFlags>();
  Command command = LeafCommand(
      "train", "Run a training program on this machine: [OPTIONS] [-- ARGS...]",
      kLocalTrainExamples);
  LocalTrainFlags* const f = flags.get();
  command.Add("--module-name MODULE", &f->module_name,
              "Module to run, as trainer.task", Required);
  command.Add("--package-path DIR", &f->package_path,
              "Folder of its Python package (default: .)");
  command.Add("--distributed", &f->distributed,
              "Also workers, parameter servers and evaluators");
  command.Add("--worker-count", &f->worker_count, "With --distributed",
              InRange(0, 1000), ShowDefault, SetsGiven(&f->workers_given));
  command.Add("--parameter-server-count", &f->parameter_server_count,
              "With --distributed", InRange(0, 1000), ShowDefault,
              SetsGiven(&f->parameter_servers_given));
  command.Add("--evaluator-count", &f->evaluator_count,
              "With --distributed; at most 1", AtLeast(0), ShowDefault,
              SetsGiven(&f->evaluators_given));
  command.Add("--start-port", &f->start_port,
              "Port of the chief; a later one if it is in use",
              InRange(1024, kHighestStartPort), ShowDefault);
  command.Add("--job-dir DIR", &f->job_dir,
              "Output path, passed to the program as --job-dir");
  command.Add(
      "--python", &f->python,
      "Interpreter (default: the active virtual environment's, or python3)");
  command.run = [=] { return RunLocalTrain(*cli, *flags); };
  return command;
}

}  // namespace lockstep::cli
