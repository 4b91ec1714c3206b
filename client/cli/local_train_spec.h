// From the command line of `local train` to the job that runs. Pure.
#ifndef LOCKSTEP_CLIENT_CLI_LOCAL_TRAIN_SPEC_H_
#define LOCKSTEP_CLIENT_CLI_LOCAL_TRAIN_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/environment.h"
#include "common/base/status.h"
#include "lockstep/v1/job_spec.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep {

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
  // Whether the counts were given, whatever their value.
  bool workers_given = false;
  bool parameter_servers_given = false;
  bool evaluators_given = false;
};

// What was given and has no effect.
std::vector<std::string> LocalTrainNotes(const LocalTrainFlags& flags);

// A chief, and with --distributed workers, parameter servers and an
// evaluator, without reserving anything; `python3 -m MODULE ARGS`,
// with the variables that are set here. The first failure
// ends it.
// InvalidArgument names the flag.
StatusOr<v1::JobSpec> BuildLocalTrain(const LocalTrainFlags& flags,
                                      const CliEnvironment& env);

// START for the chief, then those of the parameter servers, then the workers:
// as gcloud gives them.
int32_t LocalTrainTasks(const LocalTrainFlags& flags);
// The same for a worker daemon, which takes tasks in the order chief, workers,
// parameter servers; behind them ports for what else the tasks need.
std::string LocalTrainPorts(const LocalTrainFlags& flags);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_LOCAL_TRAIN_SPEC_H_
