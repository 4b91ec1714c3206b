// From torchrun's command line to the job that `lockstep run` submits. Pure.
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

namespace lockstep {

struct RunFlags {
  // torchrun's.
  std::string nnodes = "1";
  std::string nproc_per_node = "1";
  int32_t max_restarts = 0;
  bool module = false;
  bool no_python = false;
  bool standalone = false;
  // Those that lockstep settles by itself, by their names, as given.
  std::vector<std::string> settled;
  // lockstep's own, of which few are set: name, cpus, memory, gpus, gpu_type,
  // pool, output, env, slurm_env, end_with, end_grace, max_running_time,
  // working_directory.
  SubmitFlags job;
  // Empty: that of the active virtual environment, else python3 in PATH of
  // the nodes.
  std::string python;
};

struct RunRequest {
  v1::JobSpec spec;
  std::vector<std::string> notes;
};

// `given`, or the interpreter of the active virtual environment, or python3.
std::string PythonOf(const std::string& given, const CliEnvironment& env);

// `program`: the script (module, or program) and its arguments. A chief and
// NNODES - 1 workers, NPROC ranks each, started in the working directory;
// without --max-restarts the first failure ends it.
// InvalidArgument names the flag.
StatusOr<RunRequest> BuildRun(const RunFlags& flags,
                              const std::vector<std::string>& program,
                              const CliEnvironment& env,
                              const std::string& random);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_RUN_SPEC_H_
