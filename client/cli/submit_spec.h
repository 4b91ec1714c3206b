// From flags and a job file to the JobSpec that is submitted. Pure.
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

namespace lockstep {

// As given; unset: not given. Texts are parsed here.
struct SubmitFlags {
  std::optional<std::string> name;
  std::optional<std::string> kind;
  // At most one of these two.
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
  std::vector<std::string> labels;
  // kOutputWorkdir: the output directory.
  std::optional<std::string> working_directory;
  std::optional<std::string> comment;
  // The text itself.
  std::optional<std::string> reduction_plan;
  std::vector<std::string> program;
};

inline constexpr char kOutputWorkdir[] = "output";

// Flags win over `file` (an empty JobSpec: no file). What neither says:
//   kind     native for a program named lockstep-train, else program
//   roles    one chief; --tasks N: a chief and N - 1 workers; --workers N: N
//            workers
//   cpus     1 a rank
//   name     the program's name and six hexadecimal digits (`random`)
//   output   of native jobs $HOME/lockstep/NAME; of programs none
// A program or path with a "/" that is relative is made absolute by the
// working directory. "--env NAME" takes NAME's value from the environment.
// InvalidArgument names the flag.
StatusOr<v1::JobSpec> BuildSpec(const SubmitFlags& flags,
                                const v1::JobSpec& file,
                                const CliEnvironment& env,
                                const std::string& random);

// A job's name from a program's or module's: its file's name without what is
// behind the first ".", and `random`.
std::string JobNameFrom(const std::string& program, const std::string& random);

// A sentence about each --train or --eval of lockstep-train that is a relative
// path, which no rank would find: they start in folders of their own. Empty:
// there is none.
std::string RelativeDataNote(const v1::JobSpec& spec,
                             const CliEnvironment& env);

// A sentence about relative paths where a role has an image and the job names
// no working directory: they lie in the image's, which is not kept. Empty: it
// is not so.
std::string ContainerPathsNote(const v1::JobSpec& spec);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_SUBMIT_SPEC_H_
