#include "worker/agent/evidence/rank_evidence.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "worker/agent/evidence/evidence_size.h"
#include "worker/devices/gpu_reading.h"

namespace lockstep::worker::agent {
namespace {

// Each takes seconds, and a queue of them would be answered too late.
constexpr size_t kMostQueries = 4;

struct NamedValue {
  devices::GpuValue value;
  const char* name;
};
// Those that may explain why one rank is slower than others.
constexpr NamedValue kGpuValuesOfInterest[] = {
    {devices::GpuValue::kUtilization, "utilization"},
    {devices::GpuValue::kMemoryUsed, "memory_used"},
    {devices::GpuValue::kPower, "power"},
    {devices::GpuValue::kTemperatureCore, "temperature"},
    {devices::GpuValue::kClockSm, "clock_sm"},
    {devices::GpuValue::kPcieLinkWidth, "pcie_link_width"},
    {devices::GpuValue::kPcieLinkGeneration, "pcie_link_generation"},
    {devices::GpuValue::kEccUncorrectedVolatile, "ecc_uncorrected"},
};

}  // namespace

RankEvidenceTaker::RankEvidenceTaker(
    const Parts& parts,
    std::function<std::optional<pid_t>(const RankRef&)> shim_of,
    std::function<void(uint64_t, const EvidenceAnswer&)> answer)
    : parts_(parts), shim_of_(std::move(shim_of)), answer_(std::move(answer)) {}

void RankEvidenceTaker::AddGpus(const std::vector<int32_t>& gpus,
                                RankEvidence* known) const {
  if (parts_.gpus == nullptr || gpus.empty()) return;
  const devices::GpuStatus status =
      parts_.gpus->Latest(parts_.loop->Now().mono);
  if (status.readings.empty()) {
    known->notes.push_back(
        fmt::format("the GPUs' driver has not answered for {}",
                    FormatDuration(status.age)));
  }
  for (size_t i = 0; i < status.readings.size(); ++i) {
    const devices::GpuReading& reading = status.readings[i];
    if (std::find(gpus.begin(), gpus.end(), reading.index) == gpus.end()) {
      continue;
    }
    if (!reading.up) {
      known->notes.push_back(fmt::format("GPU {} does not answer: {}",
                                         reading.index, reading.error));
    }
    for (const NamedValue& value : kGpuValuesOfInterest) {
      if (const auto& number = reading.Get(value.value)) {
        known->readings[fmt::format("gpu{}.{}", reading.index, value.name)] =
            *number;
      }
    }
    if (i < status.xids.size() && status.xids[i].last != 0) {
      known->readings[fmt::format("gpu{}.xid", reading.index)] =
          static_cast<double>(status.xids[i].last);
    }
  }
}

evidence::CaptureTarget RankEvidenceTaker::TargetOf(const RankRef& ref,
                                                    pid_t shim) const {
  const Rank& rank = parts_.table->all().at(ref);
  evidence::CaptureTarget target;
  target.shim = shim;
  target.log = rank.paths.log;
  if (const auto cgroup = parts_.cgroups->enabled()
                              ? parts_.cgroups->Find(rank.task_id)
                              : std::nullopt) {
    target.cgroup = *cgroup;
  }
  RankEvidence& known = target.known;
  known.rank = ref.rank;
  known.node = parts_.setup->node.name;
  const RankProgress& progress = parts_.sampler->ProgressOf(ref);
  known.phase = progress.phase;
  known.step = progress.step;
  AddGpus(rank.gpus, &known);
  return target;
}

StatusOr<std::vector<evidence::CaptureTarget>> RankEvidenceTaker::TargetsOf(
    const EvidenceQuery& query) const {
  if (waiting_ >= kMostQueries) {
    return Unavailable(
        "node {} already captures ranks for {} requests: try again later",
        parts_.setup->node.name, waiting_);
  }
  const GangKey key{query.job, query.generation};
  std::vector<evidence::CaptureTarget> targets;
  for (const RankRef& ref : parts_.table->OfGang(key)) {
    if (!query.ranks.empty() &&
        std::find(query.ranks.begin(), query.ranks.end(), ref.rank) ==
            query.ranks.end()) {
      continue;
    }
    if (parts_.table->HasEnded(ref)) continue;
    if (const auto shim = shim_of_(ref)) {
      targets.push_back(TargetOf(ref, *shim));
    }
  }
  return targets;
}

void RankEvidenceTaker::SendLater(uint64_t stream, EvidenceAnswer answer) {
  const auto shared = std::make_shared<EvidenceAnswer>(std::move(answer));
  parts_.loop->Post(lifetime_.Guard([this, stream, shared] {
    if (shared->last) --waiting_;
    answer_(stream, *shared);
  }));
}

void RankEvidenceTaker::OnQuery(uint64_t stream, const EvidenceQuery& query) {
  auto targets = TargetsOf(query);
  EvidenceAnswer last;
  last.id = query.id;
  last.last = true;
  if (!targets.ok() || targets->empty()) {
    last.status = targets.status();
    return answer_(stream, last);
  }
  ++waiting_;
  evidence::CaptureOptions options;
  options.stacks = query.stacks;
  options.log_lines = query.log_lines;
  options.tools = *parts_.tools;
  options.deadline = MonotonicNow() + query.within;
  thread_.Add([this, stream, last, options, targets = *std::move(targets)] {
    evidence::Capture(targets, options, [&](RankEvidence evidence) {
      LimitSize(&evidence);
      EvidenceAnswer answer;
      answer.id = last.id;
      answer.evidence = std::move(evidence);
      SendLater(stream, std::move(answer));
    });
    SendLater(stream, last);
  });
}

}  // namespace lockstep::worker::agent
