#include "client/cli/run_spec.h"

#include <charconv>
#include <cmath>

#include "client/cli/text.h"
#include "common/base/file.h"

namespace lockstep::cli {
namespace {

bool ParsePositive(const std::string& text, int32_t* value) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && *value > 0;
}

// Sets the job's size: "2", or "2:4" for a job that may run with 2 to 4.
Status SetNodes(const std::string& text, SubmitFlags* job) {
  const size_t colon = text.find(':');
  int32_t low = 0;
  int32_t high = 0;
  if (!ParsePositive(text.substr(0, colon), &low) ||
      (colon != std::string::npos &&
       !ParsePositive(text.substr(colon + 1), &high))) {
    return InvalidArgument("--nnodes: \"{}\" is not a number of nodes",
                           Printable(text));
  }
  if (colon == std::string::npos) high = low;
  if (low > high) {
    return InvalidArgument("--nnodes {}: give the smaller number first", text);
  }
  job->tasks = high;
  if (low == high) return OkStatus();
  if (job->elastic) {
    return InvalidArgument(
        "--nnodes {} says how few nodes may run: leave out --elastic", text);
  }
  job->elastic = low;
  job->rescale = true;
  return OkStatus();
}

StatusOr<int32_t> ParseProcesses(const RunFlags& flags) {
  const std::string& text = flags.nproc_per_node;
  int32_t value = 0;
  if (ParsePositive(text, &value)) return value;
  const int32_t gpus = flags.job.gpus.value_or(0);
  const auto cpus =
      static_cast<int32_t>(std::floor(flags.job.cpus.value_or(0)));
  if (text != "gpu" && text != "cpu" && text != "auto") {
    return InvalidArgument(
        "--nproc-per-node: \"{}\" is neither a number nor gpu, cpu or auto",
        Printable(text));
  }
  if (text != "cpu" && gpus > 0) return gpus;
  if (text != "gpu" && cpus > 0) return cpus;
  if (text != "gpu" && flags.job.cpus) {
    return InvalidArgument(
        "--nproc-per-node {}: --cpus {:g} is less than one; give at least 1",
        text, *flags.job.cpus);
  }
  return InvalidArgument(
      "--nproc-per-node {}: give {} N, the number that each node must "
      "have",
      text, text == "cpu" ? "--cpus" : "--gpus");
}

}  // namespace

std::string PythonOf(const std::string& given, const CliEnvironment& env) {
  if (!given.empty()) return given;
  const std::string venv = env.Variable("VIRTUAL_ENV");
  if (venv.empty() || venv[0] != '/') return "python3";
  return venv + "/bin/python3";
}

StatusOr<RunRequest> BuildRun(const RunFlags& flags,
                              const std::vector<std::string>& program,
                              const CliEnvironment& env,
                              const std::string& random) {
  if (program.empty() || program[0].empty()) {
    return InvalidArgument(
        "there is nothing to run: lockstep run [OPTIONS] SCRIPT ARGS...");
  }
  if (flags.module && flags.no_python) {
    return InvalidArgument(
        "--module and --no-python exclude each other: a module is Python's");
  }
  RunRequest out;
  SubmitFlags job = flags.job;
  LOCKSTEP_RETURN_IF_ERROR(SetNodes(flags.nnodes, &job));
  if (flags.standalone && *job.tasks != 1) {
    return InvalidArgument("--standalone means one node, but --nnodes is {}",
                           flags.nnodes);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(job.ranks_per_task, ParseProcesses(flags));
  job.kind = "program";
  job.restart_budget = flags.max_restarts;
  job.program = program;
  if (!job.working_directory) {
    job.working_directory = env.working_directory;
  } else if (!flags.no_python && !flags.module) {
    // The path is relative to this directory, but ranks start elsewhere.
    job.program[0] = JoinPath(env.working_directory, program[0]);
  }
  if (!flags.no_python) {
    std::vector<std::string> python = {PythonOf(flags.python, env), "-u"};
    if (flags.module) python.push_back("-m");
    job.program.insert(job.program.begin(), python.begin(), python.end());
  }
  if (!job.name) job.name = JobNameFrom(program[0], random);
  for (const std::string& flag : flags.settled) {
    out.notes.push_back(flag + ": is not used: lockstep sets it itself");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(out.spec, BuildSpec(job, {}, env, random));
  return out;
}

}  // namespace lockstep::cli
