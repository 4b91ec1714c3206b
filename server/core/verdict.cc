#include "server/core/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "server/core/clock_offset.h"
#include "server/core/hints.h"
#include "server/core/job_roles.h"

namespace lockstep::server {
namespace {

using lockstep::ReasonOf;

using std::chrono_literals::operator""s;

Reason ReasonOf(const ExitStatus& exit) {
  if (exit.out_of_memory) return Reason::kOutOfMemory;
  if (exit.reason != Reason::kNone) return exit.reason;
  switch (exit.how) {
    case ExitStatus::How::kCode:
      return exit.value == 42 ? Reason::kRestartRequested : Reason::kRankExit;
    case ExitStatus::How::kSignal:
      return Reason::kRankSignal;
    case ExitStatus::How::kExecErrno:
      return Reason::kExecFailed;
  }
  return Reason::kRankExit;
}

bool IsFatal(const ExitStatus& exit) {
  if (exit.victim) return false;
  if (exit.out_of_memory) return true;
  if (exit.reason == Reason::kPortTaken) return false;
  if (exit.how == ExitStatus::How::kExecErrno) return true;
  if (exit.reason == Reason::kConfigMismatch) return true;
  return exit.how == ExitStatus::How::kCode &&
         (exit.value == 2 || exit.value == 126 || exit.value == 127);
}

// 1 s, doubling.
// See PlanRestart. The newest attempt is not yet in the job's list.
Duration PassingBackoff(const Job& job) {
  Duration wait = kPassingRefusalBackoff;
  const int before = PassingRefusals(job);
  if (before == 0) return wait;
  for (int i = 0; i < before && wait < kLongestPassingRefusalBackoff; ++i) {
    wait *= 2;
  }
  wait = std::min(wait, kLongestPassingRefusalBackoff);
  // Core rules are deterministic, so the variation comes from the uid.
  const size_t drawn =
      std::hash<std::string>()(fmt::format("{} {}", job.uid, job.generation));
  return wait - wait / 4 * static_cast<int64_t>(drawn % 1024) / 1024;
}

// Returns the type of an exception: "ZeroDivisionError" for "ZeroDivisionError:
// division by zero". Messages vary between attempts.
std::string_view ExceptionType(std::string_view message) {
  const size_t end = message.find(": ");
  const std::string_view type = message.substr(0, end);
  const bool is_name = std::all_of(type.begin(), type.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
  return is_name ? type : std::string_view();
}

// True for an exception that only a changed program fixes. Its message quotes
// names of the program, not of the system: "No module named 'async_timeout'".
bool IsAMistakeInTheProgram(const std::string& message) {
  static constexpr std::string_view kTypes[] = {
      "ModuleNotFoundError", "ImportError", "SyntaxError",   "IndentationError",
      "NameError",           "TypeError",   "AttributeError"};
  return std::find(std::begin(kTypes), std::end(kTypes),
                   ExceptionType(message)) != std::end(kTypes);
}

// True for a program's message about a lost peer: from gRPC, TensorFlow, Gloo,
// NCCL, torch or the system.
bool SpeaksOfALostPeer(const std::string& message) {
  if (IsAMistakeInTheProgram(message)) return false;
  static constexpr std::string_view kWords[] = {
      "Connection reset by peer",
      "Connection closed by peer",
      "Connection refused",
      "Broken pipe",
      "Socket closed",
      "UNAVAILABLE",
      "UnavailableError",
      "remote process exited",
      "peer closed",
      "NCCL communicator was aborted",
      "The client has disconnected",
      "heartbeat timeout",
  };
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view words) {
                       return message.find(words) != std::string::npos;
                     });
}

// Lower tiers come first; within a tier, earlier exits.
int Tier(const ExitStatus& exit) {
  if (exit.victim) return 3;
  if (exit.reason == Reason::kPortTaken) return 0;
  return exit.how == ExitStatus::How::kCode && !exit.out_of_memory &&
                 SpeaksOfALostPeer(exit.message)
             ? 2
             : 1;
}

// True if the failure may have another origin or be temporary: a late peer, an
// unavailable service, a file system that does not answer.
bool MayPass(const ExitStatus& exit) {
  static constexpr std::string_view kWords[] = {
      "imed out",           "timeout",         "imeoutError",
      "DEADLINE_EXCEEDED",  "deadline exceed", "distributed service",
      "oordination service"};
  static constexpr std::string_view kTypes[] = {"OSError",
                                                "IOError",
                                                "ConnectionError",
                                                "ConnectionRefusedError",
                                                "BrokenPipeError",
                                                "ConnectionResetError",
                                                "BlockingIOError",
                                                "InterruptedError",
                                                "ConnectionAbortedError"};
  if (IsAMistakeInTheProgram(exit.message)) return false;
  const std::string_view type = ExceptionType(exit.message);
  return SpeaksOfALostPeer(exit.message) ||
         std::find(std::begin(kTypes), std::end(kTypes), type) !=
             std::end(kTypes) ||
         std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view words) {
                       return exit.message.find(words) != std::string::npos;
                     });
}

// See Failure::signature.
std::string SignatureOf(const ExitStatus& exit) {
  // A kill may occur anywhere in the program.
  if (exit.reason == Reason::kOutOfMemory && Tier(exit) == 1) {
    return "out of memory";
  }
  if (exit.location.empty() || Tier(exit) != 1 || MayPass(exit)) return "";
  if (exit.how == ExitStatus::How::kCode && exit.value == 42) return "";
  return fmt::format("{}{} {} at {}",
                     exit.how == ExitStatus::How::kSignal ? "signal " : "",
                     exit.value, ExceptionType(exit.message), exit.location);
}

// How soon a peer notices a rank's exit.
constexpr Duration kMissedWithin = 60s;

// Returns the rank of the group that was the last to exit with 0 shortly before
// `first` failed, or null. A rank closes its connections before it exits, so
// its exit may be recorded slightly after a peer's failure. Peers of a job with
// parameter servers do not need each other.
const RankStatus* LeftBefore(const Job& job, const RankStatus& first) {
  if (HasParameterServers(job.spec)) return nullptr;
  const RankStatus* left = nullptr;
  for (const TaskStatus& task : job.tasks) {
    if (!IsOfGroup(task.type)) continue;
    for (const RankStatus& rank : task.ranks) {
      if (!rank.exit || !rank.exit->ok() || rank.away ||
          rank.exit->end_time > first.exit->end_time + kSameTime ||
          first.exit->end_time - rank.exit->end_time > kMissedWithin) {
        continue;
      }
      if (left == nullptr || rank.exit->end_time > left->exit->end_time) {
        left = &rank;
      }
    }
  }
  return left;
}

// True if the exit itself reports the end of a peer.
bool LostAPeer(const ExitStatus& exit) {
  constexpr int32_t kPeerLostCode = 75;  // For native ranks.
  if (exit.how != ExitStatus::How::kCode) return false;
  return Tier(exit) == 2 || (exit.victim && exit.value == kPeerLostCode);
}

bool WaitsAlone(const Job& job, const RankStatus& rank) {
  const auto lone = job.lone_ranks.find(rank.rank);
  return lone != job.lone_ranks.end() && lone->second.waits;
}

Cause CauseOf(const Job& job, const RankStatus& rank) {
  const ExitStatus& exit = *rank.exit;
  std::string rest;
  if (!exit.location.empty()) rest = fmt::format(" ({})", exit.location);
  rest += HintFor(job.spec, exit);
  // A long exit message must not displace place and hint.
  return {
      ReasonOf(exit),
      Shorten(fmt::format("{}: {}", RankLabel(job, rank.rank), Describe(exit)),
              kMaxSentence - std::min(rest.size(), kMaxSentence / 2)) +
          rest};
}

}  // namespace

Duration Backoff(int32_t failures) {
  Duration wait = 1s;
  for (int32_t i = 1; i < failures && wait < kLongestBackoff; ++i) wait *= 2;
  return std::min(wait, kLongestBackoff);
}

bool BlamesAPeer(const ExitStatus& exit) {
  return exit.victim || SpeaksOfALostPeer(exit.message) ||
         exit.message.find("distributed service") != std::string::npos ||
         exit.message.find("oordination service") != std::string::npos;
}

bool IsOfARank(const Job& job, const Cause& cause) {
  const auto ranks = RanksOf(job);
  if (cause.reason == Reason::kRankLeftEarly) return true;
  return std::any_of(ranks.begin(), ranks.end(), [&](const RankStatus* rank) {
    return rank->exit && !rank->exit->ok() && CauseOf(job, *rank) == cause;
  });
}

bool FailedByItsRanks(Reason reason) {
  switch (reason) {
    case Reason::kRankExit:
    case Reason::kRankSignal:
    case Reason::kOutOfMemory:
    case Reason::kRankLeftEarly:
    case Reason::kConfigMismatch:
    case Reason::kDiverged:
      return true;
    default:
      return false;
  }
}

Failure FailureOfRank(const Job& job, const RankStatus& rank) {
  const ExitStatus& exit = *rank.exit;
  Failure failure;
  failure.cause = CauseOf(job, rank);
  failure.exit_code = ShellCode(exit);
  failure.fatal = IsFatal(exit);
  failure.victim = exit.victim;
  failure.peer_lost = exit.victim || LostAPeer(exit) || MayPass(exit);
  failure.free_restart = failure.cause.reason == Reason::kRestartRequested;
  failure.port_taken = failure.cause.reason == Reason::kPortTaken;
  failure.holds = job.spec.kind == JobKind::kNative && !exit.victim &&
                  (failure.cause.reason == Reason::kNoCheckpoint ||
                   failure.cause.reason == Reason::kOutputMissing);
  failure.rank = rank.rank;
  failure.signature = SignatureOf(exit);
  return failure;
}

std::optional<Failure> FirstFailure(const Job& job) {
  const RankStatus* first = nullptr;
  const auto earlier = [](const RankStatus& a, const RankStatus& b) {
    return std::make_pair(Tier(*a.exit), a.exit->end_time) <
           std::make_pair(Tier(*b.exit), b.exit->end_time);
  };
  for (const RankStatus* rank : RanksOf(job)) {
    if (!rank->exit || rank->exit->ok() || rank->away ||
        WaitsAlone(job, *rank)) {
      continue;
    }
    if (first == nullptr || earlier(*rank, *first)) first = rank;
  }
  if (first == nullptr) return std::nullopt;
  Failure failure = FailureOfRank(job, *first);
  if (!LostAPeer(*first->exit)) return failure;
  if (const RankStatus* left = LeftBefore(job, *first)) {
    failure.cause = {Reason::kRankLeftEarly,
                     Shorten(fmt::format(
                         "{} exited with 0 while others still needed it; {}",
                         RankLabel(job, left->rank), failure.cause.message))};
  }
  return failure;
}

void MarkVictims(Job* job, const Failure& cause) {
  const ExitStatus* first = nullptr;
  for (const RankStatus* rank : RanksOf(*job)) {
    if (rank->rank == cause.rank && rank->exit) first = &*rank->exit;
  }
  for (TaskStatus& task : job->tasks) {
    for (RankStatus& rank : task.ranks) {
      if (!rank.exit || rank.exit->ok() || &*rank.exit == first ||
          WaitsAlone(*job, rank)) {
        continue;
      }
      const bool same_error = first != nullptr && !first->message.empty() &&
                              rank.exit->message == first->message;
      if (!same_error) rank.exit->victim = true;
    }
  }
}

Failure FailureOf(const Cause& cause) {
  Failure failure;
  failure.cause = cause;
  // RANK_EXIT without a failed rank: one ended before its gang had formed.
  failure.fatal = cause.reason == Reason::kPrepareRefused ||
                  cause.reason == Reason::kOutputNotShared ||
                  cause.reason == Reason::kExecFailed ||
                  cause.reason == Reason::kRankExit;
  failure.moved =
      cause.reason == Reason::kNodeDrained || cause.reason == Reason::kResized;
  failure.passing = cause.reason == Reason::kNoCapacity;
  failure.port_taken = cause.reason == Reason::kPortTaken;
  failure.holds = cause.reason == Reason::kOutputMissing;
  failure.ordered = cause.reason == Reason::kRestoreOrdered;
  return failure;
}

int PassingRefusals(const Job& job) {
  const auto end = std::find_if(
      job.attempts.rbegin(), job.attempts.rend(), [](const Attempt& attempt) {
        return attempt.end_cause.reason != Reason::kNoCapacity;
      });
  return static_cast<int>(end - job.attempts.rbegin());
}

bool IsOfTheHost(Reason reason) {
  return reason == Reason::kNodeLost || reason == Reason::kNodeForgotten;
}

int UnchargedFailures(const Job& job, WallTime now) {
  return static_cast<int>(std::count_if(
      job.uncharged_failures.begin(), job.uncharged_failures.end(),
      [&](WallTime time) { return now - time < kUnchargedWindow; }));
}

RestartPlan PlanRestart(const Job& job, const Failure& failure,
                        bool made_progress, Time now) {
  RestartPlan plan;
  plan.cause = failure.cause;
  plan.exit_code = failure.exit_code;
  plan.failures_without_progress =
      made_progress ? 0 : job.failures_without_progress;
  if (failure.moved || failure.holds || failure.ordered) {
    plan.restart = true;
    return plan;
  }
  if (failure.passing) {
    plan.restart = true;
    plan.backoff = PassingBackoff(job);
    return plan;
  }
  if (failure.uncharged) {
    const int before = UnchargedFailures(job, now.wall);
    if (before < kMostUncharged) {
      plan.restart = true;
      plan.uncharged = true;
      // With a lost node there is nothing to wait for.
      const bool at_once = IsOfTheHost(failure.cause.reason) && before == 0;
      plan.backoff = at_once ? Duration{} : Backoff(before + 1);
      return plan;
    }
  }
  if (failure.port_taken) {
    // The list does not include this attempt yet.
    const auto recent = std::count_if(
        job.attempts.begin(), job.attempts.end(), [&](const Attempt& attempt) {
          return attempt.end_cause.reason == Reason::kPortTaken &&
                 now.wall - attempt.end_time < kPortRestartWindow;
        });
    if (recent < kFreePortRestarts) {
      plan.restart = true;
      return plan;
    }
    plan.cause.message +=
        fmt::format("; {} other sets of ports did not help", kFreePortRestarts);
  }
  if (failure.fatal) {
    ++plan.failures_without_progress;
    return plan;
  }
  if (failure.free_restart) {
    const auto recent = std::count_if(
        job.free_restarts.begin(), job.free_restarts.end(),
        [&](WallTime t) { return now.wall - t < kFreeRestartWindow; });
    if (made_progress || recent < 2) {
      plan.restart = true;
      return plan;
    }
    plan.cause.message += "; requested three restarts in 60 s without progress";
  }
  const int32_t failures = ++plan.failures_without_progress;
  if (!made_progress && !failure.signature.empty() &&
      failure.signature == job.failure_signature) {
    plan.cause = {Reason::kRepeatedFailure,
                  fmt::format("failed twice in the same way without "
                              "progress, so it is not retried: {}",
                              failure.cause.message)};
    return plan;
  }
  if (failures > job.spec.restart_budget) {
    if (failures > 1) {
      plan.cause = {Reason::kRestartBudget,
                    fmt::format("failed {} times without progress; the last "
                                "time: {}",
                                failures, failure.cause.message)};
    }
    return plan;
  }
  plan.restart = true;
  plan.backoff = Backoff(failures);
  return plan;
}

}  // namespace lockstep::server
