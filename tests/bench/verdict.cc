#include "tests/bench/verdict.h"

#include <algorithm>

namespace lockstep {
namespace {

std::string NameOf(const BenchResult& result) {
  return result.bytes == 0
             ? result.id
             : fmt::format("{} {}", result.id, FormatBytes(result.bytes));
}

// Whether the machine was as quick in one round as in the next: the peer's
// medians are within half of each other. Neighbours of a virtual machine that
// use the other threads of its cores show in no counter. What was taken by
// turns needs no such machine.
bool IsSteady(const BenchResult& result) {
  if (result.by_turns) return true;
  double least = 0;
  double most = 0;
  for (const std::vector<double>& round : result.peer_seconds) {
    const double median = Percentile(round, 0.5);
    least = least == 0 ? median : std::min(least, median);
    most = std::max(most, median);
  }
  return most <= 1.5 * least;
}

}  // namespace

Verdict JudgeResults(const std::vector<BenchResult>& results,
                     const Gate& gate) {
  Verdict verdict;
  std::string wrong;
  std::string missed;
  bool quiet = false;  // something that is missed was read on a quiet machine
  for (const BenchResult& result : results) {
    const std::string name = NameOf(result);
    if (!result.verified) {
      wrong += fmt::format("{}{}", wrong.empty() ? "" : ", ", name);
      verdict.lines.push_back(fmt::format("{}: WRONG DATA", name));
      continue;
    }
    if (result.must <= 0) continue;
    const Ratio ratio = RatioOf(result);
    const double shown = gate.on_median ? ratio.value : ratio.low;
    const double must = result.must * gate.factor;
    const bool good = shown >= must;
    verdict.lines.push_back(
        fmt::format("{} against {}: {} {:.4f}, must {:.3f}, aim {:.3f}: {}",
                    name, result.peer.substr(0, result.peer.find(": ")),
                    gate.on_median ? "ratio" : "lower end", shown, must,
                    result.aim, good ? "met" : "MISSED"));
    if (good) continue;
    missed += fmt::format("{}{}", missed.empty() ? "" : ", ", name);
    quiet = quiet || (result.busy_rounds == 0 && IsSteady(result));
  }
  if (!wrong.empty()) {
    verdict.status = DataLoss("wrong data: {}", wrong);
  } else if (!missed.empty() && quiet) {
    verdict.status = FailedPrecondition("missed: {}", missed);
  } else if (!missed.empty()) {
    verdict.status =
        Unavailable("missed on a busy or unsteady machine: {}", missed);
  }
  return verdict;
}

int ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return 0;
    case StatusCode::kNotFound:
    case StatusCode::kPermissionDenied:
    case StatusCode::kUnavailable:
      return kExitNotMeasured;
    default:
      return 1;
  }
}

}  // namespace lockstep
