#include "client/cli/why_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/cli/describe_tasks.h"
#include "client/cli/job_view.h"
#include "client/cli/progress.h"
#include "client/cli/text.h"

namespace lockstep::cli {
namespace {

// "rank 3 (worker 1 on host-a) ended with exit code 1, at train.py:12:
// ValueError: no data".
std::string FailureText(const RankView& view) {
  const v1::ExitStatus& exit = view.rank->exit();
  std::string text =
      fmt::format("rank {} ({} on {}) ended with {}", view.rank->rank(),
                  TaskText(*view.task), view.task->node(), DescribeExit(exit));
  if (exit.out_of_memory()) text += ", out of memory";
  if (!exit.location().empty()) text += ", at " + exit.location();
  if (!exit.message().empty()) text += ": " + exit.message();
  return text;
}

bool IsStalled(const v1::Attempt& attempt) {
  return attempt.end_cause().reason() == v1::REASON_STALLED;
}

}  // namespace

std::string KeptTitle(const v1::Job& job, const v1::JobEvidence& kept) {
  const auto& attempts = job.attempts();
  const auto attempt =
      std::find_if(attempts.begin(), attempts.end(), [&](const auto& ended) {
        return ended.generation() == kept.generation();
      });
  const std::string which = attempt == attempts.end()
                                ? "an earlier attempt"
                                : fmt::format("attempt {}", attempt->ordinal());
  // It went on, or a person stopped it.
  if (kept.trigger() == "NO_PROGRESS") return "When " + which + " stood still";
  if (kept.trigger() != "STALLED" && kept.trigger() != "MAX_RUNNING_TIME") {
    return "When " + which + " failed";
  }
  return "Before " + which + " was stopped";
}

std::string WhyVerdict(const v1::Job& job, const v1::JobEvidence* evidence,
                       const v1::JobEvidence* kept) {
  // What its ranks do cannot be known then, and what follows can.
  if (job.cause().reason() == v1::REASON_NODE_UNKNOWN) {
    return CauseText(job, job.cause());
  }
  if (evidence != nullptr) return evidence->verdict();
  if (job.state() == v1::JOB_STATE_FAILED) {
    // Its ranks ended by the stop, which is no cause.
    if (kept != nullptr && !job.attempts().empty() &&
        IsStalled(*job.attempts().rbegin())) {
      return kept->verdict();
    }
    if (const auto failure = FirstFailure(job)) return FailureText(*failure);
  }
  const std::string cause = CauseText(job, job.cause());
  if (!cause.empty()) return cause;
  if (job.queue_position() > 0) {
    return fmt::format("it waits at position {} of the queue",
                       job.queue_position());
  }
  return fmt::format("it is {}, for no other reason", Text(job.state()));
}

}  // namespace lockstep::cli
