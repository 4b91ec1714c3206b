#include <charconv>
#include <memory>
#include <ostream>

#include "client/cli/cli.h"
#include "client/cli/find.h"
#include "client/cli/session_io.h"
#include "common/base/file.h"
#include "common/model/resources.h"

namespace lockstep::cli {
namespace {

constexpr int32_t kDefaultRate = 100;

struct ProfileFlags {
  std::string name;
  int32_t rank = 0;
  int32_t seconds = 5;
  std::string with = "auto";
  int32_t wait = 30;
  std::string file;
  // Of py-spy.
  int32_t rate = kDefaultRate;
  std::string format;
  bool native = false;
  bool idle = false;

  bool AsksPySpy() const {
    return rate != kDefaultRate || !format.empty() || native || idle;
  }
};

// How a command in a rank ended.
struct CommandEnd {
  int code = 0;
  std::string out;
  // Its stderr; or why there was no command.
  std::string error;
};

// What the framework's profiler wrote.
struct Trace {
  // On the rank's node.
  std::string path;
  // Empty: it is a folder without a Chrome trace.
  std::string bytes;
};

// Asks the program of the rank by lockstep/profile.py of the interpreter and
// the package that it runs with. The folder's owner is checked: what is read
// there is run. Python begins without the user's variables and directory, so
// that no file there takes the place of a module.
constexpr char kAskProgram[] = R"sh(
for parent in /tmp /var/tmp /dev/shm; do
  folder="$parent/lockstep-$(id -u)"
  [ -d "$folder" ] && [ -O "$folder" ] && [ ! -L "$folder" ] || continue
  for file in "$folder"/*.ready; do
    [ -f "$file" ] || continue
    { IFS= read -r link; IFS= read -r python; IFS= read -r package; } <"$file"
    [ "$link" = "$LOCKSTEP_LINK_FILE" ] || continue
    exec "$python" -I -c 'import sys
sys.path.append(sys.argv.pop(1))
from lockstep.profile import main
sys.exit(main())' "$package" "$@"
  done
done
echo "no program of this rank has joined its job: call lockstep.join() in it" >&2
exit 3)sh";
// Exit codes of lockstep/profile.py.
constexpr int kNoStep = 4;

v1::ProfileSession::Format FormatOf(const std::string& name) {
  if (name == "speedscope") return v1::ProfileSession::FORMAT_SPEEDSCOPE;
  if (name == "raw") return v1::ProfileSession::FORMAT_RAW;
  return v1::ProfileSession::FORMAT_FLAMEGRAPH;
}

std::string FileName(const ProfileFlags& options, const std::string& job,
                     const std::string& ending) {
  if (!options.file.empty()) return options.file;
  return fmt::format("{}-rank{}-profile.{}", job, options.rank, ending);
}

std::string PySpyEnding(const std::string& format) {
  if (format == "speedscope") return "json";
  return format == "raw" ? "txt" : "svg";
}

// Runs the command with `input`, in the working directory of the rank's task
// and with the rank's rights. An error: there was no session.
StatusOr<CommandEnd> RunInRank(Client* client, const std::string& job,
                               int32_t rank,
                               const std::vector<std::string>& argv,
                               const std::string& input) {
  v1::SessionRequest request;
  request.set_name(job);
  request.set_rank(rank);
  v1::CommandSession* const command = request.mutable_command();
  for (const std::string& argument : argv) command->add_argv(argument);
  const auto session = OpenSession(client, request);
  constexpr size_t kPiece = 32 << 10;
  v1::SessionInput message;
  for (size_t at = 0; at < input.size(); at += kPiece) {
    message.set_data(input.substr(at, kPiece));
    if (!session->Write(message)) break;
  }
  message.set_end_of_data(true);
  (void)session->Write(message);
  CommandEnd end{1, "", ""};
  v1::SessionOutput output;
  while (session->Read(&output)) {
    if (output.has_data()) end.out += output.data();
    if (output.has_error_data()) end.error += output.error_data();
    if (!output.has_end()) continue;
    end.code = output.end().exit_code();
    if (!output.end().message().empty()) {
      end.error = output.end().message();
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(session->Finish());
  while (end.error.ends_with('\n')) end.error.pop_back();
  return end;
}

// The output of lockstep/profile.py --copy: lines with the path and the number
// of bytes, and the bytes.
StatusOr<Trace> ParseTrace(const std::string& out) {
  const size_t first = out.find('\n');
  const size_t second =
      first == std::string::npos ? first : out.find('\n', first + 1);
  const Status bad = Unavailable(
      "the trace did not arrive whole: try again, or fetch it from "
      "the folder profiles/ of the job");
  if (second == std::string::npos) return bad;
  size_t size = 0;
  const char* const end = out.data() + second;
  const auto parsed = std::from_chars(out.data() + first + 1, end, size);
  if (parsed.ec != std::errc() || parsed.ptr != end) return bad;
  if (size != out.size() - (second + 1)) return bad;
  return Trace{out.substr(0, first), out.substr(second + 1)};
}

// Returns how lockstep/profile.py ended in the rank. It has deadlines for all
// that it waits for.
StatusOr<CommandEnd> AskProgram(Client* client, const ProfileFlags& options,
                                const std::string& job) {
  std::vector<std::string> argv = {"sh",
                                   "-c",
                                   kAskProgram,
                                   "lockstep-profile",
                                   "--copy",
                                   fmt::format("--rank={}", options.rank),
                                   fmt::format("--seconds={}", options.seconds),
                                   fmt::format("--wait={}", options.wait)};
  if (options.with != "auto") argv.push_back("--with=" + options.with);
  return RunInRank(client, job, options.rank, argv, "");
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

Status Keep(Client* client, const std::string& job, int32_t rank,
            const std::string& file, const std::string& bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const CommandEnd kept,
      RunInRank(client, job, rank,
                {"sh", "-c", "mkdir -p profiles && cat >\"profiles/$0\"", file},
                bytes));
  return kept.code == 0 ? OkStatus() : Unavailable("{}", kept.error);
}

// Returns false if it went to stdout.
StatusOr<bool> WriteHere(const Cli& cli, const std::string& file,
                         const std::string& bytes) {
  if (file == "-") {
    *cli.env->out << bytes << std::flush;
    return false;
  }
  LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
      JoinPath(cli.env->working_directory, file), bytes));
  *cli.env->err << fmt::format("{}: {}\n", Printable(file),
                               FormatBytes(static_cast<int64_t>(bytes.size())));
  return true;
}

StatusOr<int> WriteTrace(const Cli& cli, const ProfileFlags& options,
                         const std::string& job, const CommandEnd& end) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Trace trace, ParseTrace(end.out));
  if (!trace.bytes.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(
        WriteHere(cli, FileName(options, job, "json.gz"), trace.bytes)
            .status());
  }
  *cli.env->err << fmt::format("kept with the job: {}\n",
                               Printable(trace.path));
  return 0;
}

StatusOr<int> RunPySpy(const Cli& cli, Client* client,
                       const ProfileFlags& options, const std::string& name) {
  v1::SessionRequest request;
  request.set_name(name);
  request.set_rank(options.rank);
  v1::ProfileSession* const profile = request.mutable_profile();
  profile->set_format(FormatOf(options.format));
  profile->set_seconds(options.seconds);
  profile->set_rate(options.rate);
  profile->set_native(options.native);
  profile->set_idle(options.idle);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes,
                            Record(OpenSession(client, request).get()));
  const std::string file = FileName(options, name, PySpyEnding(options.format));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool written, WriteHere(cli, file, bytes));
  if (!written) return 0;
  const std::string kept = FormatWallTime(cli.env->clock->Now().wall) + "-" +
                           file.substr(file.rfind('/') + 1);
  if (const Status stored = Keep(client, name, options.rank, kept, bytes);
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

StatusOr<int> RunProfile(const Cli& cli, const ProfileFlags& options) {
  const bool framework = options.with == "torch" || options.with == "jax";
  if (framework && options.AsksPySpy()) {
    return InvalidArgument(
        "--rate, --format, --native and --idle are for --with py-spy, not for "
        "--with {}",
        options.with);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            FindJob(client.get(), options.name));
  *cli.env->err << fmt::format("recording rank {} of {} for {} s ...\n",
                               options.rank, name, options.seconds)
                << std::flush;
  // A flame graph is py-spy's.
  const bool py_spy = options.with == "py-spy" || options.AsksPySpy() ||
                      options.file.ends_with(".svg");
  ProfileFlags of_py_spy = options;
  if (framework || !py_spy) {
    LOCKSTEP_ASSIGN_OR_RETURN(const CommandEnd end,
                              AskProgram(client.get(), options, name));
    if (end.code == 0) return WriteTrace(cli, options, name, end);
    const std::string why =
        end.error.empty() ? fmt::format("exit code {}", end.code) : end.error;
    if (framework) {
      return end.code == kNoStep ? DeadlineExceeded("{}", why)
                                 : FailedPrecondition("{}", why);
    }
    // A program between its steps may wait, which py-spy leaves out otherwise.
    of_py_spy.idle = end.code == kNoStep;
    *cli.env->err << fmt::format("note: py-spy records it: {}\n",
                                 Printable(why))
                  << std::flush;
  }
  return RunPySpy(cli, client.get(), of_py_spy, name);
}

}  // namespace

Command JobsProfileCommand(Cli* cli) {
  const auto options = std::make_shared<ProfileFlags>();
  Command command = LeafCommand(
      "profile", "Record where a rank's Python program spends its time",
      "  lockstep jobs profile fashion --seconds 5\n"
      "  lockstep jobs profile fashion --with torch --rank 3\n"
      "  lockstep jobs profile fashion --format speedscope\n"
      "  lockstep jobs profile fashion --format raw -O - | head\n\n"
      "A program that has joined its job (lockstep.join()) and imported "
      "PyTorch\n"
      "or JAX is recorded by that framework's profiler, from the end of a "
      "step\n"
      "to the end of a later one. The trace is kept in profiles/ of the job's\n"
      "output directory, or of the rank's directory if it has none, and is an\n"
      "artifact of the job. Other programs are recorded by py-spy on the "
      "rank's\n"
      "node, and so is one that ends no step in time. py-spy does not stop "
      "the\n"
      "program, except with --native for the milliseconds of each sample; its\n"
      "flame graph (SVG, for a browser) is kept in profiles/ of the rank's\n"
      "directory. The file is written here as well. For the job's owner and\n"
      "admins.");
  AddJobArgument(&command, &options->name);
  command.Add("--rank R", &options->rank, "The rank", AtLeast(0), ShowDefault);
  command.Add("--seconds N", &options->seconds, "How long", InRange(1, 300),
              ShowDefault);
  command.Add("--with", &options->with, "What records",
              OneOf({"auto", "torch", "jax", "py-spy"}), ShowDefault);
  command.Add("--wait N", &options->wait,
              "Seconds that the program has to end a step", InRange(1, 600),
              ShowDefault);
  command.Add("-O,--output-file FILE", &options->file,
              "- for stdout (default: JOB-rankR-profile.json.gz, or of py-spy "
              ".svg, .json or .txt)");
  command.Add("--rate N", &options->rate, "py-spy: samples a second",
              InRange(1, 1000), ShowDefault);
  command.Add("--format", &options->format,
              "py-spy: what is written (default: flamegraph)",
              OneOf({"flamegraph", "speedscope", "raw"}));
  command.Add("--native", &options->native,
              "py-spy: also functions of C, C++ and Cython");
  command.Add("--idle", &options->idle, "py-spy: also threads that wait");
  AddConnectionOptions(&command, cli);
  command.run = [=] { return RunProfile(*cli, *options); };
  return command;
}

}  // namespace lockstep::cli
