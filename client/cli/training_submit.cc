// `lockstep jobs submit training`: AI Platform's command line.
#include <fmt/format.h>

#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/errors.h"
#include "client/cli/flag_names.h"
#include "client/cli/follow.h"
#include "client/cli/job_resource.h"
#include "client/cli/live_output.h"
#include "client/cli/log_text.h"
#include "client/cli/plan.h"
#include "client/cli/stream_job.h"
#include "client/cli/training_flags.h"
#include "client/cli/training_options.h"
#include "client/cli/training_packages.h"
#include "common/base/file.h"
#include "common/training/training_file.h"
#include "common/wire/training_wire.h"

namespace lockstep::cli {
namespace {

constexpr uint64_t kMaxConfig = 1 << 20;

constexpr char kTrainingExamples[] =
    "  lockstep jobs submit training vision_1 --config config.yaml \\\n"
    "      --master-image-uri gcr.io/my-project/trainer:1 -- trainer/task.py\n"
    "  lockstep jobs submit training vision_2 --package-path trainer \\\n"
    "      --module-name trainer.task --runtime-version 2.11 \\\n"
    "      --job-dir /data/vision_2 --stream-logs -- --epochs 5\n"
    "  lockstep jobs submit training vision_3 --config config.yaml "
    "--dry-run\n\n"
    "The command line of `gcloud ai-platform`, and its config file in YAML\n"
    "or JSON: flags override the file. The arguments after -- are the\n"
    "program's own. The site's tables define machine types, scale tiers,\n"
    "images and runtime versions. Fields without effect cause a note, or an\n"
    "error with --strict. A relative --job-dir or --package-path is\n"
    "relative to the working directory; a --job-dir with a scheme (gs://)\n"
    "is passed to the program unchanged. No staging bucket is needed:\n"
    "packages go to the coordinator. A package path is what the module lies\n"
    "in: the folder trainer of trainer.task; what its .gcloudignore names\n"
    "stays out, and no setup.py is run.\n\n"
    "Without --stream-logs it returns at once. With it, lines are shown as\n"
    "`jobs stream-logs` does until the job has ended; Ctrl-C leaves the job\n"
    "running. Returns 0; 1 if it was rejected or, with --stream-logs, has\n"
    "not SUCCEEDED; 2 for wrong usage.";

constexpr char kPlanTrainingExamples[] =
    "  lockstep plan training vision_1 --config config.yaml\n"
    "  lockstep plan training vision_2 --package-path trainer \\\n"
    "      --module-name trainer.task --runtime-version 2.11 -- --epochs 5\n\n"
    "The command line of `lockstep jobs submit training`, whose --help\n"
    "explains it. Shows each role with its machine and reservation, where\n"
    "its tasks would run now or why they would wait, the cost per hour and\n"
    "notes about fields without effect. Nothing is submitted or uploaded.\n"
    "Returns 0, also if the job would wait; 1 if it was rejected or can\n"
    "never run here; 2 for wrong usage.";

StatusOr<TrainingJob> ReadTrainingConfig(const std::string& path,
                                         const CliEnvironment& env) {
  if (path.empty()) return TrainingJob();
  const std::string full = JoinPath(env.working_directory, path);
  const auto text = RealFileSystem()->Read(full, kMaxConfig);
  if (!text.ok()) return Annotate(text.status(), "--config");
  return ParseTrainingFile(*text, path);
}

// gcloud's short form: a few fields of the resource in YAML.
std::string ShortResource(const v1::Job& job) {
  std::string text = fmt::format("jobId: {}\n", job.name());
  const auto time = [](const google::protobuf::Timestamp& t) {
    return FormatWallTime(ToWallTime(t));
  };
  if (job.has_end_time())
    text = "endTime: '" + time(job.end_time()) + "'\n" + text;
  if (job.has_start_time()) {
    text += "startTime: '" + time(job.start_time()) + "'\n";
  }
  return text + "state: " + ResourceState(job) + "\n";
}

Status WriteSubmitted(const Cli& cli, const v1::Job& job) {
  if (cli.output == "table" || cli.output == "wide") {
    *cli.env->out << ShortResource(job);
    return OkStatus();
  }
  return WriteJob(cli, job);
}

// Fails if there are notes and --strict is set.
Status CheckStrict(const TrainingFlags& flags, const TrainingRequest& request,
                   const v1::SubmitJobResponse& response) {
  if (!flags.strict) return OkStatus();
  std::vector<std::string> notes = request.notes;
  notes.insert(notes.end(), response.notes().begin(), response.notes().end());
  if (notes.empty()) return OkStatus();
  return InvalidArgument("--strict: {}", Printable(notes[0]));
}

// FailedPrecondition if it can never run there.
StatusOr<bool> CheckFits(const std::string& job,
                         const v1::SubmitJobResponse& response) {
  if (response.never_fits().empty()) return true;
  std::string reasons;
  for (const std::string& reason : response.never_fits()) {
    reasons += (reasons.empty() ? "" : "; ") + Printable(reason);
  }
  return FailedPrecondition("job {} can never run here: {}", job, reasons);
}

// Streams to the end and returns the exit code.
StatusOr<int> StreamSubmitted(const Cli& cli, Client* client,
                              const std::string& name) {
  CliEnvironment* const env = cli.env;
  if (env->end_with_reader) env->end_with_reader();
  StreamJobOptions options;
  options.job = name;
  options.include_events = true;
  LiveOutput output(env);
  options.partial_lines = true;
  options.write = [&](const v1::LogLine& line) {
    return output.Write(line, FormatStreamedLine(line));
  };
  options.print_note = [&](const std::string& text) { output.PrintNote(text); };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto job, StreamJob(cli, client, options));
  output.Finish();
  if (!job && !env->out->good()) return kExitError;
  if (!job) {
    *env->err << fmt::format(
        "the job runs on. To see its lines again:\n\n"
        "  $ lockstep jobs stream-logs {0}\n\nor, to end it:\n\n"
        "  $ lockstep jobs cancel {0}\n",
        name);
    return kExitInterrupted;
  }
  LOCKSTEP_RETURN_IF_ERROR(WriteSubmitted(cli, *job));
  return job->state() == v1::JOB_STATE_SUCCEEDED ? 0 : kExitError;
}

// Without a file, notes use flag names.
std::vector<std::string> NotesFor(const TrainingFlags& flags,
                                  std::vector<std::string> notes) {
  if (!flags.config.empty()) return notes;
  for (std::string& note : notes) note = WithTrainingFlags(note);
  return notes;
}

// The coordinator's rejection is not a usage error.
template <typename T>
StatusOr<T> Answered(StatusOr<T> answer, bool* refused) {
  *refused = !answer.ok();
  return answer;
}

// Returns the packages that the request names, and its folder as one, which the
// request then names.
StatusOr<std::vector<PackedPackage>> PackagesOf(const CliEnvironment& env,
                                                TrainingRequest* request) {
  TrainingInput& input = request->job.training_input;
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<PackedPackage> packages,
                            OpenPackages(input.package_uris, env));
  if (request->package_path.empty()) return packages;
  LOCKSTEP_ASSIGN_OR_RETURN(
      PackedPackage package,
      PackForModule(request->package_path, input.python_module, env));
  std::string note =
      NoteOfSetup(request->package_path, input.python_module, env);
  if (!note.empty()) request->notes.push_back(std::move(note));
  input.package_uris.push_back(package.package.file_name);
  packages.push_back(std::move(package));
  return packages;
}

// Sets `*refused` if the error is the coordinator's.
StatusOr<int> Submit(const Cli& cli, const TrainingFlags& flags,
                     bool* refused) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(const TrainingJob file,
                            ReadTrainingConfig(flags.config, *env));
  LOCKSTEP_ASSIGN_OR_RETURN(TrainingRequest request,
                            BuildTraining(flags, file, *env));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<PackedPackage> packages,
                            PackagesOf(*env, &request));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  const v1::TrainingJob training = ToProto(request.job);
  SubmitOptions submit;
  if (flags.dry_run || flags.strict || !packages.empty()) {
    // A plan or a rejected job uploads nothing.
    submit.validate_only = true;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const v1::SubmitJobResponse response,
        Answered(client->SubmitTraining(training, {}, submit), refused));
    LOCKSTEP_RETURN_IF_ERROR(CheckStrict(flags, request, response));
    if (flags.dry_run) {
      WriteNotes(cli, NotesFor(flags, request.notes));
      LOCKSTEP_ASSIGN_OR_RETURN(const int code, WritePlan(cli, response));
      return code == 0 ? 0 : kExitError;
    }
    LOCKSTEP_RETURN_IF_ERROR(
        Answered(CheckFits(flags.job, response), refused).status());
  }
  WriteNotes(cli, NotesFor(flags, request.notes));
  LOCKSTEP_RETURN_IF_ERROR(UploadAll(cli, client.get(), packages));
  if (env->interrupted && env->interrupted()) return kExitInterrupted;
  submit.validate_only = false;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const v1::SubmitJobResponse response,
      Answered(SubmitUploaded(cli, client.get(), packages,
                              [&] {
                                return client->SubmitTraining(
                                    training, PackageMessages(packages),
                                    submit);
                              }),
               refused));
  WriteNotes(
      cli, NotesFor(flags, {response.notes().begin(), response.notes().end()}));
  *env->err << fmt::format("Job [{}] submitted successfully.\n", flags.job);
  if (flags.stream_logs) return StreamSubmitted(cli, client.get(), flags.job);
  *env->err << fmt::format(
      "Your job is still active. You may view the status of your job with the "
      "command\n\n  $ lockstep jobs describe {0}\n\nor continue streaming the "
      "logs with the command\n\n  $ lockstep jobs stream-logs {0}\n\n",
      flags.job);
  LOCKSTEP_RETURN_IF_ERROR(WriteSubmitted(cli, response.job()));
  return 0;
}

// Returns 0 or 1, and 2 for usage errors, like gcloud.
StatusOr<int> RunTraining(const Cli& cli, TrainingFlags flags) {
  if (cli.has_program && !cli.program.empty()) flags.args = cli.program;
  bool refused = false;
  StatusOr<int> code = Submit(cli, flags, &refused);
  if (!code.ok() && flags.config.empty()) {
    code = WithTrainingFlags(code.status());
  }
  if (code.ok() ||
      (code.status().code() == StatusCode::kInvalidArgument && !refused)) {
    return code;
  }
  *cli.env->err << ErrorLine(code.status()) << "\n";
  return code.status().code() == StatusCode::kCancelled ? kExitInterrupted
                                                        : kExitError;
}

}  // namespace

Command TrainingCommand(Cli* cli, bool plan) {
  const auto flags = std::make_shared<TrainingFlags>();
  Command command = LeafCommand(
      "training",
      plan ? "Show what `jobs submit training` would do"
           : "Submit a job as on AI Platform: JOB [OPTIONS] [-- ARGS...]",
      plan ? kPlanTrainingExamples : kTrainingExamples);
  AddTrainingOptions(&command, flags.get(), plan);
  AddRequestOptions(&command, cli);
  command.run = [=] {
    flags->dry_run = flags->dry_run || plan;
    return RunTraining(*cli, *flags);
  };
  return command;
}

}  // namespace lockstep::cli
