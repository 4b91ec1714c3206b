#include "worker/agent/readings/rank_sampler.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "worker/agent/host/orphans.h"

namespace lockstep::worker::agent {

RankSampler::RankSampler(
    EventLoop* loop, FileSystem* files, RankTable* table,
    std::function<std::optional<pid_t>(const RankRef&)> shim_of,
    std::function<bool(const RankRef&)> has_left, Duration first_sign)
    : loop_(loop),
      files_(files),
      table_(table),
      shim_of_(std::move(shim_of)),
      has_left_(std::move(has_left)),
      first_sign_(first_sign),
      outputs_(loop, [this](const RankRef& ref) {
        const auto it = ranks_.find(ref);
        if (it == ranks_.end() || it->second.signs == nullptr) return;
        it->second.signs->TakeFiles(loop_->Now().mono);
      }) {}

void RankSampler::AddTo(const RankRef& ref, TaskReading* reading) const {
  const auto it = ranks_.find(ref);
  if (it == ranks_.end()) return;
  const Sampled& rank = it->second;
  reading->cpu_seconds = rank.usage.cpu_seconds;
  reading->processes = reading->ended ? 0 : rank.living;
  reading->memory_bytes = rank.usage.memory_bytes;
  reading->memory_peak_bytes = rank.usage.memory_peak_bytes;
  reading->read_bytes = rank.read_bytes;
  reading->write_bytes = rank.write_bytes;
  reading->cgroup = rank.cgroup_reading;
  reading->counters = rank.counters;
}

void RankSampler::Adopt(const RankRef& ref, const RankProgress& progress,
                        const Usage& usage) {
  ranks_[ref].progress = progress;
  ranks_[ref].usage = usage;
}

void RankSampler::Restart(const RankRef& ref) {
  Sampled& rank = ranks_[ref];
  rank.usage = Usage();
  rank.cpu_peak = CpuPeak();
  rank.gpu_sum = 0;
  rank.gpu_samples = 0;
  rank.page.reset();
  rank.progress = RankProgress();
  rank.counters.reset();
  rank.cgroup.reset();
  rank.signs.reset();
}

RankSigns* RankSampler::SignsOf(const RankRef& ref) {
  const Rank& known = table_->Get(ref);
  if (!known.is_program) return nullptr;
  std::unique_ptr<RankSigns>& signs = ranks_[ref].signs;
  if (signs == nullptr) {
    signs = std::make_unique<RankSigns>(
        SignOptions{known.stall_after, known.progress_pattern, known.paths.log,
                    first_sign_},
        loop_->Now().mono);
  }
  return signs.get();
}

void RankSampler::LookForSigns(const RankRef& ref, const Rank& rank) {
  RankSigns* const signs = SignsOf(ref);
  if (signs == nullptr) return;
  const Sampled& sampled = ranks_[ref];
  const MonoTime now = loop_->Now().mono;
  signs->Look(now);
  signs->TakeActivity(
      {sampled.usage.cpu_seconds, sampled.read_bytes + sampled.write_bytes,
       sampled.gpu_utilization},
      now);
  signs->ReadLog(now);
  // All ranks write to it; one looks.
  if (ref.rank == 0 && !rank.output_directory.empty()) {
    outputs_.Look(ref, rank.output_directory);
  }
}

void RankSampler::ReadPage(const RankRef& ref, bool last) {
  const std::optional<ProgressSigns> before = ranks_[ref].progress.signs;
  ReadProgress(ref, last);
  RankProgress& progress = ranks_[ref].progress;
  progress.signs = before;
  if (last) return;
  RankSigns* const signs = SignsOf(ref);
  if (signs == nullptr) return;
  const MonoTime now = loop_->Now().mono;
  signs->TakePage(progress, now);
  progress.signs = signs->Signs(now);
}

void RankSampler::ReadProgress(const RankRef& ref, bool last) {
  Sampled& rank = ranks_[ref];
  std::string error;
  if (rank.page == nullptr) {
    rank.page = task::PageReader::Open(table_->Get(ref).paths.page, &error);
    if (rank.page == nullptr) return;  // Nobody has joined.
  }
  task::RankPage page;
  const auto result = last ? rank.page->ReadLast(&page, &error)
                           : rank.page->Read(&page, &error);
  if (result == task::PageReader::Result::kOk) {
    // A page that has no writer any more stands still, and that is no stall.
    if (!last && has_left_(ref)) {
      page.progress.phase = task::RankPhase::kFinished;
    }
    rank.progress = ToProgress(page, ref.gang.generation);
    if (page.has_counters && page.progress.generation == ref.gang.generation) {
      rank.counters = std::move(page.counters);
    }
  }
  // The writer may have replaced the file: open it again.
  if (result == task::PageReader::Result::kBad) rank.page.reset();
}

void RankSampler::Sample() {
  const std::vector<ProcessStat> all = ReadAllProcesses();
  for (const auto& [ref, rank] : table_->all()) {
    if (rank.ended) continue;
    SampleTree(ref, all);
    LookForSigns(ref, rank);
    ReadPage(ref, /*last=*/false);
  }
}

void RankSampler::SampleTree(const RankRef& ref,
                             const std::vector<ProcessStat>& all) {
  const auto shim = shim_of_(ref);
  if (!shim) return;
  const Rank& known = table_->Get(ref);
  Sampled& rank = ranks_[ref];
  NoteProcesses(files_, known.paths.processes, DescendantsOf(*shim, all),
                &rank.processes);
  const auto tree = ReadTreeMetrics(*shim, all);
  if (!tree.ok()) return;
  rank.living = std::max(0, tree->processes - 1);  // Without the shim.
  Usage& usage = rank.usage;
  usage.cpu_seconds =
      std::max(usage.cpu_seconds, tree->user_seconds + tree->system_seconds);
  rank.cpu_peak.Add(loop_->Now().mono, usage.cpu_seconds);
  usage.cpu_peak_cores = rank.cpu_peak.cores();
  usage.memory_bytes = static_cast<int64_t>(tree->resident_bytes);
  usage.memory_peak_bytes =
      std::max(usage.memory_peak_bytes, usage.memory_bytes);
  usage.seconds = std::max(0.0, ToSeconds(loop_->Now().wall - known.start));
  rank.read_bytes = std::max(rank.read_bytes, tree->read_bytes);
  rank.write_bytes = std::max(rank.write_bytes, tree->write_bytes);
  if (!rank.cgroup) rank.cgroup = OwnCgroup(*shim, getpid());
  if (*rank.cgroup) {
    // Gone with the rank: the last reading stays.
    const auto reading = ReadTaskCgroup(**rank.cgroup);
    if (reading) rank.cgroup_reading = reading;
  }
}

void RankSampler::SampleGpus(const std::vector<GpuUsage>& gpus) {
  for (const auto& [ref, known] : table_->all()) {
    if (known.ended) continue;
    Sampled& rank = ranks_[ref];
    const auto use = UseOfGpus(gpus, known.gpus);
    rank.gpu_utilization = use.utilization;
    if (use.utilization) {
      rank.gpu_sum += *use.utilization;
      ++rank.gpu_samples;
      rank.usage.gpu_utilization =
          rank.gpu_sum / static_cast<double>(rank.gpu_samples);
    }
    Raise(use.utilization, &rank.usage.gpu_utilization_peak);
    Raise(use.memory_bytes, &rank.usage.gpu_memory_peak_bytes);
  }
}

void RankSampler::TakeExit(const RankRef& ref, const task::ExitRecord& record) {
  ReadPage(ref, /*last=*/true);
  Usage& usage = ranks_[ref].usage;
  usage = ToUsage(record, usage);
}

void RankSampler::TakeCgroup(const RankRef& ref, const CgroupReading& reading) {
  Usage& usage = ranks_[ref].usage;
  usage.cpu_seconds = std::max(usage.cpu_seconds, reading.cpu_seconds);
  usage.memory_peak_bytes =
      std::max(usage.memory_peak_bytes, reading.memory_peak_bytes);
}

}  // namespace lockstep::worker::agent
