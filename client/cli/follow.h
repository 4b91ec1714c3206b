// Follows a job to its end, telling stderr how it goes.
#ifndef LOCKSTEP_CLIENT_CLI_FOLLOW_H_
#define LOCKSTEP_CLIENT_CLI_FOLLOW_H_

#include <optional>
#include <string>
#include <vector>

#include "client/cli/cli.h"

namespace lockstep {

struct FollowOptions {
  std::string job;
  // Unset: for ever.
  std::optional<Duration> timeout;
  // Says nothing on the way.
  bool quiet = false;
};

// Follows, then shows the end: the summary (or -o json, yaml, name) on stdout;
// of a failure the first cause and the last lines of its rank on stderr.
// Returns the exit code: of the job's end, 130 when interrupted, 124 when the
// time is over.
StatusOr<int> FollowToEnd(const Cli& cli, Client* client,
                          const FollowOptions& options);

// A Job in the format that was asked for: tables are FormatJob's, JSON and
// YAML are JobResource's.
Status WriteJob(const Cli& cli, const v1::Job& job,
                const std::vector<std::string>& bad_gpus = {});

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_FOLLOW_H_
