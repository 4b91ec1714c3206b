#include "worker/agent/evidence/rank_evidence.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/logging.h"
#include "worker/agent/evidence/evidence_size.h"
#include "worker/devices/gpu_reading.h"

namespace lockstep::worker::agent {
namespace {

// Each takes seconds, and a queue of them would be answered too late.
constexpr size_t kMostQueries = 4;
// The coordinator waits 5 s for what is kept, which must be on disk then.
constexpr Duration kKeepTime = std::chrono::seconds(4);

// A failure soon after stacks were kept is how that stall ended.
constexpr Duration kStacksOutweigh = std::chrono::minutes(1);

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

bool IsAsked(const std::vector<int32_t>& ranks, int32_t rank) {
  return ranks.empty() ||
         std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

bool HasStacksSince(const StatusOr<std::vector<RankEvidence>>& ranks,
                    WallTime since) {
  if (!ranks.ok()) return false;
  return std::any_of(
      ranks->begin(), ranks->end(), [&](const RankEvidence& rank) {
        return rank.time >= since &&
               std::any_of(rank.processes.begin(), rank.processes.end(),
                           [](const ProcessEvidence& process) {
                             return !process.stack_source.empty();
                           });
      });
}

}  // namespace

RankEvidenceTaker::RankEvidenceTaker(
    const Parts& parts,
    std::function<std::optional<pid_t>(const RankRef&)> shim_of,
    std::function<void(uint64_t, const EvidenceAnswer&)> answer)
    : parts_(parts),
      shim_of_(std::move(shim_of)),
      answer_(std::move(answer)),
      kept_(parts.files, parts.setup->dir) {
  keeper_.Add([this] { kept_.Sweep(SystemClock().Now().wall); });
}

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
    if (i < status.xids.size() && status.xids[i].last() != 0) {
      known->readings[fmt::format("gpu{}.xid", reading.index)] =
          static_cast<double>(status.xids[i].last());
    }
  }
}

evidence::CaptureTarget RankEvidenceTaker::TargetOf(const RankRef& ref,
                                                    pid_t shim) const {
  const Rank& rank = parts_.table->all().at(ref);
  evidence::CaptureTarget target;
  target.shim = shim;
  target.log = rank.paths.log;
  if (!rank.gpus.empty()) target.flight_directory = rank.paths.work;
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

std::vector<evidence::CaptureTarget> RankEvidenceTaker::Running(
    const GangKey& key, const std::vector<int32_t>& ranks) const {
  std::vector<evidence::CaptureTarget> targets;
  for (const RankRef& ref : parts_.table->OfGang(key)) {
    if (!IsAsked(ranks, ref.rank)) continue;
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

evidence::CaptureOptions RankEvidenceTaker::OptionsFor(Duration within) const {
  evidence::CaptureOptions options;
  options.tools = *parts_.tools;
  options.deadline = MonotonicNow() + within;
  return options;
}

void RankEvidenceTaker::OnQuery(uint64_t stream, const EvidenceQuery& query) {
  EvidenceAnswer last;
  last.id = query.id;
  last.last = true;
  if (waiting_ >= kMostQueries) {
    last.status = Unavailable(
        "node {} already captures ranks for {} requests: try again later",
        parts_.setup->node.name, waiting_);
    return answer_(stream, last);
  }
  if (!query.kept_uid.empty()) return AnswerKept(stream, query);
  auto targets = Running({query.job, query.generation}, query.ranks);
  if (targets.empty()) return answer_(stream, last);
  ++waiting_;
  evidence::CaptureOptions options = OptionsFor(query.within);
  options.stacks = query.stacks;
  options.log_lines = query.log_lines;
  thread_.Add([this, stream, last, options, targets = std::move(targets)] {
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

void RankEvidenceTaker::AnswerKept(uint64_t stream,
                                   const EvidenceQuery& query) {
  ++waiting_;
  thread_.Add([this, stream, query] {
    auto ranks = kept_.Read({query.job, query.generation}, query.kept_uid);
    EvidenceAnswer last;
    last.id = query.id;
    last.last = true;
    last.status = ranks.status();
    if (ranks.ok()) {
      for (RankEvidence& rank : *ranks) {
        if (!IsAsked(query.ranks, rank.rank)) continue;
        EvidenceAnswer answer;
        answer.id = query.id;
        answer.evidence = std::move(rank);
        SendLater(stream, std::move(answer));
      }
    }
    SendLater(stream, last);
  });
}

evidence::CaptureTarget RankEvidenceTaker::EndedTarget(
    const RankRef& ref, const RankStatus& status) const {
  evidence::CaptureTarget target;
  RankEvidence& known = target.known;
  known.rank = ref.rank;
  known.node = parts_.setup->node.name;
  known.time = status.exit->end_time;
  known.ended = Describe(*status.exit);
  known.phase = status.progress.phase;
  known.step = status.progress.step;
  if (const auto rank = parts_.table->all().find(ref);
      rank != parts_.table->all().end()) {
    target.log = rank->second.paths.log;
    AddGpus(rank->second.gpus, &known);
  }
  return target;
}

void RankEvidenceTaker::Capture(const GangKey& key, const std::string& job_uid,
                                std::vector<evidence::CaptureTarget> running,
                                std::vector<evidence::CaptureTarget> ended,
                                const evidence::CaptureOptions& options) {
  std::vector<RankEvidence> ranks;
  const auto add = [&](RankEvidence evidence) {
    LimitSize(&evidence);
    ranks.push_back(std::move(evidence));
  };
  evidence::Capture(std::move(running), options, add);
  for (evidence::CaptureTarget& target : ended) {
    target.known.log_lines =
        evidence::LastLines(target.log, static_cast<size_t>(options.log_lines));
    add(std::move(target.known));
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const RankEvidence& a, const RankEvidence& b) {
              return a.rank < b.rank;
            });
  const WallTime now = SystemClock().Now().wall;
  if (!options.stacks &&
      HasStacksSince(kept_.Read(key, job_uid), now - kStacksOutweigh)) {
    return;
  }
  const Status kept = kept_.Write(key, job_uid, ranks, now);
  if (!kept.ok()) {
    LOG_WARN("{}: what its ranks do is not kept: {}", Describe(key),
             Message(kept));
  }
}

void RankEvidenceTaker::Keep(const GangKey& key, const std::string& job_uid,
                             std::function<void()> done) {
  auto targets = Running(key, {});
  if (targets.empty()) return parts_.loop->Post(lifetime_.Guard(done));
  evidence::CaptureOptions options = OptionsFor(kKeepTime);
  options.stacks = true;
  options.log_lines = kMaxEvidenceLines;
  keeper_.Add([this, key, job_uid, options, done = std::move(done),
               targets = std::move(targets)] {
    Capture(key, job_uid, targets, {}, options);
    parts_.loop->Post(lifetime_.Guard(done));
  });
}

void RankEvidenceTaker::KeepFailure(const GangKey& key,
                                    const std::string& job_uid,
                                    const std::vector<RankStatus>& ended,
                                    std::function<void()> done) {
  std::vector<evidence::CaptureTarget> ends;
  for (const RankStatus& status : ended) {
    ends.push_back(EndedTarget({key, status.rank}, status));
  }
  evidence::CaptureOptions options = OptionsFor(kKeepTime);
  options.log_lines = kMaxEvidenceLines;
  keeper_.Add([this, key, job_uid, options, done = std::move(done),
               ends = std::move(ends), running = Running(key, {})] {
    Capture(key, job_uid, running, ends, options);
    parts_.loop->Post(lifetime_.Guard(done));
  });
}

void RankEvidenceTaker::Drop(std::set<std::string> job_uids) {
  keeper_.Add([this, job_uids = std::move(job_uids)] { kept_.Drop(job_uids); });
}

}  // namespace lockstep::worker::agent
