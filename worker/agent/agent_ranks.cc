// Ranks: starting, finding again, reading.
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/fault_point.h"
#include "common/base/logging.h"
#include "common/base/random.h"
#include "common/base/sha256.h"
#include "worker/agent/agent.h"
#include "worker/agent/host/data_interface.h"
#include "worker/agent/host/orphans.h"
#include "worker/agent/host/stray_processes.h"
#include "worker/agent/prepare/python_command.h"
#include "worker/agent/readings/rank_readings.h"
#include "worker/shim/shim_client.h"

namespace lockstep {
namespace {

// How long a finished task's last readings stay on /metrics.
constexpr Duration kKeepFinished = std::chrono::minutes(15);
constexpr size_t kMostFinished = 64;
constexpr uint32_t kNonceFd = 3;

bool IsNative(const Assignment& assignment) {
  return assignment.spec && assignment.spec->kind == JobKind::kNative;
}

v1::RankWelcome MakeWelcome(const Assignment& assignment, const LocalTask& task,
                            int32_t rank, const std::string& address,
                            const std::string& page) {
  v1::RankWelcome welcome;
  welcome.set_rank(rank);
  welcome.set_world_size(assignment.cluster->world_size);
  for (const RankSpec& r : task.ranks) {
    if (r.rank == rank) welcome.set_local_rank(r.local_rank);
  }
  welcome.set_local_size(static_cast<int32_t>(task.ranks.size()));
  welcome.set_generation(assignment.generation);
  welcome.set_job(assignment.job);
  welcome.set_job_key(assignment.job_key);
  welcome.set_spec_hash(Sha256(CanonicalText(*assignment.cluster)));
  welcome.set_bind_address(address);
  welcome.set_output_directory(assignment.spec->output_directory);
  welcome.set_checkpoint_interval_steps(
      assignment.spec->checkpoint.interval_steps);
  welcome.set_checkpoint_keep(assignment.spec->checkpoint.keep);
  // The newest ones: a packet holds 64 KiB.
  const auto& lineage = assignment.spec->lineage;
  for (size_t i = lineage.size() > 1000 ? lineage.size() - 1000 : 0;
       i < lineage.size(); ++i) {
    v1::RankLineage* entry = welcome.add_lineage();
    entry->set_generation(lineage[i].generation);
    entry->set_start_step(lineage[i].start_step);
  }
  if (const auto& known = assignment.spec->known_checkpoint) {
    welcome.set_known_checkpoint_generation(known->generation);
    welcome.set_known_checkpoint_step(known->step);
  }
  if (const auto& restore = assignment.spec->restore) {
    welcome.set_restore_step(restore->step.value_or(0));
    welcome.set_restore_from_start(restore->from_start());
  }
  welcome.set_page_path(page);
  for (const int32_t gpu : GpusOfRank(assignment, rank)) {
    welcome.add_gpus(gpu);
  }
  welcome.set_cpus(CpusPerRank(task));
  welcome.set_attempt(assignment.spec->attempt);
  welcome.set_reduction_plan(assignment.spec->reduction_plan);
  welcome.set_reduction_plan_pinned(assignment.spec->reduction_plan_pinned);
  std::set<NodeName> hosts;
  for (const TaskSpec& t : assignment.cluster->tasks) hosts.insert(t.node);
  welcome.set_hosts(static_cast<int32_t>(hosts.size()));
  return welcome;
}

}  // namespace

Agent::RankInfo& Agent::InfoOf(const RankRef& ref) {
  const auto it = ranks_.find(ref);
  if (it != ranks_.end()) return it->second;
  RankInfo& info = ranks_[ref];
  info.paths = store_.PathsOf(ref.gang, ref.rank);
  info.start = loop_->Now().wall;
  const LocalGang* gang = core_.Find(ref.gang);
  if (gang != nullptr) info.job_uid = gang->assignment.job_uid;
  if (gang != nullptr && gang->assignment.spec) {
    if (const LocalTask* task = TaskOf(*gang->assignment.spec, ref.rank)) {
      info.type = task->type;
      info.index = task->index;
    }
    info.restarts = std::max(0, gang->assignment.spec->attempt - 1);
    info.gpus = GpusOfRank(gang->assignment, ref.rank);
  }
  return info;
}

void Agent::BeforeLaunch(const GangKey& key) {
  const LocalGang* gang = core_.Find(key);
  if (gang == nullptr) return;
  GangInfo& info = gangs_[key];
  for (const RankStatus& rank : gang->status.ranks) {
    info.link_nonces[rank.rank] = RandomBytes(32);
  }
  // Before any process exists, so that the next daemon knows of all.
  if (const Status saved = Save(key); !saved.ok()) {
    LOG_ERROR("{}: {}", Describe(key), Message(saved));
  }
  if (!info.launched) info.launched = loop_->Now().mono;
  (void)FaultPoint("worker.before_start");
}

void Agent::ExpectRank(const GangKey& key, int32_t rank) {
  const LocalGang* gang = core_.Find(key);
  if (gang == nullptr || !IsNative(gang->assignment) ||
      !gang->assignment.cluster) {
    return;
  }
  const LocalTask* task = TaskOf(*gang->assignment.spec, rank);
  const auto nonce = gangs_[key].link_nonces.find(rank);
  if (task == nullptr || nonce == gangs_[key].link_nonces.end()) return;
  link_->Expect({key.job, key.generation, rank}, nonce->second,
                config_.user ? config_.user->uid : geteuid(),
                MakeWelcome(gang->assignment, *task, rank, config_.node.address,
                            store_.PathsOf(key, rank).page));
}

RankEnvironmentInput Agent::EnvironmentInput(const RankRef& ref,
                                             const Assignment& assignment,
                                             const LocalTask& task) {
  const RankPaths paths = store_.PathsOf(ref.gang, ref.rank);
  RankEnvironmentInput input;
  input.daemon = config_.environment;
  input.inherit = config_.inherit;
  input.assignment = &assignment;
  input.task = &task;
  input.rank = ref.rank;
  if (config_.user) input.home = config_.user->home;
  input.data_interface = InterfaceOf(config_.node.address);
  input.error_file = paths.error_file;
  if (IsNative(assignment)) input.link = link_->path();
  input.nonce_fd = kNonceFd;
  return input;
}

task::ShimSpec Agent::MakeShimSpec(const RankRef& ref,
                                   const Assignment& assignment,
                                   const LocalTask& task) {
  const RankPaths paths = store_.PathsOf(ref.gang, ref.rank);
  task::ShimSpec spec;
  spec.log_append = IsRestart(ref);
  spec.job = ref.gang.job;
  spec.generation = ref.gang.generation;
  spec.rank = static_cast<uint32_t>(ref.rank);
  spec.argv = CommandOf(*assignment.spec, task);
  Environment env =
      MakeRankEnvironment(EnvironmentInput(ref, assignment, task));
  PutPythonPath(CodePathOf(CodeDirectory(ref.gang), assignment.spec->packages),
                &env);
  spec.env = ToStrings(env);
  spec.cwd = assignment.spec->working_directory.empty()
                 ? WorkOf(ref, assignment, task)
                 : assignment.spec->working_directory;
  if (config_.user) {
    spec.set_ids = true;
    spec.uid = config_.user->uid;
    spec.gid = config_.user->gid;
    spec.groups = {config_.user->groups.begin(), config_.user->groups.end()};
  }
  spec.log_path = paths.log;
  spec.task_record_path = paths.task_record;
  spec.exit_record_path = paths.exit_record;
  spec.page_path = paths.page;
  spec.socket_path = JoinPath(config_.runtime_dir, RandomHex(8) + ".sock");
  spec.nonce = RandomHex(16);
  if (IsNative(assignment)) {
    spec.secret = gangs_[ref.gang].link_nonces[ref.rank];
    spec.secret_fd = kNonceFd;
  }
  // By it what the rank starts is known as ours, wherever it goes.
  spec.env.push_back(fmt::format("{}={}", kTaskVariable,
                                 TaskMark(mark_, TaskIdOf(spec.socket_path))));
  const LogShare share = ShareOfLogs(config_.log_bytes, ranks_.size());
  spec.log_head_bytes = share.head;
  spec.log_tail_bytes = share.tail;
  return spec;
}

void Agent::NotStarted(const RankRef& ref, int error,
                       const std::string& message) {
  task::ExitRecord record;
  record.kind = task::ExitKind::kNotStarted;
  record.start_errno = error;
  record.message = message;
  record.end_unix_nanos = ToUnixNanos(loop_->Now().wall);
  OnRankExited(ref, record);
}

void Agent::StartRank(const GangKey& key, int32_t rank) {
  const LocalGang* gang = core_.Find(key);
  if (gang == nullptr || !gang->assignment.spec) return;
  const LocalTask* task = TaskOf(*gang->assignment.spec, rank);
  if (task == nullptr) return;
  const RankRef ref{key, rank};
  RankInfo& info = InfoOf(ref);
  shipper_.Add(ref, gang->assignment.job_uid, info.paths.log);
  const Status made = store_.MakeRankDirectories(
      key, rank, config_.user ? config_.user->uid : geteuid(),
      config_.user ? config_.user->gid : getegid());
  if (!made.ok()) return NotStarted(ref, EIO, Message(made));
  if (const Status work = MakeWork(gang->assignment, *task); !work.ok()) {
    return NotStarted(ref, EIO, Message(work));
  }
  ExpectRank(key, rank);
  task::ShimSpec spec = MakeShimSpec(ref, gang->assignment, *task);
  info.task_id = TaskIdOf(spec.socket_path);
  info.taken.clear();  // Of a start before this one.
  std::vector<int> held = HoldPorts(ref, &info);
  spec.ports = {info.ports.begin(), info.ports.end()};
  // It would fail, later and with other words; ExplainExit says whose it is.
  if (!PortsTaken(info.ports).empty()) return NotStarted(ref, EADDRINUSE, "");
  if (task->container) {
    if (const Status put = PutInContainer(ref, gang->assignment, *task, &spec);
        !put.ok()) {
      const bool denied = put.code() == StatusCode::kPermissionDenied;
      return NotStarted(ref, denied ? EACCES : EIO, Message(put));
    }
    // Who listens there cannot be told from others.
    if (!engine_->in_tree()) info.ports.clear();
  } else {
    EnterCgroup(ref, *task, &spec);
  }
  supervisor_->Start(ref, spec, info.paths, std::move(held));
}

std::vector<int> Agent::HoldPorts(const RankRef& ref, RankInfo* info) {
  const LocalGang* gang = core_.Find(ref.gang);
  const GangStatus& status = gang->status;
  // One of each task in the spec's order; all others are for rank 0.
  const auto& tasks = gang->assignment.spec->tasks;
  std::set<int32_t> others;
  for (size_t i = 0; i < std::min(tasks.size(), status.ports.size()); ++i) {
    const bool own = std::any_of(
        tasks[i].ranks.begin(), tasks[i].ranks.end(),
        [&](const RankSpec& rank) { return rank.rank == ref.rank; });
    (own ? info->ports : others).insert(status.ports[i]);
  }
  std::vector<int> held;
  for (const PortLease& lease : gangs_[ref.gang].leases) {
    if (ref.rank == 0 && !others.contains(lease.port())) {
      info->ports.insert(lease.port());
    }
    if (!info->ports.contains(lease.port())) continue;
    for (const int fd : lease.fds()) held.push_back(fd);
  }
  return held;
}

void Agent::OnRankExited(const RankRef& ref, const task::ExitRecord& record) {
  RankInfo& info = InfoOf(ref);
  ReadPage(ref, &info, /*last=*/true);
  info.usage = ToUsage(record, info.usage);
  info.ended = true;
  shipper_.SetEnded(ref);
  ExitStatus exit = ToExitStatus(record);
  ExplainExit(ref, record, &exit);
  AddLastWords(ref, &exit);
  NotePlainBind(ref, &exit);
  (void)FaultPoint("worker.before_exit");
  LOG_INFO("{}: {}", Describe(ref), task::DescribeExit(record));
  if (record.tree_left > 0) {
    LOG_WARN("{}: {} of its processes could not be killed", Describe(ref),
             record.tree_left);
    SweepContainersLater();  // Of it may be its container.
  }
  Actions actions;
  core_.OnRankExited(ref.gang, ref.rank, exit, info.progress, info.usage,
                     &actions);
  Execute(std::move(actions));
}

void Agent::ReadPage(const RankRef& ref, RankInfo* info, bool last) {
  std::string error;
  if (info->page == nullptr) {
    info->page = task::PageReader::Open(info->paths.page, &error);
    if (info->page == nullptr) return;  // Not made yet, or no native rank.
  }
  task::RankPage page;
  const auto result = last ? info->page->ReadLast(&page, &error)
                           : info->page->Read(&page, &error);
  if (result == task::PageReader::Result::kOk) {
    info->progress = ToProgress(page, ref.gang.generation);
    if (page.has_counters && page.progress.generation == ref.gang.generation) {
      info->counters = std::move(page.counters);
    }
  }
  // Its writer may have made the file anew: look again.
  if (result == task::PageReader::Result::kBad) info->page.reset();
}

void Agent::SampleRank(const RankRef& ref, RankInfo* info,
                       const std::vector<ProcessStat>& all) {
  ReadPage(ref, info, /*last=*/false);
  const auto shim = supervisor_->ShimPid(ref);
  if (!shim) return;
  NoteProcesses(files_, info->paths.processes, DescendantsOf(*shim, all),
                &info->processes);
  const auto tree = ReadTreeMetrics(*shim, all);
  if (!tree.ok()) return;
  Usage& usage = info->usage;
  usage.cpu_seconds =
      std::max(usage.cpu_seconds, tree->user_seconds + tree->system_seconds);
  info->cpu_peak.Add(loop_->Now().mono, usage.cpu_seconds);
  usage.cpu_peak_cores = info->cpu_peak.cores();
  usage.memory_bytes = static_cast<int64_t>(tree->resident_bytes);
  usage.memory_peak_bytes =
      std::max(usage.memory_peak_bytes, usage.memory_bytes);
  usage.seconds = std::max(0.0, ToSeconds(loop_->Now().wall - info->start));
  info->read_bytes = std::max(info->read_bytes, tree->read_bytes);
  info->write_bytes = std::max(info->write_bytes, tree->write_bytes);
  if (!info->cgroup) info->cgroup = OwnCgroup(*shim, getpid());
  if (*info->cgroup) {
    // Gone with the rank: the last reading stays.
    const auto reading = ReadTaskCgroup(**info->cgroup);
    if (reading) info->cgroup_reading = reading;
  }
}

void Agent::Sample() {
  const auto host = ReadHostMetrics();
  if (host.ok()) {
    const double total = host->cpu.Total() - last_cpu_.Total();
    const double busy = host->cpu.Busy() - last_cpu_.Busy();
    if (total > 0)
      readings_.cpu_utilization = std::clamp(busy / total, 0.0, 1.0);
    last_cpu_ = host->cpu;
    readings_.memory_available_bytes =
        static_cast<int64_t>(host->memory.available);
    if (host->memory.total > 0) {
      oom_.AddAvailable(loop_->Now().mono,
                        static_cast<double>(host->memory.available) /
                            static_cast<double>(host->memory.total));
    }
  }
  const bool any_live =
      std::any_of(ranks_.begin(), ranks_.end(),
                  [](const auto& entry) { return !entry.second.ended; });
  if (any_live) {
    const std::vector<ProcessStat> all = ReadAllProcesses();
    for (auto& [ref, info] : ranks_) {
      if (!info.ended) SampleRank(ref, &info, all);
    }
    WatchPorts();
    ReadHostOomKills();
  }
  orphans_.Look(loop_->Now().mono);
  WatchDisk();
  DropOldestWork();
  SampleGpus();
  PublishMetrics();
}

void Agent::SampleGpus() {
  readings_.gpus.clear();
  if (gpus_ == nullptr) return;
  const GpuStatus status = gpus_->Latest(loop_->Now().mono);
  // Before the first reading, nothing is said; after it, a GPU of which
  // nothing is known gets no new work.
  TakeXids(status.xids);
  if (status.samples == 0) return;
  readings_.gpus = ToGpuUsage(config_.node.gpus, status.readings);
  for (auto& [ref, info] : ranks_) {
    if (info.ended) continue;
    const auto use = UseOfGpus(readings_.gpus, info.gpus);
    if (use.utilization) {
      info.gpu_sum += *use.utilization;
      ++info.gpu_samples;
      info.usage.gpu_utilization =
          info.gpu_sum / static_cast<double>(info.gpu_samples);
    }
    Raise(use.utilization, &info.usage.gpu_utilization_peak);
    Raise(use.memory_bytes, &info.usage.gpu_memory_peak_bytes);
  }
}

void Agent::TakeXids(const std::vector<GpuXids>& xids) {
  known_xids_.resize(xids.size());
  for (size_t i = 0; i < xids.size(); ++i) {
    const GpuXids before = std::exchange(known_xids_[i], xids[i]);
    const int32_t index = gpus_->gpus()[i].index;
    const bool offered =
        std::any_of(config_.node.gpus.begin(), config_.node.gpus.end(),
                    [&](const Gpu& gpu) { return gpu.index == index; });
    for (size_t x = 0; offered && x < kXidClasses; ++x) {
      // Of others only the newest has its number.
      const uint64_t number =
          x < std::size(kCountedXids) ? kCountedXids[x] : xids[i].last;
      if (xids[i].counts[x] == before.counts[x] || XidClass(number) != x ||
          readings_.gpu_errors.size() >= kMaxGpuErrors) {
        continue;
      }
      readings_.gpu_errors.push_back({index, static_cast<int32_t>(number)});
    }
  }
}

TaskReading Agent::ReadingOf(const RankRef& ref, const RankInfo& info) const {
  TaskReading reading;
  reading.job = ref.gang.job;
  reading.role = Name(info.type);
  reading.index = info.index;
  reading.rank = ref.rank;
  reading.restarts = info.restarts;
  reading.ended = info.ended;
  reading.cpu_seconds = info.usage.cpu_seconds;
  reading.memory_bytes = info.usage.memory_bytes;
  reading.memory_peak_bytes = info.usage.memory_peak_bytes;
  reading.read_bytes = info.read_bytes;
  reading.write_bytes = info.write_bytes;
  reading.log_bytes = shipper_.BytesSent(ref);
  reading.log_dropped_bytes = shipper_.BytesDropped(ref);
  reading.log_gaps = shipper_.Gaps(ref);
  reading.cgroup = info.cgroup_reading;
  reading.counters = info.counters;
  reading.gpus = info.gpus;
  return reading;
}

void Agent::PublishMetrics() {
  AgentReadings readings;
  readings.cpus_offered = config_.node.capacity.cpus;
  readings.memory_offered_bytes = config_.node.capacity.memory_bytes;
  if (const auto& end = config_.node.certificate_end_time) {
    readings.certificate_end = ToSeconds(end->time_since_epoch());
  }
  readings.connected = welcomed_;
  readings.reconnects = reconnects_;
  readings.dropped_work = dropped_work_;
  for (const auto& [ref, info] : ranks_) {
    readings.tasks.push_back(ReadingOf(ref, info));
  }
  // Ranks that were forgotten meanwhile stay for a scrape or two; a rank of a
  // later generation of the job takes the place of an earlier one.
  const MonoTime now = loop_->Now().mono;
  std::erase_if(finished_, [&](const auto& entry) {
    return now - entry.first > kKeepFinished;
  });
  if (finished_.size() > kMostFinished) {
    finished_.erase(finished_.begin(), finished_.end() - kMostFinished);
  }
  std::map<std::tuple<std::string, std::string, int32_t, int32_t>, TaskReading>
      newest;
  const auto put = [&](const TaskReading& task) {
    newest[{task.job, task.role, task.index, task.rank}] = task;
  };
  for (const auto& [when, task] : finished_) put(task);
  for (const TaskReading& task : readings.tasks) put(task);
  readings.tasks.clear();
  for (auto& [key, task] : newest) readings.tasks.push_back(std::move(task));
  metrics_->Set(std::move(readings));
}

}  // namespace lockstep
