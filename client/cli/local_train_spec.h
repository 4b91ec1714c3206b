// Builds the job of a `local train` command line. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_LOCAL_TRAIN_SPEC_H_
#define LOCKSTEP_CLIENT_CLI_LOCAL_TRAIN_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/environment.h"
#include "common/base/status.h"
#include "lockstep/v1/job_spec.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep::cli {

struct LocalTrainFlags {
  std::string module_name;
  std::string package_path = ".";
  bool distributed = false;
  int32_t worker_count = 2;
  int32_t parameter_server_count = 2;
  int32_t evaluator_count = 0;
  int32_t start_port = 27182;
  std::string job_dir;
  std::string python;
  std::vector<std::string> args;
  // True if the flag was given, with any value.
  bool workers_given = false;
  bool parameter_servers_given = false;
  bool evaluators_given = false;
};

// Returns notes for flags without effect.
std::vector<std::string> LocalTrainNotes(const LocalTrainFlags& flags);

// Builds a chief, and with --distributed also workers, parameter servers and an
// evaluator, without reserved resources. They run `python3 -m MODULE ARGS` with
// variables that are set here. The first failure ends the job. InvalidArgument
// names the flag.
StatusOr<v1::JobSpec> BuildLocalTrain(const LocalTrainFlags& flags,
                                      const CliEnvironment& env);

// Returns the ports in gcloud's order: START for the chief, then the parameter
// servers, then the workers.
int32_t LocalTrainTasks(const LocalTrainFlags& flags);
// Returns the same ports in a worker daemon's order (chief, workers, parameter
// servers), followed by ports for other services of the tasks.
std::string LocalTrainPorts(const LocalTrainFlags& flags);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_LOCAL_TRAIN_SPEC_H_
