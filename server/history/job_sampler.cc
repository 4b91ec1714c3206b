#include "server/history/job_sampler.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace lockstep::server {
namespace {

constexpr size_t kStepTimes = 60;
// A reading is shown for this long without a newer one; a speed at least so
// long, and this many times the distance of its last two changes.
constexpr int64_t kPatience = 4;
constexpr Duration kLeastPatience = std::chrono::seconds(10);

// The step that the job has reached, or -1. A program that has not joined may
// name it in its log.
int64_t StepOf(const JobSnapshot& snapshot) {
  int64_t step = -1;
  if (snapshot.progress) step = snapshot.progress->chief.committed_step;
  if (step >= 0) return step;
  for (const auto& [number, rank] : snapshot.live) {
    const auto& signs = rank.progress.signs;
    if (signs && signs->log_step) step = std::max(step, *signs->log_step);
  }
  return step;
}

std::array<double, kPhaseSeries> Parts(const PhaseSeconds& p) {
  return {p.input,          p.compute,   p.allreduce,
          p.straggler_wait, p.optimizer, p.checkpoint,
          p.evaluation,     p.other,     p.compile};
}

float MeanGpu(const std::map<int32_t, float>& readings,
              const std::vector<int32_t>& gpus) {
  float sum = 0;
  int known = 0;
  for (const int32_t index : gpus) {
    const auto found = readings.find(index);
    if (found == readings.end()) continue;
    sum += found->second;
    ++known;
  }
  return known == 0 ? kNoValue : sum / static_cast<float>(known);
}

// The GPUs of one rank of a task: its own if there is one for each.
std::vector<int32_t> GpusOfRank(const TaskStatus& task, size_t place) {
  if (task.ranks.size() > 1 && task.gpus.size() == task.ranks.size()) {
    return {task.gpus[place]};
  }
  return task.gpus;
}

std::optional<int64_t> NetworkBytes(const Usage& usage) {
  if (!usage.network_sent_bytes || !usage.network_received_bytes) return {};
  return *usage.network_sent_bytes + *usage.network_received_bytes;
}

void AddTo(float value, float* sum) {
  if (!IsKnown(value)) return;
  *sum = IsKnown(*sum) ? *sum + value : value;
}

}  // namespace

NodeGpus GpusOf(const std::vector<NodeSnapshot>& nodes) {
  NodeGpus out;
  for (const NodeSnapshot& node : nodes) {
    const Member& member = node.member;
    if (member.state == NodeState::kUnknown ||
        member.state == NodeState::kLost) {
      continue;
    }
    for (const GpuUsage& gpu : member.readings.gpus) {
      if (gpu.utilization) {
        out[member.info.name][gpu.index] = static_cast<float>(*gpu.utilization);
      }
    }
  }
  return out;
}

void JobSampler::Meter::Take(int64_t reached, WallTime now) {
  if (reached == count) return;
  if (count >= 0 && reached > count && now > changed) {
    took = now - changed;
    rate = static_cast<double>(reached - count) / ToSeconds(took);
  } else {
    rate = 0;
    took = {};
  }
  count = reached;
  changed = now;
}

float JobSampler::Meter::Rate(WallTime now) const {
  if (count < 0 || took == Duration{}) return kNoValue;
  const Duration patience = std::max(took * kPatience, kLeastPatience);
  return now - changed > patience ? 0 : static_cast<float>(rate);
}

void JobSampler::TakeSteps(const JobSnapshot& snapshot, JobSample* sample) {
  const WallTime now = snapshot.time;
  const int64_t step = StepOf(snapshot);
  if (step >= 0) {
    const int64_t before = steps_.count;
    steps_.Take(step, now);
    sample->Of(JobSeries::kStepsPerSecond) = steps_.Rate(now);
    if (step != before && steps_.rate > 0) {
      step_times_.push_back(static_cast<float>(1 / steps_.rate));
      if (step_times_.size() > kStepTimes) step_times_.pop_front();
    }
    if (!step_times_.empty()) {
      std::vector<float> sorted(step_times_.begin(), step_times_.end());
      std::sort(sorted.begin(), sorted.end());
      sample->Of(JobSeries::kStepMedian) = sorted[sorted.size() / 2];
      sample->Of(JobSeries::kStepP99) = sorted[(sorted.size() * 99) / 100];
    }
  }
  if (!snapshot.progress) return;
  const RankProgress& chief = snapshot.progress->chief;
  if (chief.samples > 0) {
    samples_.Take(chief.samples, now);
    sample->Of(JobSeries::kSamplesPerSecond) = samples_.Rate(now);
  }
  if (chief.committed_step >= 0 &&
      (snapshot.job->spec.kind == JobKind::kNative || chief.loss != 0)) {
    sample->Of(JobSeries::kLoss) = static_cast<float>(chief.loss);
  }
  for (const auto& [name, value] : chief.values) {
    if (sample->values.size() == kMaxValuesInHistory) break;
    if (name == kFlopsPerSample) continue;
    sample->values[name] = static_cast<float>(value);
  }
}

void JobSampler::Counters::TakeUsage(const Usage& usage, WallTime now) {
  const double passed = usage.seconds - seconds;
  if (passed != 0) {
    // A restarted process is younger, and its first reading has no earlier one.
    const bool goes_on = passed > 0 && heard != WallTime{};
    const auto bytes = NetworkBytes(usage);
    cores = network = kNoValue;
    if (goes_on) {
      cores = static_cast<float>(
          std::max(0.0, usage.cpu_seconds - cpu_seconds) / passed);
    }
    if (goes_on && bytes && network_bytes) {
      network = static_cast<float>(
          std::max(0.0, static_cast<double>(*bytes - *network_bytes)) / passed);
    }
    cpu_seconds = usage.cpu_seconds;
    network_bytes = bytes;
    seconds = usage.seconds;
    heard = now;
  }
  if (now - heard > kLeastPatience) cores = network = kNoValue;
}

void JobSampler::TakeRank(const RankStatus& rank, WallTime now,
                          JobSample::Rank* row,
                          std::array<double, kPhaseSeries>* phases) {
  const auto [entry, is_new] = ranks_.try_emplace(rank.rank);
  Counters& counters = entry->second;
  if (!is_new) {
    const auto parts = Parts(rank.progress.phases);
    const auto earlier = Parts(counters.phases);
    for (size_t p = 0; p < kPhaseSeries; ++p) {
      (*phases)[p] += std::max(0.0, parts[p] - earlier[p]);
    }
  }
  counters.phases = rank.progress.phases;
  row->rank = rank.rank;
  counters.TakeUsage(rank.usage, now);
  row->series[0] = counters.cores;
  row->series[2] = static_cast<float>(rank.usage.memory_bytes);
  row->series[3] = counters.network;
}

void JobSampler::TakeRanks(const JobSnapshot& snapshot, const NodeGpus& gpus,
                           JobSample* sample) {
  std::array<double, kPhaseSeries> phases{};
  std::array<float, kRankSeries> sums;
  sums.fill(kNoValue);
  int gpu_ranks = 0;
  std::set<int32_t> running;
  for (const TaskStatus& task : snapshot.job->tasks) {
    const auto readings = gpus.find(task.node);
    for (size_t place = 0; place < task.ranks.size(); ++place) {
      const auto live = snapshot.live.find(task.ranks[place].rank);
      if (live == snapshot.live.end() || live->second.exit) continue;
      running.insert(live->first);
      JobSample::Rank row;
      TakeRank(live->second, snapshot.time, &row, &phases);
      if (readings != gpus.end()) {
        row.series[1] = MeanGpu(readings->second, GpusOfRank(task, place));
      }
      gpu_ranks += static_cast<int>(IsKnown(row.series[1]));
      for (size_t s = 0; s < kRankSeries; ++s) AddTo(row.series[s], &sums[s]);
      if (row.rank < kMaxRanksInHistory) sample->ranks.push_back(row);
    }
  }
  sample->Of(JobSeries::kCpu) = sums[0];
  sample->Of(JobSeries::kMemory) = sums[2];
  sample->Of(JobSeries::kNetwork) = sums[3];
  if (gpu_ranks > 0) {
    sample->Of(JobSeries::kGpu) = sums[1] / static_cast<float>(gpu_ranks);
  }
  const double sum = std::accumulate(phases.begin(), phases.end(), 0.0);
  for (size_t p = 0; sum > 0 && p < kPhaseSeries; ++p) {
    sample->job[kFirstPhase + p] = static_cast<float>(phases[p] / sum);
  }
  std::erase_if(ranks_,
                [&](const auto& r) { return !running.contains(r.first); });
  std::sort(sample->ranks.begin(), sample->ranks.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
}

JobSample JobSampler::Take(const JobSnapshot& snapshot, const NodeGpus& gpus) {
  const Job& job = *snapshot.job;
  if (job.generation != generation_) {
    generation_ = job.generation;
    steps_ = samples_ = {};
    ranks_.clear();
    step_times_.clear();
  }
  JobSample sample;
  TakeSteps(snapshot, &sample);
  TakeRanks(snapshot, gpus, &sample);
  if (job.last_checkpoint && job.last_checkpoint->time != checkpoint_) {
    checkpoint_ = job.last_checkpoint->time;
    sample.checkpoint = checkpoint_;
  }
  return sample;
}

}  // namespace lockstep::server
