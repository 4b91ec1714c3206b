// Follows a job to its end and reports its progress on stderr.
#ifndef LOCKSTEP_CLIENT_CLI_FOLLOW_H_
#define LOCKSTEP_CLIENT_CLI_FOLLOW_H_

#include <optional>
#include <string>
#include <vector>

#include "client/cli/cli.h"

namespace lockstep::cli {

struct FollowOptions {
  std::string job;
  // Unset for no limit.
  std::optional<Duration> timeout;
  // Prints no progress.
  bool quiet = false;
};

// Follows the job, then prints the summary (or -o json, yaml, name) on stdout.
// For a failure it prints the first cause and the last lines of its rank on
// stderr. Returns the job's exit code, 130 if interrupted, or 124 after the
// timeout.
StatusOr<int> FollowToEnd(const Cli& cli, Client* client,
                          const FollowOptions& options);

// Writes a Job in the selected format. Tables come from FormatJob; JSON and
// YAML from JobResource.
Status WriteJob(const Cli& cli, const v1::Job& job,
                const std::vector<std::string>& bad_gpus = {});

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_FOLLOW_H_
