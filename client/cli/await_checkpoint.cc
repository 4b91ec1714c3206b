#include "client/cli/await_checkpoint.h"

#include "client/cli/follow.h"

namespace lockstep::cli {
namespace {

constexpr Duration kCheckpointPoll = std::chrono::milliseconds(200);

bool IsNewer(const v1::Job& job, const v1::Job& before) {
  if (!job.has_last_checkpoint()) return false;
  if (!before.has_last_checkpoint()) return true;
  const v1::Checkpoint& a = job.last_checkpoint();
  const v1::Checkpoint& b = before.last_checkpoint();
  return a.step() != b.step() || a.generation() != b.generation();
}

}  // namespace

StatusOr<AwaitedCheckpoint> AwaitCheckpoint(CliEnvironment* env, Client* client,
                                            const v1::Job& before,
                                            Duration timeout) {
  const MonoTime start = env->clock->Now().mono;
  StopToken pause;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(v1::Job job, client->GetJob(before.name()));
    if (IsNewer(job, before)) return AwaitedCheckpoint{0, std::move(job)};
    if (IsFinalState(job.state())) {
      return FailedPrecondition("job {} is {} and saved no checkpoint before",
                                before.name(), Text(job.state()));
    }
    if (env->interrupted && env->interrupted()) {
      return AwaitedCheckpoint{kExitInterrupted};
    }
    if (env->clock->Now().mono - start >= timeout) {
      return AwaitedCheckpoint{kExitTimedOut};
    }
    pause.WaitFor(kCheckpointPoll);
  }
}

}  // namespace lockstep::cli
