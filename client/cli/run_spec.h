// Converts torchrun's command line to the job of `lockstep run`. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_RUN_SPEC_H_
#define LOCKSTEP_CLIENT_CLI_RUN_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/environment.h"
#include "client/cli/submit_spec.h"
#include "common/base/status.h"
#include "lockstep/v1/job_spec.pb.h"

namespace lockstep::cli {

struct RunFlags {
  // Flags of torchrun.
  std::string nnodes = "1";
  std::string nproc_per_node = "1";
  int32_t max_restarts = 0;
  bool module = false;
  bool no_python = false;
  bool standalone = false;
  // Flags that lockstep sets itself, by name as given.
  std::vector<std::string> settled;
  // Flags of lockstep. Only these are set: name, cpus, memory, gpus, gpu_type,
  // pool, output, env, slurm_env, end_with, end_grace, hang, stall_after,
  // progress_pattern, node_lost_timeout, idle_notice, idle_stop,
  // warm_starts, spares, hold, elastic, rescale, max_running_time,
  // working_directory.
  SubmitFlags job;
  // Empty for the active virtual environment's interpreter, or python3 in PATH
  // of the nodes.
  std::string python;
};

struct RunRequest {
  v1::JobSpec spec;
  std::vector<std::string> notes;
};

// Returns `given`, or the active virtual environment's interpreter, or python3.
std::string PythonOf(const std::string& given, const CliEnvironment& env);

// `program` is the script (module, or program) with its arguments. Builds a
// chief and NNODES - 1 workers with NPROC ranks each, started in the working
// directory. With MIN:MAX nodes it may run with fewer workers. Without
// --max-restarts the first failure ends the job. InvalidArgument names the
// flag.
StatusOr<RunRequest> BuildRun(const RunFlags& flags,
                              const std::vector<std::string>& program,
                              const CliEnvironment& env,
                              const std::string& random);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_RUN_SPEC_H_
