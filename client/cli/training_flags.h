// Builds the submitted TrainingJob from the command line of `jobs submit
// training` and its --config file. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_TRAINING_FLAGS_H_
#define LOCKSTEP_CLIENT_CLI_TRAINING_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/environment.h"
#include "common/base/status.h"
#include "common/training/training_input.h"

namespace lockstep::cli {

// Flags of one role; empty or unset if not given.
struct ReplicaFlags {
  std::string machine_type;
  std::optional<int64_t> count;
  std::string accelerator;
  std::string image_uri;
};

struct TrainingFlags {
  std::string job;
  std::string config;
  std::string region;
  std::string scale_tier;
  ReplicaFlags master;
  ReplicaFlags worker;
  ReplicaFlags parameter_server;
  std::string use_chief_in_tf_config;
  std::string job_dir;
  std::string package_path;
  std::vector<std::string> packages;
  std::string module_name;
  std::string staging_bucket;
  std::string runtime_version;
  std::string python_version;
  std::string service_account;
  std::string network;
  bool enable_web_access = false;
  std::vector<std::string> labels;
  std::string kms_key;
  std::string kms_keyring;
  std::string kms_location;
  std::string kms_project;
  std::string tpu_tf_version;
  bool async = false;
  bool stream_logs = false;
  // Flags of gcloud.
  std::string project;
  std::string account;
  std::string verbosity;
  bool quiet = false;
  // Flags of lockstep.
  std::vector<std::string> env;
  std::string ranks_per_task;
  std::string runtime;
  bool strict = false;
  bool dry_run = false;
  // The arguments after "--". Unset without "--".
  std::optional<std::vector<std::string>> args;
};

struct TrainingRequest {
  // Without packages. Its packageUris are as given.
  TrainingJob job;
  // Absolute, or empty.
  std::string package_path;
  // Notes for flags without effect.
  std::vector<std::string> notes;
};

// Flags override `file` (an empty TrainingJob without a file). A relative
// --job-dir or --package-path is resolved against the working directory.
//
// Rejects errors that need no coordinator: CUSTOM without a master's machine,
// an image with a runtime version, a type without count, no program, ...
// InvalidArgument names the flag.
StatusOr<TrainingRequest> BuildTraining(const TrainingFlags& flags,
                                        const TrainingJob& file,
                                        const CliEnvironment& env);

// Parses "type=nvidia-tesla-t4,count=2" into the resource's terms. The default
// count is 1.
StatusOr<AcceleratorConfig> ParseAccelerator(const std::string& text);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_TRAINING_FLAGS_H_
