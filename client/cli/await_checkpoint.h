// Waiting for a checkpoint that was requested.
#ifndef LOCKSTEP_CLIENT_CLI_AWAIT_CHECKPOINT_H_
#define LOCKSTEP_CLIENT_CLI_AWAIT_CHECKPOINT_H_

#include "client/cli/cli.h"

namespace lockstep::cli {

struct AwaitedCheckpoint {
  // 0, kExitInterrupted or kExitTimedOut.
  int code = 0;
  // With 0: it has a checkpoint that `before` did not have.
  v1::Job job = {};
};
// FailedPrecondition: the job has ended without.
StatusOr<AwaitedCheckpoint> AwaitCheckpoint(CliEnvironment* env, Client* client,
                                            const v1::Job& before,
                                            Duration timeout);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_AWAIT_CHECKPOINT_H_
