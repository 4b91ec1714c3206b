#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/session_io.h"
#include "common/base/file.h"
#include "common/model/resources.h"

namespace lockstep::cli {
namespace {

struct ProfileFlags {
  std::string name;
  int32_t rank = 0;
  int32_t seconds = 5;
  int32_t rate = 100;
  std::string format = "flamegraph";
  std::string file;
  bool native = false;
  bool idle = false;
};

v1::ProfileSession::Format FormatOf(const std::string& name) {
  if (name == "speedscope") return v1::ProfileSession::FORMAT_SPEEDSCOPE;
  if (name == "raw") return v1::ProfileSession::FORMAT_RAW;
  return v1::ProfileSession::FORMAT_FLAMEGRAPH;
}

std::string FileName(const ProfileFlags& options, const std::string& job) {
  if (!options.file.empty()) return options.file;
  const char* ending = "svg";
  if (options.format == "speedscope") ending = "json";
  if (options.format == "raw") ending = "txt";
  return fmt::format("{}-rank{}-profile.{}", job, options.rank, ending);
}

// Returns the profile's bytes.
StatusOr<std::string> Record(Session* session) {
  std::string bytes;
  v1::SessionOutput output;
  std::string error;
  bool ended = false;
  while (session->Read(&output)) {
    if (output.has_data()) bytes += output.data();
    if (!output.has_end()) continue;
    ended = true;
    error = output.end().message();
  }
  LOCKSTEP_RETURN_IF_ERROR(session->Finish());
  if (!error.empty()) return FailedPrecondition("{}", error);
  if (!ended) return Unavailable("the session ended without a result");
  return bytes;
}

// In the working directory of the rank's task, with the rank's rights.
Status Keep(Client* client, const std::string& job, int32_t rank,
            const std::string& file, const std::string& bytes) {
  v1::SessionRequest request;
  request.set_name(job);
  request.set_rank(rank);
  v1::CommandSession* const command = request.mutable_command();
  for (const std::string& argument :
       {std::string("sh"), std::string("-c"),
        std::string("mkdir -p profiles && cat >\"profiles/$0\""), file}) {
    command->add_argv(argument);
  }
  const auto session = OpenSession(client, request);
  constexpr size_t kPiece = 32 << 10;
  v1::SessionInput input;
  for (size_t at = 0; at < bytes.size(); at += kPiece) {
    input.set_data(bytes.substr(at, kPiece));
    if (!session->Write(input)) break;
  }
  input.set_end_of_data(true);
  (void)session->Write(input);
  v1::SessionOutput output;
  std::string why;
  int code = 1;
  while (session->Read(&output)) {
    if (output.has_error_data()) why += output.error_data();
    if (!output.has_end()) continue;
    code = output.end().exit_code();
    if (!output.end().message().empty()) why = output.end().message();
  }
  LOCKSTEP_RETURN_IF_ERROR(session->Finish());
  return code == 0 ? OkStatus() : Unavailable("{}", why);
}

StatusOr<int> RunProfile(const Cli& cli, const ProfileFlags& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), options.name));
  v1::SessionRequest request;
  request.set_name(name);
  request.set_rank(options.rank);
  v1::ProfileSession* const profile = request.mutable_profile();
  profile->set_format(FormatOf(options.format));
  profile->set_seconds(options.seconds);
  profile->set_rate(options.rate);
  profile->set_native(options.native);
  profile->set_idle(options.idle);
  *cli.env->err << fmt::format("recording rank {} of {} for {} s ...\n",
                               options.rank, name, options.seconds)
                << std::flush;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes,
                            Record(OpenSession(client.get(), request).get()));
  const std::string file = FileName(options, name);
  if (file == "-") {
    *cli.env->out << bytes << std::flush;
    return 0;
  }
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
      JoinPath(cli.env->working_directory, file), bytes));
  *cli.env->err << fmt::format("{}: {}\n", Printable(file),
                               FormatBytes(static_cast<int64_t>(bytes.size())));
  const std::string kept = FormatWallTime(cli.env->clock->Now().wall) + "-" +
                           file.substr(file.rfind('/') + 1);
  if (const Status stored = Keep(client.get(), name, options.rank, kept, bytes);
      stored.ok()) {
    *cli.env->err << fmt::format(
        "kept with the job: lockstep jobs cp {}:{}/profiles/{}\n", name,
        options.rank, kept);
  } else {
    *cli.env->err << fmt::format("not kept with the job: {}\n",
                                 Printable(Message(stored)));
  }
  return 0;
}

}  // namespace

Command JobsProfileCommand(Cli* cli) {
  const auto options = std::make_shared<ProfileFlags>();
  Command command = LeafCommand(
      "profile", "Record where a rank's Python program spends its time",
      "  lockstep jobs profile fashion --seconds 5\n"
      "  lockstep jobs profile fashion --rank 3 --format speedscope\n"
      "  lockstep jobs profile fashion --format raw -O - | head\n\n"
      "By py-spy on the rank's node, which does not stop the program, except\n"
      "with --native for the milliseconds of each sample. The default is a\n"
      "flame graph (SVG, for a browser). The file is written here and kept in\n"
      "the folder profiles/ of the rank's directory. For the job's owner and\n"
      "admins.");
  AddJobArgument(&command, &options->name);
  command.Add("--rank R", &options->rank, "The rank", AtLeast(0), ShowDefault);
  command.Add("--seconds N", &options->seconds, "How long", InRange(1, 300),
              ShowDefault);
  command.Add("--rate N", &options->rate, "Samples a second", InRange(1, 1000),
              ShowDefault);
  command.Add("--format", &options->format, "What is written",
              OneOf({"flamegraph", "speedscope", "raw"}), ShowDefault);
  command.Add("-O,--output-file FILE", &options->file,
              "- for stdout (default: JOB-rankR-profile.svg, .json or .txt)");
  command.Add("--native", &options->native,
              "Also functions of C, C++ and Cython");
  command.Add("--idle", &options->idle, "Also threads that wait");
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunProfile(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
