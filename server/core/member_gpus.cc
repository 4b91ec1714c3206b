#include "server/core/member_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "server/core/member_checks.h"

namespace lockstep::server {
namespace {

// Interval between events for the same error of one GPU.
constexpr Duration kSameGpuError = std::chrono::minutes(10);
constexpr int kMaxGpuEventsOfBeat = 8;
constexpr size_t kMaxGpuErrorsKnown = 256;

std::string LabelOf(const Member& member, int32_t index) {
  for (const Gpu& gpu : member.info.gpus) {
    if (gpu.index == index) return GpuLabel(gpu);
  }
  return fmt::format("GPU {}", index);
}

bool Has(const std::vector<int32_t>& indices, int32_t index) {
  return std::find(indices.begin(), indices.end(), index) != indices.end();
}

void JudgeReadings(Member* member, const NodeReadings& readings,
                   GpuJudge* judge, Time now) {
  for (const GpuUsage& usage : readings.gpus) {
    for (const Gpu& gpu : member->info.gpus) {
      if (gpu.index != usage.index) continue;
      OpenCheck* const check = FindCheck(member, gpu.index);
      const bool judged =
          check == nullptr ? !gpu.fault.empty() : check->meanwhile.has_value();
      const auto verdict = judge->TakeReading(gpu, usage, judged, now);
      if (!verdict) continue;
      if (check != nullptr) {
        check->meanwhile = *verdict;
      } else {
        SetFault(member, gpu.index, *verdict, Reason::kNodeGpuWithheld, now);
      }
    }
  }
}

// Records the changes of GPUs in `readings`.
void TakeGpuNews(Member* member, const NodeReadings& readings,
                 const GpuJudge& judge, Time now) {
  int left = kMaxGpuEventsOfBeat;
  const auto silent_before = SilentGpus(member->readings);
  const auto silent = SilentGpus(readings);
  const auto say = [&](const std::vector<int32_t>& these,
                       const std::vector<int32_t>& others, Reason reason,
                       const char* what) {
    for (const int32_t index : these) {
      if (Has(others, index) || left-- <= 0) continue;
      AddEvent(member, reason, LabelOf(*member, index) + what, now.wall);
    }
  };
  say(silent, silent_before, Reason::kNodeGpuLost,
      " does not answer: no new work goes to it");
  say(silent_before, silent, Reason::kNodeGpuBack, " answers again");
  // Every error is checked, however many there are.
  for (const GpuError& error : readings.gpu_errors) {
    if (const auto verdict = judge.TakeXid(error.xid)) {
      SetFault(member, error.index, *verdict, Reason::kNodeGpuError, now);
    }
  }
  for (const GpuError& error : readings.gpu_errors) {
    auto& known = member->gpu_errors;
    const std::pair key{error.index, error.xid};
    const auto said = known.find(key);
    if (said != known.end() && now.mono - said->second < kSameGpuError) {
      continue;
    }
    if (left-- <= 0) break;
    if (known.size() >= kMaxGpuErrorsKnown) known.clear();
    known[key] = now.mono;
    AddEvent(member, Reason::kNodeGpuError,
             fmt::format("{}: the driver reported Xid {}",
                         LabelOf(*member, error.index), error.xid),
             now.wall);
  }
}

// A kernel needs moments to free the memory of a process: no event, but no
// work either.
constexpr Duration kReclaimEvent = std::chrono::seconds(5);

void TakeReclaims(Member* member, const NodeReadings& readings, Time now) {
  std::map<int32_t, Member::Reclaim> next;
  for (const GpuReclaim& reclaim : readings.reclaims) {
    const auto known = member->reclaims.find(reclaim.index);
    Member::Reclaim& state = next[reclaim.index];
    state = known == member->reclaims.end() ? Member::Reclaim{now.mono}
                                            : known->second;
    if (state.said || now.mono - state.since < kReclaimEvent) continue;
    state.said = true;
    AddEvent(member, Reason::kNodeGpuReclaim,
             fmt::format("{} is not free {} after its rank{} ended: {}. No new "
                         "work goes to it until it is",
                         LabelOf(*member, reclaim.index),
                         FormatDuration(now.mono - state.since),
                         reclaim.job.empty() ? "" : " of " + reclaim.job,
                         Describe(reclaim)),
             now.wall);
  }
  for (const auto& [index, state] : member->reclaims) {
    if (!state.said || next.contains(index)) continue;
    AddEvent(member, Reason::kNodeGpuFree,
             fmt::format("{} is free again after {}", LabelOf(*member, index),
                         FormatDuration(now.mono - state.since)),
             now.wall);
  }
  member->reclaims = std::move(next);
}

void TakeStuck(Member* member, const NodeReadings& readings, Time now) {
  std::set<int64_t> next;
  for (const HeldProcess& process : readings.stuck_processes) {
    next.insert(process.pid);
    if (member->stuck.contains(process.pid)) continue;
    AddEvent(member, Reason::kNodeStuckProcess,
             "SIGKILL does not end " + Describe(process), now.wall);
  }
  for (const int64_t pid : member->stuck) {
    if (next.contains(pid)) continue;
    AddEvent(member, Reason::kNodeStuckProcess,
             fmt::format("process {} has ended", pid), now.wall);
  }
  member->stuck = std::move(next);
}

}  // namespace

void AddEvent(Member* member, Reason reason, std::string message,
              WallTime now) {
  ++member->news;
  NodeRecord* const record = member;
  AddEvent(record, reason, std::move(message), now);
}

void SetFault(Member* member, int32_t index, const GpuVerdict& verdict,
              Reason reason, Time now) {
  for (Gpu& gpu : member->info.gpus) {
    if (gpu.index != index) continue;
    if (!gpu.fault.empty() && (!gpu.fault_end || verdict.length)) continue;
    gpu.fault =
        fmt::format("{} at {}", verdict.reason, FormatWallTime(now.wall));
    gpu.fault_end.reset();
    std::string end = "its host boots or the node is undrained";
    if (verdict.length) {
      gpu.fault_end = now.wall + *verdict.length;
      end = ClockText(*gpu.fault_end) + ", or the node is undrained";
    }
    AddEvent(
        member, reason,
        fmt::format("{}: {}{}: no new work goes to it until {}", GpuLabel(gpu),
                    verdict.reason, verdict.length ? "" : " is fatal", end),
        now.wall);
  }
}

bool ExpireFaults(Member* member, Time now) {
  bool any = false;
  // An operator has lifted the fault, or it has no end any more, or the node
  // has another daemon now.
  std::erase_if(member->checking.due, [&](int32_t index) {
    return !member->info.checks_gpus ||
           std::none_of(member->info.gpus.begin(), member->info.gpus.end(),
                        [&](const Gpu& gpu) {
                          return gpu.index == index && gpu.fault_end;
                        });
  });
  for (Gpu& gpu : member->info.gpus) {
    if (gpu.fault.empty() || !gpu.fault_end || now.wall < *gpu.fault_end) {
      continue;
    }
    // Its check decides.
    if (FindCheck(member, gpu.index) != nullptr ||
        member->checking.due.contains(gpu.index)) {
      continue;
    }
    any = EndFault(member, &gpu, now) || any;
  }
  return any;
}

void TakeGpuReadings(Member* member, const NodeReadings& readings,
                     GpuJudge* judge, Time now) {
  TakeGpuNews(member, readings, *judge, now);
  JudgeReadings(member, readings, judge, now);
  TakeReclaims(member, readings, now);
  TakeStuck(member, readings, now);
}

size_t Member::LostGpus() const {
  const std::vector<int32_t> silent = SilentGpus(readings);
  return missing_gpus.size() +
         static_cast<size_t>(std::count_if(
             info.gpus.begin(), info.gpus.end(), [&](const Gpu& gpu) {
               return gpu.fault.empty() && Has(silent, gpu.index);
             }));
}

std::vector<int32_t> Member::BadGpus() const {
  std::vector<int32_t> bad = FaultyGpus();
  for (const GpuReclaim& reclaim : readings.reclaims) {
    if (!Has(bad, reclaim.index)) bad.push_back(reclaim.index);
  }
  for (const auto& [index, check] : checking.open) {
    if (!Has(bad, index)) bad.push_back(index);
  }
  std::sort(bad.begin(), bad.end());
  return bad;
}

std::vector<int32_t> Member::FaultyGpus() const {
  std::vector<int32_t> bad;
  if (info.gpus.empty()) return bad;
  const std::vector<int32_t> silent = SilentGpus(readings);
  for (const Gpu& gpu : info.gpus) {
    if (!gpu.fault.empty() || Has(silent, gpu.index)) bad.push_back(gpu.index);
  }
  return bad;
}

const GpuReclaim* Member::ReclaimOf(int32_t gpu) const {
  for (const GpuReclaim& reclaim : readings.reclaims) {
    if (reclaim.index == gpu) return &reclaim;
  }
  return nullptr;
}

GpuState Member::StateOf(const Gpu& gpu) const {
  if (checking.open.contains(gpu.index)) return GpuState::kChecking;
  if (!gpu.fault.empty()) return GpuState::kWithheld;
  if (Has(SilentGpus(readings), gpu.index)) return GpuState::kSilent;
  return ReclaimOf(gpu.index) == nullptr ? GpuState::kOk : GpuState::kReclaim;
}

std::string Member::GpuTrouble(const Gpu& gpu) const {
  switch (StateOf(gpu)) {
    case GpuState::kOk:
      return "";
    case GpuState::kReclaim:
      return Describe(*ReclaimOf(gpu.index));
    case GpuState::kChecking:
      return DescribeCheck(gpu, checking.open.at(gpu.index));
    case GpuState::kWithheld:
      if (!gpu.fault_end) return gpu.fault;
      if (checking.due.contains(gpu.index)) {
        return gpu.fault + ", until a check that waits for it to be free";
      }
      return fmt::format("{}, until {}", gpu.fault,
                         FormatWallTime(*gpu.fault_end));
    case GpuState::kSilent:
      return "its driver does not answer";
  }
  return "";
}

}  // namespace lockstep::server
