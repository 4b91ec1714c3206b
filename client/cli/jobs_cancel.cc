#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "client/cli/await_checkpoint.h"
#include "client/cli/cli.h"
#include "client/cli/errors.h"
#include "client/cli/find.h"
#include "client/cli/follow.h"
#include "client/cli/job_resource.h"

namespace lockstep::cli {
namespace {

struct CancelFlags {
  std::vector<std::string> names;
  bool wait = false;
  bool save = false;
};

// For a checkpoint.
constexpr Duration kSavePatience = std::chrono::minutes(5);

// The results of the names, in order. The exit code is the worst of them.
struct CancelOutcome {
  std::vector<v1::Job> jobs;
  int code = 0;
};

void TakeOutcome(const Cli& cli, const std::string& name, StatusOr<v1::Job> job,
                 CancelOutcome* outcome) {
  if (job.ok()) {
    outcome->jobs.push_back(*std::move(job));
    return;
  }
  // The error already names the job.
  const Status status = job.status().code() == StatusCode::kNotFound
                            ? job.status()
                            : Annotate(job.status(), name);
  *cli.env->err << ErrorLine(status) << "\n";
  outcome->code = std::max(outcome->code, ExitCodeOf(status));
}

// A job keeps its state until its ranks have ended. One that was already ending
// keeps its outcome.
bool IsBeingCancelled(const v1::Job& job) {
  return !IsFinalState(job.state()) &&
         (job.state() != v1::JOB_STATE_FINISHING ||
          job.cause().reason() == v1::REASON_CANCELLED_BY_USER);
}

// Writes one job as it is. Several become one JSON message, like `jobs list`,
// or one YAML document each.
Status WriteCancelled(const Cli& cli, const std::vector<v1::Job>& jobs,
                      bool several) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Output output, cli.OutputFormat());
  std::ostream& out = *cli.env->out;
  if (output == Output::kJson && several) {
    out << Dump(JobResources(jobs));
    return OkStatus();
  }
  for (const v1::Job& job : jobs) {
    if (output == Output::kTable || output == Output::kWide) {
      out << fmt::format("{} {}\n", Printable(job.name()),
                         IsBeingCancelled(job)
                             ? "CANCELLING"
                             : cli.OutStyle().State(job.state()));
      continue;
    }
    if (output == Output::kYaml && several) out << "---\n";
    LOCKSTEP_RETURN_IF_ERROR(WriteJob(cli, job));
  }
  return OkStatus();
}

// Requires the whole name, because a prefix may match another job.
StatusOr<v1::Job> Cancel(Client* client, const std::string& name) {
  StatusOr<v1::Job> job = client->CancelJob(name);
  if (job.status().code() != StatusCode::kNotFound) return job;
  return NoSuchJob(client, name);
}

// A job that does not save is not cancelled.
StatusOr<v1::Job> SaveAndCancel(const Cli& cli, Client* client,
                                const std::string& name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::Job before, client->GetJob(name));
  LOCKSTEP_RETURN_IF_ERROR(client->RequestCheckpoint(name).status());
  LOCKSTEP_ASSIGN_OR_RETURN(
      const AwaitedCheckpoint awaited,
      AwaitCheckpoint(cli.env, client, before, kSavePatience));
  if (awaited.code == 0) return Cancel(client, name);
  return DeadlineExceeded("no checkpoint came{}: the job was not cancelled",
                          awaited.code == kExitTimedOut
                              ? " within " + FormatDuration(kSavePatience)
                              : std::string(" so far"));
}

StatusOr<int> RunCancel(const Cli& cli, const CancelFlags& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  CancelOutcome outcome;
  for (const std::string& name : options.names) {
    TakeOutcome(cli, name,
                options.save ? SaveAndCancel(cli, client.get(), name)
                             : Cancel(client.get(), name),
                &outcome);
  }
  if (options.wait) {
    // Waits only after all cancels are sent.
    const std::vector<v1::Job> cancelled = std::move(outcome.jobs);
    outcome.jobs.clear();
    for (const v1::Job& job : cancelled) {
      TakeOutcome(cli, job.name(),
                  client->WaitJob(job.name(), std::chrono::minutes(2), nullptr),
                  &outcome);
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(
      WriteCancelled(cli, outcome.jobs, options.names.size() > 1));
  return outcome.code;
}

}  // namespace

Command JobsCancelCommand(Cli* cli) {
  const auto options = std::make_shared<CancelFlags>();
  Command command = LeafCommand(
      "cancel", "End jobs: SIGTERM to their ranks, 30 s later SIGKILL",
      "  lockstep jobs cancel fashion\n"
      "  lockstep jobs cancel fashion other --wait\n"
      "  lockstep jobs cancel fashion --save\n\n"
      "An ended job stays unchanged. The command returns when the\n"
      "coordinator has accepted it; a job whose ranks still end is\n"
      "CANCELLING. No checkpoint is saved without --save. A job that\n"
      "cannot save, or does not within 5 minutes, is then not cancelled.");
  command.Add("name JOB", &options->names, "Full names of the jobs", Required);
  command.Add("--wait", &options->wait,
              "Wait until they have ended, at most 2 minutes each");
  command.Add("--save", &options->save,
              "First save a checkpoint, of all ranks at the same step");
  AddRequestOptions(&command, cli);
  command.run = [=] { return RunCancel(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
