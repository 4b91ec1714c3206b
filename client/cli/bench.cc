// `lockstep bench`: lockstep-bench here, or with --hosts as a job.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <set>

#include "client/cli/bench_hosts.h"
#include "client/cli/cli.h"
#include "client/cli/external.h"
#include "client/cli/job_view.h"
#include "client/cli/stream_job.h"
#include "client/cli/submit_spec.h"
#include "client/cli/summary.h"
#include "client/cli/text.h"
#include "common/base/file.h"
#include "common/base/random.h"
#include "common/os/process.h"

namespace lockstep::cli {
namespace {

constexpr char kProgram[] = "lockstep-bench";
// The prefix of lockstep-bench's line of results.
constexpr std::string_view kJsonMark = "JSON ";
constexpr Duration kCheckPatience = std::chrono::seconds(10);
constexpr char kBenchExamples[] =
    "  lockstep bench allreduce -b 8 -e 128M -f 2 -g 2\n"
    "  lockstep bench all --hosts 4 -g 2 --json results.json\n"
    "  lockstep bench step --hosts 4 --parameters 25.6M --compute 50\n\n"
    "Runs lockstep-bench's benchmarks with its options: see `lockstep bench\n"
    "step --help`, `man lockstep-bench`. With --hosts it is a job of N\n"
    "tasks of -g ranks each (1). Each task requests all cores of a host, so\n"
    "that each has its own host; with --cpus several may share one. The job\n"
    "waits until the hosts are free. Its table is printed as it arrives;\n"
    "Ctrl-C cancels it.\n\n"
    "Returns lockstep-bench's code: 0 success, 1 wrong data or another\n"
    "error, 2 wrong usage; 5 if there are too few hosts, 130 after Ctrl-C.";

struct BenchFlags {
  int32_t hosts = 0;
  SubmitFlags job;
};

// Removes one of `names` from `arguments`, given as "-g 2", "--ranks=2" or
// "-g2", and returns its value.
std::optional<std::string> TakeOption(const std::vector<std::string>& names,
                                      std::vector<std::string>* arguments) {
  for (auto it = arguments->begin(); it != arguments->end(); ++it) {
    for (const std::string& name : names) {
      const bool is_long = name.size() > 2;
      if (*it == name && it + 1 != arguments->end()) {
        std::string value = *(it + 1);
        arguments->erase(it, it + 2);
        return value;
      }
      const std::string start = is_long ? name + "=" : name;
      if (it->starts_with(start) && it->size() > start.size() &&
          (is_long || (*it)[1] != '-')) {
        std::string value = it->substr(start.size());
        arguments->erase(it);
        return value;
      }
    }
  }
  return std::nullopt;
}

struct BenchJob {
  v1::JobSpec spec;
  std::string json;  // local file for the results; may be empty
};

StatusOr<BenchJob> BuildBench(const Cli& cli, const BenchFlags& options) {
  BenchJob bench;
  SubmitFlags job = options.job;
  std::vector<std::string> arguments = cli.program;
  if (const auto json = TakeOption({"--json"}, &arguments)) {
    bench.json = JoinPath(cli.env->working_directory, *json);
    arguments.push_back("--json-line");
  }
  job.ranks_per_task = 1;
  if (const auto ranks = TakeOption({"-g", "--ranks", "--ngpus"}, &arguments)) {
    int32_t value = 0;
    const auto [end, error] =
        std::from_chars(ranks->data(), ranks->data() + ranks->size(), value);
    if (error != std::errc() || *end != '\0' || value < 1) {
      return InvalidArgument("-g: \"{}\" is not a number of ranks",
                             Printable(*ranks));
    }
    job.ranks_per_task = value;
  }
  job.kind = "native";
  job.tasks = options.hosts;
  job.restart_budget = 0;
  job.output = "";
  job.program = {JoinPath(cli.env->program_dir, kProgram)};
  job.program.insert(job.program.end(), arguments.begin(), arguments.end());
  LOCKSTEP_ASSIGN_OR_RETURN(bench.spec,
                            BuildSpec(job, {}, *cli.env, RandomHex(3)));
  return bench;
}

// Checks the arguments with a local lockstep-bench, if there is one. Returns 0,
// or its exit code after it printed the error.
int CheckArguments(const Cli& cli, const std::vector<std::string>& arguments) {
  SpawnOptions spawn;
  spawn.program = JoinPath(cli.env->program_dir, kProgram);
  if (!RealFileSystem()->Exists(spawn.program)) return 0;
  spawn.argv = {kProgram};
  spawn.argv.insert(spawn.argv.end(), arguments.begin(), arguments.end());
  spawn.argv.push_back("--check-arguments");
  spawn.env = CurrentEnvironment();
  spawn.stdout_fd = STDOUT_FILENO;
  spawn.stderr_fd = STDERR_FILENO;
  const auto process = Spawn(spawn);
  if (!process.ok()) return 0;  // A rank will report the error.
  const auto exit =
      WaitExit(*process, cli.env->clock->Now().mono + kCheckPatience);
  return exit.ok() && exit->signal == 0 ? exit->code : 0;
}

bool AsksForHelp(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& word) {
                       return word == "--help" || word == "-h" ||
                              word == "--version" || word == "--help-man";
                     });
}

// "worker-0, worker-1".
std::string HostsOf(const v1::Job& job) {
  std::set<std::string> nodes;
  for (const v1::TaskStatus& task : job.tasks()) {
    nodes.insert(Printable(task.node()));
  }
  return fmt::format("{}", fmt::join(nodes, ", "));
}

StatusOr<int> RunJob(const Cli& cli, BenchFlags options) {
  CliEnvironment* const env = cli.env;
  LOCKSTEP_ASSIGN_OR_RETURN(BenchJob bench, BuildBench(cli, options));
  const std::vector<std::string> arguments(bench.spec.argv().begin() + 1,
                                           bench.spec.argv().end());
  if (const int code = CheckArguments(cli, arguments); code != 0) return code;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto client, cli.Connect());
  if (!options.job.cpus) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto nodes, client->ListNodes());
    LOCKSTEP_ASSIGN_OR_RETURN(
        const BenchHosts hosts,
        ChooseBenchHosts(nodes, options.hosts, options.job.pool.value_or("")));
    if (!hosts.note.empty()) *env->err << "lockstep: " << hosts.note << "\n";
    if (hosts.cpus > 0) {
      for (v1::RoleSpec& role : *bench.spec.mutable_roles()) {
        role.mutable_resources()->set_cpus(hosts.cpus);
      }
    }
  }
  // From here on a signal cancels the submitted job.
  if (env->signals) env->signals();
  LOCKSTEP_RETURN_IF_ERROR(client->SubmitJob(bench.spec, {}).status());
  const std::string& name = bench.spec.name();
  *env->err << fmt::format("job {} submitted\n", name);
  std::string results;
  StreamJobOptions stream;
  stream.job = name;
  stream.cancels = true;
  stream.leaves_at_second = true;
  stream.tells_waiting = true;
  bool printed = false;
  stream.write = [&](const v1::LogLine& line) {
    if (!printed) {
      const auto job = client->GetJob(name);
      if (job.ok()) {
        *env->err << fmt::format("lockstep: {} runs on {}\n", name,
                                 HostsOf(*job));
      }
      printed = true;
    }
    const std::string& text = line.text();
    if (!bench.json.empty() && text.starts_with(kJsonMark)) {
      results = text.substr(kJsonMark.size());
      return true;
    }
    std::ostream& out = line.stream() == "stderr" ? *env->err : *env->out;
    out << Printable(text) << "\n" << std::flush;
    return out.good();
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto job,
                            StreamJob(cli, client.get(), stream));
  if (!job) return kExitInterrupted;
  if (job->state() == v1::JOB_STATE_FAILED) {
    *env->err << "lockstep: " << name << " FAILED; "
              << FormatFailure(*job, {}, cli.ErrStyle());
  } else if (job->state() == v1::JOB_STATE_CANCELLED) {
    *env->err << fmt::format("lockstep: {} CANCELLED: {}\n", name,
                             Printable(job->cause().message()));
  }
  if (!results.empty()) {
    // In lockstep-bench's own format.
    const auto json = nlohmann::json::parse(results, nullptr, false);
    LOCKSTEP_RETURN_IF_ERROR(RealFileSystem()->WriteAtomic(
        bench.json, (json.is_discarded() ? results : json.dump(2)) + "\n"));
  }
  if (job->state() == v1::JOB_STATE_CANCELLED && env->interrupted &&
      env->interrupted()) {
    return kExitInterrupted;
  }
  return ExitCodeOf(*job);
}

StatusOr<int> RunHere(const Cli& cli, const BenchFlags& options) {
  const std::pair<const char*, bool> of_jobs[] = {
      {"--name", options.job.name.has_value()},
      {"--cpus", options.job.cpus.has_value()},
      {"--memory", options.job.memory.has_value()},
      {"--gpus", options.job.gpus.has_value()},
      {"--pool", options.job.pool.has_value()},
      {"--max-wait-time", options.job.max_wait_time.has_value()}};
  const bool asks = AsksForHelp(cli.program);
  for (const auto& [flag, given] : of_jobs) {
    if (given && !asks) {
      return InvalidArgument("{} needs a job: give --hosts N", flag);
    }
  }
  std::vector<std::string> words = {"bench"};
  words.insert(words.end(), cli.program.begin(), cli.program.end());
  if (options.hosts > 0) {
    words.insert(words.end(), {"--hosts", std::to_string(options.hosts)});
  }
  RunExternal(cli.env->program_dir, words, 0);
  return NotFound(
      "there is no {} next to this program; the package lockstep-worker has it",
      kProgram);
}

}  // namespace

Command BenchCommand(Cli* cli) {
  const auto options = std::make_shared<BenchFlags>();
  Command command = LeafCommand(
      "bench",
      "Measure collectives here or on hosts: WHAT [OPTIONS of lockstep-bench]",
      kBenchExamples);
  command.Add("--hosts N", &options->hosts,
              "Run as a job on N hosts (default: ranks on this host)",
              Checked([](const std::string& text) {
                const bool number =
                    !text.empty() &&
                    text.find_first_not_of("0123456789") == std::string::npos;
                return number ? ""
                              : fmt::format(
                                    "{} is not a number of hosts: the "
                                    "coordinator and --pool choose which",
                                    Printable(text));
              }),
              AtLeast(1));
  const FlagGroup group = command.Group("Job");
  group.Add("--name", &options->job.name,
            "Job name, never reused (default: lockstep-bench and six "
            "hexadecimal digits)");
  group.Add("--cpus", &options->job.cpus,
            "Cores of a task (default: all of a host)", AtLeast(0));
  group.Add("--memory SIZE", &options->job.memory, "Memory of a task, as 2GiB");
  group.Add("--gpus", &options->job.gpus, "GPUs of a task (default: 0)",
            AtLeast(0));
  group.Add("--pool", &options->job.pool, "Only hosts of this pool");
  group.Add("--max-wait-time DURATION", &options->job.max_wait_time,
            "Give up if there is no room for this long, as 10m");
  AddConnectionOptions(&command, cli);
  command.run = [=] {
    // A model's hosts do not exist.
    const bool model = !cli->program.empty() && cli->program[0] == "model";
    const bool here = options->hosts == 0 || AsksForHelp(cli->program);
    return here || model ? RunHere(*cli, *options) : RunJob(*cli, *options);
  };
  return command;
}

}  // namespace lockstep::cli
