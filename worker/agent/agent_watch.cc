// What the host does to ranks: memory, ports, disk, limits.
#include <errno.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "worker/agent/agent.h"
#include "worker/agent/exits/exit_words.h"
#include "worker/agent/host/stray_processes.h"
#include "worker/agent/ranks/rank_environment.h"

namespace lockstep {
namespace {

constexpr size_t kMostPlainBinders = 1000;

}  // namespace

LogShare ShareOfLogs(uint64_t total, size_t ranks) {
  constexpr uint64_t kMiB = 1 << 20;
  const uint64_t each = total / std::max<size_t>(1, ranks);
  const uint64_t head = std::clamp(each / 5, kMiB, 16 * kMiB);
  return {head, std::clamp(each - std::min(each, head), 4 * kMiB, 64 * kMiB)};
}

void Agent::WatchDisk() {
  const auto space = config_.disk_space(config_.dir);
  if (!space.ok()) return;
  const Status enough = CheckDiskSpace(config_.dir, *space, config_.disk_floor);
  if (!enough.ok() && !disk_is_full_) LOG_ERROR("{}", Message(enough));
  if (enough.ok() && disk_is_full_) {
    LOG_INFO("the disk of {} has space again", config_.dir);
  }
  disk_is_full_ = !enough.ok();
}

std::map<int32_t, std::string> Agent::PortsTaken(
    const std::set<int32_t>& ports) {
  std::vector<Listener> listeners = ReadListeners(ports);
  std::erase_if(listeners, [this](const Listener& listener) {
    return own_listeners_.contains(listener.inode);
  });
  if (listeners.empty()) return {};
  const std::vector<ProcessStat> all = ReadAllProcesses();
  std::set<uint64_t> own;
  for (const auto& [ref, info] : ranks_) {
    const auto shim = supervisor_->ShimPid(ref);
    if (!shim) continue;
    for (const pid_t pid : TreeOf(*shim, all)) own.merge(SocketsOf(pid));
  }
  std::vector<Listener> others;
  std::set<uint64_t> inodes;
  // One of ours may have ended between the looks.
  const std::vector<Listener> again = ReadListeners(ports);
  for (const Listener& listener : listeners) {
    if (std::count(again.begin(), again.end(), listener) == 0) continue;
    if (own.contains(listener.inode)) {
      // An inode comes again only when its socket is closed.
      own_listeners_.insert(listener.inode);
    } else {
      others.push_back(listener);
      inodes.insert(listener.inode);
    }
  }
  if (others.empty()) return {};
  const std::map<uint64_t, std::string> holders = HoldersOf(inodes, all);
  std::map<int32_t, std::string> taken;
  for (const Listener& listener : others) {
    taken.emplace(listener.port, holders.at(listener.inode));
  }
  return taken;
}

void Agent::WatchPorts() {
  std::set<int32_t> ports;
  for (const auto& [ref, info] : ranks_) {
    if (info.ended) continue;
    for (const int32_t port : info.ports) {
      if (!info.taken.contains(port)) ports.insert(port);
    }
  }
  if (ports.empty()) own_listeners_.clear();
  const std::map<int32_t, std::string> taken = PortsTaken(ports);
  if (taken.empty()) return;
  Actions actions;
  for (auto& [ref, info] : ranks_) {
    for (const auto& [port, who] : taken) {
      if (info.ended || !info.ports.contains(port) ||
          !info.taken.emplace(port, who).second) {
        continue;
      }
      RankNews news;
      news.event_reason = Reason::kPortTaken;
      news.event = fmt::format(
          "port {}, which is leased for this task, is taken: {}, which is none "
          "of the task, listens on it",
          port, who);
      LOG_WARN("{}: {}", Describe(ref), news.event);
      core_.OnRankNews(ref.gang, ref.rank, news, loop_->Now(), &actions);
    }
  }
  Execute(std::move(actions));
}

void Agent::ReadHostOomKills() {
  const auto text = ReadProcFile("/proc/vmstat");
  if (!text.ok()) return;
  if (const auto kills = ParseOomKills(*text)) {
    oom_.Add(loop_->Now().mono, *kills);
  }
}

void Agent::ExplainExit(const RankRef& ref, const task::ExitRecord& record,
                        ExitStatus* exit) {
  RankInfo& info = InfoOf(ref);
  const LocalGang* gang = core_.Find(ref.gang);
  OomEvidence evidence;
  evidence.told_to_end =
      gang == nullptr || gang->assignment.goal >= Goal::kStop;
  if (config_.cgroups != nullptr && !info.task_id.empty()) {
    if (const auto reading = config_.cgroups->Read(info.task_id)) {
      evidence.cgroup_kills = reading->oom_kills;
      info.usage.cpu_seconds =
          std::max(info.usage.cpu_seconds, reading->cpu_seconds);
      info.usage.memory_peak_bytes =
          std::max(info.usage.memory_peak_bytes, reading->memory_peak_bytes);
    }
    DropCgroup(info.task_id);
  }
  if (record.oom_kills > 0) evidence.cgroup_kills = record.oom_kills;
  // Of a rank whose record its shim wrote: else nothing is known of its end.
  if (record.process.pid > 0) {
    const auto text = ReadProcFile("/proc/vmstat");
    const auto kills = text.ok() ? ParseOomKills(*text) : std::nullopt;
    const MonoTime end{Duration(record.end_mono_nanos)};
    if (kills) evidence.host_kills = oom_.RiseAround(end, *kills);
    evidence.least_available = oom_.LeastAvailable(end);
  }
  JudgeOutOfMemory(evidence, exit);
  if (exit->ok() || evidence.told_to_end || info.ports.empty() ||
      exit->out_of_memory) {
    return;
  }
  if (record.kind == task::ExitKind::kNotStarted &&
      record.start_errno != EADDRINUSE) {
    return;  // It says itself why.
  }
  std::map<int32_t, std::string> taken = PortsTaken(info.ports);
  taken.insert(info.taken.begin(), info.taken.end());
  if (taken.empty()) return;
  exit->reason = Reason::kPortTaken;
  exit->message = fmt::format(
      "port {}, which was leased for this task, was taken by {}, which is none "
      "of the task",
      taken.begin()->first, taken.begin()->second);
}

void Agent::NotePlainBind(const RankRef& ref, ExitStatus* exit) {
  const LocalGang* gang = core_.Find(ref.gang);
  if (exit->ok() || exit->reason != Reason::kNone || exit->victim ||
      gang == nullptr || gang->assignment.goal >= Goal::kStop ||
      InfoOf(ref).ports.empty() || !SaysAddressInUse(exit->message)) {
    return;
  }
  if (plain_binders_.size() >= kMostPlainBinders) plain_binders_.clear();
  // Its ports are not held any more: then it is another one that is taken.
  if (!plain_binders_.insert(gang->assignment.job_uid).second) return;
  exit->reason = Reason::kPortTaken;
  exit->message +=
      "; who binds a port that is leased for it must set SO_REUSEADDR, as "
      "servers do, because a socket holds the port until then; from now on its "
      "ports are not held";
}

void Agent::EnterCgroup(const RankRef& ref, const LocalTask& task,
                        task::ShimSpec* spec) {
  if (config_.cgroups == nullptr) return;
  RankInfo& info = InfoOf(ref);
  Resources share;
  const auto ranks =
      static_cast<int64_t>(std::max<size_t>(1, task.ranks.size()));
  share.cpus = CpusPerRank(task);
  share.memory_bytes = task.resources.memory_bytes / ranks;
  const auto path = config_.cgroups->Make(info.task_id, share);
  if (!path.ok()) {
    // A rank without limits is better than a job that cannot start.
    LOG_ERROR("{}: runs without limits: {}", Describe(ref),
              Message(path.status()));
    return;
  }
  spec->cgroup = *path;
  info.cgroup = *path;
}

void Agent::DropCgroup(const std::string& id) {
  if (config_.cgroups == nullptr || id.empty()) return;
  (void)config_.cgroups->Kill(id);
  // The dead leave it a moment later.
  if (!config_.cgroups->Remove(id).ok()) dropped_cgroups_.insert(id);
}

}  // namespace lockstep
