#include "worker/agent/readings/rank_sampler.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "worker/agent/host/orphans.h"
#include "worker/shim/log_reader.h"
#include "worker/shim/shim_client.h"

namespace lockstep::worker::agent {
namespace {

double CpuOf(const TreeMetrics& tree) {
  return tree.user_seconds + tree.system_seconds;
}

int64_t Counted(uint64_t bytes) {
  constexpr uint64_t kMost = uint64_t{1} << 60;
  return static_cast<int64_t>(std::min(bytes, kMost));
}

bool IsSameProgram(pid_t a, pid_t b) {
  struct stat first {};
  struct stat second {};
  return stat(fmt::format("/proc/{}/exe", a).c_str(), &first) == 0 &&
         stat(fmt::format("/proc/{}/exe", b).c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// The processes below a shim, of its rank alone.
struct RankTree {
  TreeMetrics metrics;
  // CPU time of users' sessions, which is in none of `metrics`.
  double session_cpu_seconds = 0;
  std::vector<pid_t> pids;
};

StatusOr<RankTree> ReadRankTree(pid_t shim, const std::vector<ProcessStat>& all,
                                SessionCpu* sessions) {
  RankTree rank;
  LOCKSTEP_ASSIGN_OR_RETURN(rank.metrics, ReadTreeMetrics(shim, all));
  const auto own = std::find_if(
      all.begin(), all.end(),
      [&](const ProcessStat& process) { return process.pid == shim; });
  std::set<pid_t> others = {shim};
  std::map<pid_t, double> living;
  for (const pid_t keeper : KeepersOf(
           *own, all, [&](pid_t pid) { return IsSameProgram(pid, shim); })) {
    const auto session = ReadTreeMetrics(keeper, all);
    if (!session.ok()) continue;
    living[keeper] = CpuOf(*session);
    for (const pid_t pid : TreeOf(keeper, all)) others.insert(pid);
    TreeMetrics& left = rank.metrics;
    left.processes -= session->processes;
    left.resident_bytes -=
        std::min(left.resident_bytes, session->resident_bytes);
    left.read_bytes -= std::min(left.read_bytes, session->read_bytes);
    left.write_bytes -= std::min(left.write_bytes, session->write_bytes);
  }
  rank.session_cpu_seconds = sessions->Take(
      living, own->children_user_seconds + own->children_system_seconds);
  for (const ProcessId& process : DescendantsOf(shim, all)) {
    if (!others.contains(process.pid)) rank.pids.push_back(process.pid);
  }
  return rank;
}

}  // namespace

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
  reading->network_sent_bytes = rank.usage.network_sent_bytes;
  reading->network_received_bytes = rank.usage.network_received_bytes;
  reading->cgroup = rank.cgroup_reading;
  reading->counters = rank.counters;
}

void RankSampler::Adopt(const RankRef& ref, const RankProgress& progress,
                        const Usage& usage) {
  ranks_[ref].progress = progress;
  ranks_[ref].usage = usage;
  network_.Adopt(ref, usage);
}

void RankSampler::Restart(const RankRef& ref) {
  Sampled& rank = ranks_[ref];
  network_.Erase(ref);
  rank.usage = Usage();
  rank.cpu_peak = CpuPeak();
  rank.sessions = SessionCpu();
  rank.session_cpu_seconds = 0;
  rank.gpu_sum = 0;
  rank.gpu_samples = 0;
  rank.page.reset();
  rank.progress = RankProgress();
  rank.changed_nanos = 0;
  rank.beat = 0;
  rank.beats = BeatWatch();
  rank.counters.reset();
  rank.cgroup.reset();
  rank.elsewhere.reset();
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
  signs->TakePage(progress,
                  MonoTime(std::chrono::nanoseconds(ranks_[ref].changed_nanos)),
                  now);
  progress.signs = signs->Signs(now);
}

void RankSampler::ReadProgress(const RankRef& ref, bool last) {
  ReadPageFile(ref, last);
  Sampled& rank = ranks_[ref];
  if (last || has_left_(ref)) {
    rank.progress.collective_wait.reset();
    return;
  }
  // Also where the page could not be read: a process that was stopped while it
  // wrote leaves it so.
  const bool responsive = rank.beats.Take(rank.beat, loop_->Now().mono);
  if (rank.progress.collective_wait) {
    rank.progress.collective_wait->responsive = responsive;
  }
}

void RankSampler::ReadPageFile(const RankRef& ref, bool last) {
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
    rank.beat = page.wait.beat;
    TakeChange(page.progress, &rank);
    if (page.has_counters && page.progress.generation == ref.gang.generation) {
      rank.counters = std::move(page.counters);
    }
  }
  // The writer may have replaced the file: open it again.
  if (result == task::PageReader::Result::kBad) rank.page.reset();
}

// The node's clock may be set meanwhile: one change has one time.
void RankSampler::TakeChange(const task::RankProgress& page, Sampled* rank) {
  const Time now = loop_->Now();
  if (rank->progress.phase.empty()) return;
  // The loop's time may be a little older than the page.
  const Duration age =
      std::max(Duration{},
               now.mono - MonoTime(std::chrono::nanoseconds(page.mono_nanos)));
  if (page.mono_nanos != rank->changed_nanos) {
    rank->changed_nanos = page.mono_nanos;
    rank->changed = now.wall - age;
  }
  rank->progress.change_time = rank->changed;
}

void RankSampler::Sample() {
  const std::vector<ProcessStat> all = ReadAllProcesses();
  network_.Begin();
  for (const auto& [ref, rank] : table_->all()) {
    if (rank.ended) continue;
    SampleTree(ref, all);
    LookForSigns(ref, rank);
    ReadPage(ref, /*last=*/false);
  }
  network_.End();
}

void RankSampler::SampleTree(const RankRef& ref,
                             const std::vector<ProcessStat>& all) {
  const auto shim = shim_of_(ref);
  if (!shim) return;
  const Rank& known = table_->Get(ref);
  Sampled& rank = ranks_[ref];
  NoteProcesses(files_, known.paths.processes, DescendantsOf(*shim, all),
                &rank.processes);
  const auto own = ReadRankTree(*shim, all, &rank.sessions);
  if (!own.ok()) return;
  const TreeMetrics* const tree = &own->metrics;
  rank.living = std::max(0, tree->processes - 1);  // Without the shim.
  rank.session_cpu_seconds = own->session_cpu_seconds;
  Usage& usage = rank.usage;
  usage.cpu_seconds =
      std::max(usage.cpu_seconds, CpuOf(*tree) - rank.session_cpu_seconds);
  if (!rank.elsewhere) {
    const auto record = shim::ReadTaskRecord(known.paths.task_record);
    // Docker's containers are no children of the shim.
    if (record.ok()) {
      rank.elsewhere = record->engine.find("docker") != std::string::npos;
    }
  }
  if (rank.elsewhere == false) network_.Take(ref, own->pids, &usage);
  rank.cpu_peak.Add(loop_->Now().mono, usage.cpu_seconds);
  usage.cpu_peak_cores = rank.cpu_peak.cores();
  usage.memory_bytes = static_cast<int64_t>(tree->resident_bytes);
  usage.memory_peak_bytes =
      std::max(usage.memory_peak_bytes, usage.memory_bytes);
  usage.seconds = std::max(0.0, ToSeconds(loop_->Now().wall - known.start));
  rank.read_bytes = std::max(rank.read_bytes, tree->read_bytes);
  rank.write_bytes = std::max(rank.write_bytes, tree->write_bytes);
  usage.disk_bytes =
      std::max(usage.disk_bytes.value_or(0),
               Counted(tree->read_bytes) + Counted(tree->write_bytes));
  usage.log_bytes = Counted(shim::LogEnd(known.paths.log));
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
  const Sampled& rank = ranks_[ref];
  Usage& usage = ranks_[ref].usage;
  usage.cpu_seconds = std::max(usage.cpu_seconds,
                               reading.cpu_seconds - rank.session_cpu_seconds);
  usage.memory_peak_bytes =
      std::max(usage.memory_peak_bytes, reading.memory_peak_bytes);
}

}  // namespace lockstep::worker::agent
