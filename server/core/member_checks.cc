#include "server/core/member_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/core/job.h"
#include "server/core/member_gpus.h"

namespace lockstep::server {
namespace {

const Gpu* FindGpu(const Member& member, int32_t index) {
  for (const Gpu& gpu : member.info.gpus) {
    if (gpu.index == index) return &gpu;
  }
  return nullptr;
}

// Why the GPU cannot be checked now; empty if it can.
std::string WhyNot(const Member& member, int32_t index,
                   const std::set<int32_t>& held) {
  if (const auto open = member.checking.open.find(index);
      open != member.checking.open.end()) {
    return fmt::format("GPU {} is in a check already, since {}", index,
                       ClockText(open->second.since));
  }
  if (held.contains(index)) {
    return fmt::format(
        "a job holds GPU {}: wait for its end, or drain the "
        "node",
        index);
  }
  if (const GpuReclaim* const reclaim = member.ReclaimOf(index)) {
    return fmt::format("GPU {} is not free: {}", index, Describe(*reclaim));
  }
  return "";
}

void ClearFault(Gpu* gpu) {
  gpu->fault.clear();
  gpu->fault_end.reset();
}

// What the parts of the check and the readings during it say.
std::string CheckFailure(const GpuCheck& check, const OpenCheck& open) {
  if (!check.failure.empty()) return check.failure;
  for (const GpuCheckPart& part : check.parts) {
    if (!part.failure.empty()) return part.name + ": " + part.failure;
  }
  return open.meanwhile ? open.meanwhile->reason : "";
}

void Pass(Member* member, Gpu* gpu, const GpuCheck& check,
          const OpenCheck& open, Time now) {
  ++member->checking.passed;
  std::string after;
  if (!gpu->fault.empty() && gpu->fault == open.fault) {
    after = "; gets work again after: " + std::exchange(gpu->fault, "");
    ClearFault(gpu);
  } else if (!gpu->fault.empty()) {
    after = "; still gets no work: " + gpu->fault;
  }
  AddEvent(
      member, Reason::kNodeGpuChecked,
      fmt::format("{} passed a check of {}: {}{}", GpuLabel(*gpu),
                  FormatDuration(check.took), Describe(check.parts), after),
      now.wall);
}

void Fail(Member* member, Gpu* gpu, const GpuCheck& check,
          const OpenCheck& open, GpuJudge* judge, Time now) {
  ++member->checking.failed;
  GpuVerdict verdict =
      open.meanwhile ? *open.meanwhile
                     : judge->TakeFailedCheck(gpu->uuid, check.failure, now);
  verdict.reason = "failed a check: " + check.failure;
  const bool endless = !gpu->fault.empty() && !gpu->fault_end;
  AddEvent(member, Reason::kNodeGpuChecked,
           fmt::format("{} failed a check: {}{}{}", GpuLabel(*gpu),
                       check.failure, endless ? "; still gets no work: " : "",
                       endless ? gpu->fault : ""),
           now.wall);
  if (endless) return;
  ClearFault(gpu);
  SetFault(member, gpu->index, verdict, Reason::kNodeGpuWithheld, now);
}

// The GPU was not checked: nothing is known about it.
void Skip(Member* member, Gpu* gpu, const OpenCheck& open, const Status& why,
          GpuJudge* judge, Time now) {
  // What its readings said before counts.
  if (open.meanwhile && (gpu->fault.empty() || gpu->fault_end)) {
    ClearFault(gpu);
    SetFault(member, gpu->index, *open.meanwhile, Reason::kNodeGpuWithheld,
             now);
    return;
  }
  if (open.partner || open.asked || gpu->fault != open.fault) return;
  switch (why.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kFailedPrecondition:
      member->checking.due.insert(gpu->index);
      member->checking.not_before = now.mono + kGpuCheckPause;
      return;
    case StatusCode::kDeadlineExceeded: {
      GpuCheck none;
      none.failure = Message(why);
      return Fail(member, gpu, none, open, judge, now);
    }
    default:
      break;
  }
  AddEvent(member, Reason::kNodeGpuReturned,
           fmt::format("{} gets work again without a check ({}) after: {}",
                       GpuLabel(*gpu), Message(why), gpu->fault),
           now.wall);
  ClearFault(gpu);
}

// What stands is no better because a check passed, also one that was shorter
// than the time between two heartbeats.
void JudgeStanding(const Member& member, const Gpu& gpu, GpuJudge* judge,
                   Time now, OpenCheck* open) {
  if (open->meanwhile) return;
  for (const GpuUsage& usage : member.readings.gpus) {
    if (usage.index != gpu.index) continue;
    open->meanwhile = judge->TakeReading(gpu, usage, /*withheld=*/false, now);
  }
}

const GpuCheck* CheckOf(const GpuCheckAnswer& answer, int32_t index) {
  if (!answer.status.ok()) return nullptr;
  for (const GpuCheck& check : answer.checks) {
    if (check.index == index) return &check;
  }
  return nullptr;
}

}  // namespace

StatusOr<std::vector<int32_t>> MayCheck(const Member& member,
                                        const std::vector<int32_t>& gpus,
                                        const std::set<int32_t>& held) {
  const NodeName& node = member.info.name;
  for (const int32_t index : gpus) {
    if (FindGpu(member, index) == nullptr) {
      return InvalidArgument("node {} has no GPU {}: it offers {}", node, index,
                             member.info.gpus.size());
    }
  }
  if (member.info.gpus.empty()) {
    return FailedPrecondition("node {} has no GPU", node);
  }
  if (member.state != NodeState::kReady) {
    return Unavailable("node {} is {}: {}", node, Name(member.state),
                       member.message);
  }
  if (!member.info.checks_gpus) {
    return Unimplemented(
        "node {}: its daemon cannot check GPUs: it has no lockstep-gpu-check "
        "beside its lockstep-shim, or is older",
        node);
  }
  std::set<int32_t> chosen(gpus.begin(), gpus.end());
  std::string why;
  for (const Gpu& gpu : member.info.gpus) {
    if (!gpus.empty() && !chosen.contains(gpu.index)) continue;
    const std::string not_now = WhyNot(member, gpu.index, held);
    if (not_now.empty()) {
      chosen.insert(gpu.index);
    } else if (!gpus.empty()) {
      return FailedPrecondition("node {}: {}", node, not_now);
    } else if (why.empty()) {
      why = not_now;
    }
  }
  if (chosen.empty()) {
    return FailedPrecondition("node {} has no GPU to check now: {}", node, why);
  }
  return std::vector<int32_t>(chosen.begin(), chosen.end());
}

std::vector<int32_t> DueChecks(const Member& member,
                               const std::set<int32_t>& held, Time now) {
  std::vector<int32_t> due;
  if (member.state != NodeState::kReady ||
      now.mono < member.checking.not_before) {
    return due;
  }
  for (const int32_t index : member.checking.due) {
    if (WhyNot(member, index, held).empty()) due.push_back(index);
  }
  return due;
}

std::optional<int32_t> PartnerFor(const Member& member,
                                  const std::vector<int32_t>& gpus,
                                  const std::set<int32_t>& held) {
  if (gpus.size() != 1) return std::nullopt;
  const std::vector<int32_t> bad = member.BadGpus();
  for (const Gpu& gpu : member.info.gpus) {
    if (gpu.index == gpus[0] || held.contains(gpu.index) ||
        std::find(bad.begin(), bad.end(), gpu.index) != bad.end()) {
      continue;
    }
    return gpu.index;
  }
  return std::nullopt;
}

void BeginCheck(Member* member, const GpuCheckOrder& order, bool asked,
                Time now) {
  const auto begin = [&](int32_t index, bool partner) {
    const Gpu* const gpu = FindGpu(*member, index);
    if (gpu == nullptr) return;
    member->checking.due.erase(index);
    member->checking.open[index] = {order.id, now.wall, asked, partner,
                                    gpu->fault};
  };
  for (const int32_t index : order.gpus) begin(index, false);
  if (order.partner) begin(*order.partner, true);
}

std::vector<GpuCheck> EndCheck(Member* member, const GpuCheckAnswer& answer,
                               GpuJudge* judge, Time now) {
  std::vector<GpuCheck> checks;
  const Status why =
      answer.status.ok()
          ? Internal("its daemon did not say what the check found")
          : answer.status;
  std::map<int32_t, OpenCheck>& open = member->checking.open;
  for (auto it = open.begin(); it != open.end();) {
    if (it->second.id != answer.id) {
      ++it;
      continue;
    }
    auto [index, ended] = *it;
    it = open.erase(it);
    Gpu* gpu = nullptr;
    for (Gpu& each : member->info.gpus) {
      if (each.index == index) gpu = &each;
    }
    if (gpu == nullptr) continue;  // It is no longer offered.
    const GpuCheck* const said = CheckOf(answer, index);
    if (ended.partner || said == nullptr) {
      Skip(member, gpu, ended, why, judge, now);
      continue;
    }
    JudgeStanding(*member, *gpu, judge, now, &ended);
    GpuCheck check = *said;
    check.uuid = gpu->uuid;
    check.time = now.wall;
    // Beside other words in a fault, which is 256 bytes at most on the wire.
    check.failure = Shorten(CheckFailure(*said, ended), 160);
    if (check.failure.empty()) {
      Pass(member, gpu, check, ended, now);
    } else {
      Fail(member, gpu, check, ended, judge, now);
    }
    checks.push_back(check);
    member->checking.last[index] = std::move(check);
  }
  return checks;
}

OpenCheck* FindCheck(Member* member, int32_t gpu) {
  const auto it = member->checking.open.find(gpu);
  return it == member->checking.open.end() ? nullptr : &it->second;
}

std::string DescribeCheck(const Gpu& gpu, const OpenCheck& check) {
  return fmt::format(
      "{} since {}{}{}",
      check.partner ? "helps to check another GPU" : "is being checked",
      ClockText(check.since), gpu.fault.empty() ? "" : ", ", gpu.fault);
}

bool EndFault(Member* member, Gpu* gpu, Time now) {
  // A node that is away says what it can when it is back.
  if (member->state != NodeState::kReady) return false;
  if (member->info.checks_gpus) {
    member->checking.due.insert(gpu->index);
    return false;
  }
  AddEvent(member, Reason::kNodeGpuReturned,
           fmt::format("{} gets work again without a check (its daemon cannot "
                       "check GPUs) after: {}",
                       GpuLabel(*gpu), gpu->fault),
           now.wall);
  ClearFault(gpu);
  return true;
}

}  // namespace lockstep::server
