// Builds the submitted JobSpec from flags and a job file. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_SUBMIT_SPEC_H_
#define LOCKSTEP_CLIENT_CLI_SUBMIT_SPEC_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/environment.h"
#include "common/base/status.h"
#include "lockstep/v1/job_spec.pb.h"
#include "lockstep/v1/resources.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep::cli {

// Flags as given, unset if not given. Texts are parsed here.
struct SubmitFlags {
  std::optional<std::string> name;
  std::optional<std::string> kind;
  // At most one of `tasks` and `workers`.
  std::optional<int32_t> tasks;
  std::optional<int32_t> workers;
  std::optional<int32_t> ranks_per_task;
  std::optional<double> cpus;
  std::optional<std::string> memory;
  std::optional<int32_t> gpus;
  std::optional<std::string> gpu_type;
  std::optional<std::string> pool;
  std::optional<std::string> output;
  std::vector<std::string> env;
  bool slurm_env = false;
  std::optional<int64_t> checkpoint_interval_steps;
  std::optional<int32_t> checkpoint_keep;
  std::optional<int32_t> restart_budget;
  std::optional<int32_t> priority;
  std::optional<std::string> max_running_time;
  std::optional<std::string> max_wait_time;
  std::optional<std::string> end_with;
  std::optional<std::string> end_grace;
  std::optional<std::string> hang;
  std::optional<std::string> stall_after;
  std::optional<std::string> progress_pattern;
  std::optional<std::string> node_lost_timeout;
  std::optional<std::string> idle_notice;
  std::optional<std::string> idle_stop;
  bool warm_starts = false;
  std::optional<int32_t> spares;
  std::optional<std::string> hold;
  std::optional<int32_t> elastic;
  bool rescale = false;
  std::vector<std::string> labels;
  // kOutputWorkdir: the output directory.
  std::optional<std::string> working_directory;
  std::optional<std::string> comment;
  // The plan's text, not a path.
  std::optional<std::string> reduction_plan;
  std::vector<std::string> program;
};

inline constexpr char kOutputWorkdir[] = "output";

// Flags override `file` (an empty JobSpec without a file). Defaults:
//   kind     native for a program named lockstep-train, else program
//   roles    one chief; --tasks N: a chief and N - 1 workers; --workers N: N
//            workers
//   cpus     1 a rank
//   name     the program's name and six hexadecimal digits (`random`)
//   output   of native jobs $HOME/lockstep/NAME; of programs none
// A relative program or path with a "/" is resolved against the working
// directory. "--env NAME" takes NAME's value from the environment.
// InvalidArgument names the flag.
StatusOr<v1::JobSpec> BuildSpec(const SubmitFlags& flags,
                                const v1::JobSpec& file,
                                const CliEnvironment& env,
                                const std::string& random);

// Returns a job name from a program's or module's file name without the part
// after the first ".", and `random`.
std::string JobNameFrom(const std::string& program, const std::string& random);

// Returns a note for each --train or --eval of lockstep-train with a relative
// path, which no rank would find because ranks start in their own folders.
// Empty if there is none.
std::string RelativeDataNote(const v1::JobSpec& spec,
                             const CliEnvironment& env);

// Returns a note about relative paths if a role has an image and the job sets
// no working directory: they are in the image's directory, which is not kept.
// Otherwise returns "".
std::string ContainerPathsNote(const v1::JobSpec& spec);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_SUBMIT_SPEC_H_
