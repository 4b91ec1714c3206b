#include "worker/agent/readings/rank_readings.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>

#include "common/wire/field_checker.h"
#include "worker/agent/core/printable_text.h"

namespace lockstep::worker::agent {
namespace {

using devices::GpuReading;
using devices::GpuValue;

constexpr double kMaxCores = 1e6;

int64_t Count(uint64_t value) {
  return static_cast<int64_t>(std::min<uint64_t>(value, kMaxExact));
}

// Above this the coordinator takes no number.
double Bounded(double value) {
  return std::isfinite(value) ? std::clamp(value, -1e300, 1e300) : 0;
}

double PhaseTime(const task::RankCounters& counters, task::RankPhase phase) {
  const double seconds = counters.phase_seconds[static_cast<size_t>(phase)];
  return std::isfinite(seconds) ? std::clamp(seconds, 0.0, 1e12) : 0;
}

std::optional<CollectiveWait> ToCollectiveWait(const task::RankWait& wait) {
  if (wait.beat == 0) return std::nullopt;
  CollectiveWait out;
  if (wait.known) out.waiting = wait.waiting;
  if (wait.peer >= 0) out.peer = wait.peer;
  out.waits = Count(wait.waits);
  return out;
}

void PutHealth(const GpuReading& reading, GpuUsage* usage) {
  const auto put = [&](GpuValue value, double most, auto* to) {
    using Number = typename std::remove_reference_t<decltype(*to)>::value_type;
    const auto& number = reading.Get(value);
    if (number && std::isfinite(*number)) {
      *to = static_cast<Number>(std::clamp(*number, 0.0, most));
    }
  };
  put(GpuValue::kEccUncorrectedVolatile, 1e15, &usage->uncorrected_errors);
  put(GpuValue::kRowRemapPending, 1, &usage->remap_pending);
  put(GpuValue::kRowRemapFailure, 1, &usage->remap_failed);
  put(GpuValue::kPcieLinkWidth, 1024, &usage->pcie_width);
  put(GpuValue::kPcieLinkWidthMax, 1024, &usage->pcie_width_max);
  put(GpuValue::kNvlinksActive, 1024, &usage->nvlinks);
  if (!reading.throttled) return;
  // The hardware's own reasons first: they are the worse ones.
  using devices::GpuThrottle;
  for (const GpuThrottle throttle :
       {GpuThrottle::kHwThermal, GpuThrottle::kPowerBrake,
        GpuThrottle::kHwSlowdown, GpuThrottle::kSwThermal}) {
    if (!(*reading.throttled)[static_cast<size_t>(throttle)]) continue;
    usage->slowdown = Name(throttle);
    return;
  }
}

}  // namespace

RankProgress ToProgress(const task::RankPage& page, Generation generation) {
  RankProgress out;
  if (page.progress.generation != generation) return out;
  out.step = Count(page.progress.step);
  out.committed_step =
      std::clamp<int64_t>(page.progress.last_committed, -1, kMaxExact);
  out.phase = task::RankPhaseName(page.progress.phase);
  out.collective_wait = ToCollectiveWait(page.wait);
  if (!page.has_counters) return out;
  const task::RankCounters& c = page.counters;
  out.total_steps = Count(c.total_steps);
  out.epoch = static_cast<double>(Count(c.epoch));
  out.samples = Count(c.samples);
  if (c.has_loss) out.loss = Bounded(c.last_loss);
  if (c.has_learning_rate) out.learning_rate = Bounded(c.last_learning_rate);
  using Phase = task::RankPhase;
  out.phases = {
      PhaseTime(c, Phase::kInput),      PhaseTime(c, Phase::kCompute),
      PhaseTime(c, Phase::kAllReduce),  PhaseTime(c, Phase::kStragglerWait),
      PhaseTime(c, Phase::kOptimizer),  PhaseTime(c, Phase::kCheckpoint),
      PhaseTime(c, Phase::kEvaluation), PhaseTime(c, Phase::kOther),
      PhaseTime(c, Phase::kCompile)};
  out.allreduce_bytes = Count(c.allreduce_bytes);
  out.collectives = Count(c.collectives);
  out.skipped_steps = Count(c.steps_skipped);
  out.checkpoints = Count(c.checkpoints_saved);
  out.allreduce_busy_seconds =
      std::clamp(Bounded(c.allreduce_busy_seconds), 0.0, 1e12);
  if (const task::StragglerReading& s = c.communication.straggler;
      s.rank >= 0 && s.steps > 0) {
    out.straggler = Straggler{s.rank, static_cast<int32_t>(s.steps),
                              static_cast<int32_t>(s.late_steps),
                              std::clamp(Bounded(s.cost), 0.0, 1.0)};
  }
  for (const auto& [name, value] : c.values) {
    out.values[PrintableText(name, 64)] = Bounded(value);
  }
  return out;
}

bool BeatWatch::Take(uint64_t beat, MonoTime now) {
  if (beat != beat_ || !looked_ || now - *looked_ >= kSilence) changed_ = now;
  beat_ = beat;
  looked_ = now;
  return now - changed_ < kSilence;
}

ExitStatus ToExitStatus(const task::ExitRecord& record) {
  ExitStatus exit;
  exit.end_time = FromUnixNanos(std::max<int64_t>(0, record.end_unix_nanos));
  // `how` and `value` describe the end; the text only adds to them.
  if (record.kind == task::ExitKind::kNotStarted ||
      record.message != task::DescribeExit(record)) {
    exit.message = PrintableText(record.message, 2048);
  }
  switch (record.kind) {
    case task::ExitKind::kExited:
      exit.how = ExitStatus::How::kCode;
      exit.value = WEXITSTATUS(record.wait_status);
      break;
    case task::ExitKind::kSignaled:
      exit.how = ExitStatus::How::kSignal;
      exit.value = std::clamp(WTERMSIG(record.wait_status), 1, 64);
      break;
    case task::ExitKind::kNotStarted:
      exit.how = ExitStatus::How::kExecErrno;
      exit.value = std::clamp(record.start_errno, 0, 4095);
      break;
  }
  return exit;
}

Usage ToUsage(const task::ExitRecord& record, const Usage& sampled) {
  Usage usage = sampled;
  usage.memory_bytes = 0;
  const double cpu = static_cast<double>(record.user_nanos) / 1e9 +
                     static_cast<double>(record.system_nanos) / 1e9;
  usage.cpu_seconds = std::clamp(std::max(cpu, sampled.cpu_seconds), 0.0, 1e12);
  usage.memory_peak_bytes =
      std::max(sampled.memory_peak_bytes, Count(record.max_rss_bytes));
  const double seconds = static_cast<double>(record.end_mono_nanos) / 1e9 -
                         static_cast<double>(record.start_mono_nanos) / 1e9;
  usage.seconds = std::clamp(seconds, 0.0, 1e12);
  if (usage.seconds > 0) {
    // No mean is above the peak: of a rank too short for samples it is all
    // that is known.
    Raise(std::optional(std::min(usage.cpu_seconds / usage.seconds, kMaxCores)),
          &usage.cpu_peak_cores);
  }
  return usage;
}

void CpuPeak::Add(MonoTime now, double cpu_seconds) {
  constexpr Duration kShortest = std::chrono::milliseconds(500);
  if (last_ && now - *last_ < kShortest) return;
  if (last_ && std::isfinite(cpu_seconds)) {
    const double cores =
        (cpu_seconds - last_seconds_) / ToSeconds(now - *last_);
    Raise(std::optional(std::clamp(cores, 0.0, kMaxCores)), &cores_);
  }
  last_ = now;
  last_seconds_ = cpu_seconds;
}

GpuSetUse UseOfGpus(const std::vector<GpuUsage>& readings,
                    const std::vector<int32_t>& indices) {
  GpuSetUse use;
  double utilization = 0;
  int known = 0;
  for (const GpuUsage& gpu : readings) {
    if (std::count(indices.begin(), indices.end(), gpu.index) == 0) continue;
    if (gpu.utilization) {
      utilization += *gpu.utilization;
      ++known;
    }
    if (gpu.memory_used_bytes) {
      use.memory_bytes = use.memory_bytes.value_or(0) + *gpu.memory_used_bytes;
    }
  }
  if (known > 0) use.utilization = utilization / known;
  return use;
}

std::vector<GpuUsage> ToGpuUsage(const std::vector<Gpu>& offered,
                                 const std::vector<GpuReading>& readings) {
  std::vector<GpuUsage> out;
  for (const Gpu& gpu : offered) {
    GpuUsage& usage = out.emplace_back();
    usage.index = gpu.index;
    const auto found = std::find_if(
        readings.begin(), readings.end(),
        [&](const GpuReading& reading) { return reading.index == gpu.index; });
    if (found == readings.end()) continue;
    const auto put = [&](GpuValue value, double most, auto* to) {
      const auto& number = found->Get(value);
      if (number && std::isfinite(*number)) {
        *to = std::clamp(*number, 0.0, most);
      }
    };
    put(GpuValue::kUtilization, 1, &usage.utilization);
    put(GpuValue::kMemoryAccess, 1, &usage.memory_access);
    put(GpuValue::kSmActivity, 1, &usage.sm_activity);
    put(GpuValue::kTensorActivity, 1, &usage.tensor_activity);
    put(GpuValue::kPower, 1e6, &usage.power_watts);
    put(GpuValue::kTemperatureCore, 1e4, &usage.temperature_celsius);
    std::optional<double> used;
    put(GpuValue::kMemoryUsed, 1e15, &used);
    if (used) usage.memory_used_bytes = static_cast<int64_t>(*used);
    PutHealth(*found, &usage);
  }
  return out;
}

}  // namespace lockstep::worker::agent
