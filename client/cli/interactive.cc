#include "client/cli/interactive.h"

#include <poll.h>
#include <unistd.h>

#include <ostream>

#include "client/cli/job_view.h"

namespace lockstep::cli {
namespace {

constexpr int kPollMillis = 300;

// The rank's program: it waits, without work, for the session's exit code, and
// ends with it. A file of its own, because a job's directory may be shared.
constexpr char kHolder[] =
    "f=.lockstep-$LOCKSTEP_JOB; rm -f \"$f\"; mkfifo -m 600 \"$f\" || exit 1; "
    "trap 'rm -f \"$f\"' EXIT; trap 'exit 143' TERM; "
    "read code <\"$f\"; exit \"$code\"";
constexpr char kRelease[] = "echo \"$0\" >\".lockstep-$LOCKSTEP_JOB\"";

// Ends the rank's program with `code`.
Status Release(Client* client, const std::string& name, int code) {
  v1::SessionRequest request;
  request.set_name(name);
  for (const std::string& argument :
       {std::string("sh"), std::string("-c"), std::string(kRelease),
        std::to_string(code)}) {
    request.mutable_command()->add_argv(argument);
  }
  const auto session = OpenSession(client, request);
  v1::SessionOutput output;
  while (session->Read(&output)) {
  }
  return session->Finish();
}

}  // namespace

StatusOr<std::vector<std::string>> MakeInteractive(v1::JobSpec* spec) {
  if (const int ranks = RankCount(*spec); ranks != 1) {
    return InvalidArgument(
        "--tty: the job has {} ranks; an interactive one has one rank (use "
        "`lockstep exec` for others)",
        ranks);
  }
  if (spec->kind() == v1::JOB_KIND_NATIVE) {
    return InvalidArgument("--tty is for programs, not for native jobs");
  }
  std::vector<std::string> program(spec->argv().begin(), spec->argv().end());
  spec->clear_argv();
  for (const char* argument : {"sh", "-c", kHolder}) spec->add_argv(argument);
  // Nothing is lost that another try would bring back.
  spec->set_restart_budget(0);
  spec->set_hang(v1::HANG_POLICY_OFF);
  if (!spec->has_idle_stop()) {
    spec->mutable_idle_stop()->set_seconds(kInteractiveIdleSeconds);
  }
  return program;
}

StatusOr<v1::Job> AwaitRunning(const Cli& cli, Client* client,
                               const std::string& name, HeldSignals* held) {
  std::string told;
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(v1::Job job, client->GetJob(name));
    if (job.state() == v1::JOB_STATE_RUNNING || IsFinalState(job.state())) {
      return job;
    }
    if (const std::string& why = job.cause().message();
        !why.empty() && why != told) {
      *cli.env->err << Printable(why) << "\n" << std::flush;
      told = why;
    }
    pollfd signal = {held->fd(), POLLIN, 0};
    if (poll(&signal, 1, kPollMillis) != 1) continue;
    const int signo = held->Take();
    if (signo != 0 && signo != SIGWINCH) {
      return Cancelled("interrupted while the job waited");
    }
  }
}

StatusOr<int> RunInteractive(const Cli& cli, Client* client,
                             const std::string& name,
                             const std::vector<std::string>& program,
                             HeldSignals* held) {
  const auto run = [&]() -> StatusOr<int> {
    LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job job,
                              AwaitRunning(cli, client, name, held));
    if (IsFinalState(job.state())) {
      return FailedPrecondition("job {} has ended: {}", name,
                                job.cause().message());
    }
    v1::SessionRequest request;
    request.set_name(name);
    v1::CommandSession* const command = request.mutable_command();
    command->mutable_argv()->Add(program.begin(), program.end());
    *command->mutable_terminal() = SizeOfTerminal(STDIN_FILENO);
    command->set_term(cli.env->Variable("TERM"));
    const auto session = OpenSession(client, request);
    return RunSession(cli, session.get(), {true, true}, held);
  };
  const auto code = run();
  if (code.ok() && Release(client, name, *code).ok()) return *code;
  // What the user held is not to go on without the user.
  const auto cancelled = client->CancelJob(name);
  if (!cancelled.ok()) {
    *cli.env->err << fmt::format(
        "lockstep: job {} was not ended: {}; it ends when it is idle\n", name,
        Printable(Message(cancelled.status())));
  }
  return code;
}

}  // namespace lockstep::cli
