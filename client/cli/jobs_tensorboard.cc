#include <poll.h>
#include <unistd.h>

#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/forward.h"
#include "client/cli/interactive.h"
#include "client/cli/job_view.h"
#include "client/cli/submit_spec.h"
#include "common/base/random.h"

namespace lockstep::cli {
namespace {

constexpr int kMissing = 127;
// For TensorBoard to listen, which imports much.
constexpr Duration kStartTime = std::chrono::minutes(2);
constexpr int kTryMillis = 300;

// With the interpreter and the directory. It listens on the port that is leased
// for the job.
constexpr char kServeEvents[] =
    "\"$0\" -c 'import tensorboard' 2>/dev/null || { echo \"tensorboard is not "
    "installed for $0\" >&2; exit 127; }; exec \"$0\" -m tensorboard.main "
    "--logdir \"$1\" --port \"$MASTER_PORT\"";

struct TensorboardFlags {
  std::string name;
  std::string directory;
  std::string python = "python3";
  std::string port = "6006";
};

StatusOr<v1::JobSpec> SpecOf(const Cli& cli, const TensorboardFlags& options,
                             const v1::Job& job) {
  const std::string directory = options.directory.empty()
                                    ? job.spec().output_directory()
                                    : options.directory;
  if (directory.empty()) {
    return FailedPrecondition(
        "job {} has no output directory: name the folder of its event files by "
        "--logdir",
        job.name());
  }
  SubmitFlags flags;
  flags.name = job.name().substr(0, 40) + "-tensorboard-" + RandomHex(3);
  flags.kind = "program";
  flags.cpus = 1;
  flags.memory = "2GiB";
  if (!job.spec().pool().empty()) flags.pool = job.spec().pool();
  flags.restart_budget = 0;
  flags.hang = "off";
  flags.comment = "TensorBoard of " + job.name();
  flags.program = {"sh", "-c", kServeEvents, options.python, directory};
  LOCKSTEP_ASSIGN_OR_RETURN(
      v1::JobSpec spec,
      BuildSpec(flags, v1::JobSpec(), *cli.env, RandomHex(3)));
  spec.mutable_idle_stop()->set_seconds(kInteractiveIdleSeconds);
  return spec;
}

// The port that is leased for the running job.
StatusOr<int32_t> PortOf(Client* client, const std::string& name) {
  v1::SessionRequest request;
  request.set_name(name);
  for (const char* argument : {"sh", "-c", "echo $MASTER_PORT"}) {
    request.mutable_command()->add_argv(argument);
  }
  const auto session = OpenSession(client, request);
  std::string text;
  v1::SessionOutput output;
  while (session->Read(&output)) text += output.data();
  LOCKSTEP_RETURN_IF_ERROR(session->Finish());
  const int port = atoi(text.c_str());
  if (port > 0) return port;
  return Unavailable("job {} has no leased port", name);
}

StatusOr<int> Serve(const Cli& cli, Client* client,
                    const TensorboardFlags& options, const std::string& name,
                    PortPair pair, HeldSignals* held) {
  const MonoTime until = MonotonicNow() + kStartTime;
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job,
                              AwaitRunning(cli, client, name, held));
    if (IsFinalState(job.state())) {
      if (ExitCodeOf(job) == kMissing) {
        return FailedPrecondition(
            "TensorBoard is missing on the nodes: install it for their {0} "
            "(pip install tensorboard), or name an interpreter that has it by "
            "--python",
            options.python);
      }
      return FailedPrecondition(
          "TensorBoard has ended: {}; see `lockstep jobs "
          "logs {}`",
          job.cause().message(), name);
    }
    const auto port = PortOf(client, name);
    if (port.ok()) {
      pair.remote = *port;
      const auto answers = Answers(client, {name, 0, "", {}}, *port);
      if (answers.ok() && *answers) break;
    }
    if (MonotonicNow() >= until) {
      return DeadlineExceeded("TensorBoard does not listen after {}",
                              FormatDuration(kStartTime));
    }
    pollfd signal = {held->fd(), POLLIN, 0};
    if (poll(&signal, 1, kTryMillis) != 1) continue;
    if (const int signo = held->Take(); signo != 0 && signo != SIGWINCH) {
      return 128 + signo;
    }
  }
  ForwardTarget target;
  target.job = name;
  target.ports = {pair};
  *cli.env->err << "TensorBoard is ready for a browser at this address, until "
                   "Ctrl-C:\n"
                << std::flush;
  return Forward(cli, client, target, held);
}

StatusOr<int> RunTensorboard(const Cli& cli, const TensorboardFlags& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const PortPair pair, ParsePortPair(options.port));
  HeldSignals held;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), options.name));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job, client->GetJob(name));
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::JobSpec spec, SpecOf(cli, options, job));
  LOCKSTEP_RETURN_IF_ERROR(client->SubmitJob(spec).status());
  *cli.env->err << fmt::format("job {} submitted\n", spec.name()) << std::flush;
  const auto code = Serve(cli, client.get(), options, spec.name(), pair, &held);
  if (const auto ended = client->CancelJob(spec.name()); !ended.ok()) {
    *cli.env->err << fmt::format("lockstep: job {} was not ended: {}\n",
                                 spec.name(), Message(ended.status()));
  }
  return code;
}

}  // namespace

Command JobsTensorboardCommand(Cli* cli) {
  const auto options = std::make_shared<TensorboardFlags>();
  Command command = LeafCommand(
      "tensorboard", "Show a job's event files in TensorBoard",
      "  lockstep jobs tensorboard fashion\n"
      "  lockstep jobs tensorboard fashion --port 8006 --python ~/venv/bin/"
      "python\n\n"
      "A small job of yours (1 core, 2 GiB, in the job's pool) runs\n"
      "TensorBoard over the output directory, and its port is forwarded to\n"
      "this machine. It ends with this command, or after 30 minutes without\n"
      "work. The nodes need TensorBoard: pip install tensorboard.");
  AddJobArgument(&command, &options->name);
  command.Add("--logdir DIR", &options->directory,
              "Folder of event files on the nodes (default: the job's output "
              "directory)");
  command.Add("--port PORT", &options->port, "Local port", ShowDefault);
  command.Add("--python PROGRAM", &options->python,
              "Interpreter on the nodes that has TensorBoard", ShowDefault);
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunTensorboard(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
