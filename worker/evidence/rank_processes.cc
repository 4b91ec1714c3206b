#include "worker/evidence/rank_processes.h"

#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "common/os/tcp_sockets.h"
#include "worker/evidence/proc_parts.h"
#include "worker/evidence/text.h"

namespace lockstep::worker::evidence {
namespace {

// Descriptors of one process that are looked at.
constexpr size_t kMaxDescriptors = 4096;

std::string Text(const std::string& path) {
  auto text = ReadProcFile(path);
  return text.ok() ? *std::move(text) : std::string();
}

std::string Trimmed(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// Calls `use` with the names in the folder, until it returns false.
void ForEachName(const std::string& path,
                 const std::function<bool(const char*)>& use) {
  DIR* const dir = opendir(path.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.' && !use(entry->d_name)) break;
  }
  closedir(dir);
}

std::string LinkTarget(const std::string& path) {
  char target[PATH_MAX];
  const ssize_t size = readlink(path.c_str(), target, sizeof(target));
  return size < 0 ? std::string()
                  : std::string(target, static_cast<size_t>(size));
}

ThreadEvidence ReadThread(const std::string& task, int64_t pid, int64_t id) {
  ThreadEvidence thread;
  thread.id = id;
  thread.main = id == pid;
  const auto stat =
      ParseProcessStat(Text(task + "/stat"), ClockTicksPerSecond(), PageSize());
  if (stat.ok()) {
    thread.name = ShortText(stat->command, kMaxEvidenceName);
    thread.state = std::string(1, stat->state);
  }
  const std::string channel = Trimmed(Text(task + "/wchan"));
  // "0": it does not sleep, or the kernel does not tell.
  if (channel != "0") {
    thread.wait_channel = ShortText(channel, kMaxEvidenceName);
  }
  thread.system_call = SystemCallOf(Text(task + "/syscall"));
  thread.kernel_stack = KernelStackOf(Text(task + "/stack"));
  return thread;
}

ProcessEvidence ReadProcess(const ProcessStat& stat) {
  ProcessEvidence process;
  process.pid = stat.pid;
  process.parent = stat.parent;
  process.command = ShortText(stat.command, kMaxEvidenceName);
  process.state = std::string(1, stat.state);
  process.cpu_seconds = stat.user_seconds + stat.system_seconds;
  process.thread_count = stat.threads;
  const std::string path = fmt::format("/proc/{}", stat.pid);
  const ProcessStatus status = ParseProcessStatus(Text(path + "/status"));
  process.resident_bytes = status.resident_bytes;
  process.swap_bytes = status.swap_bytes;
  ForEachName(path + "/task", [&](const char* name) {
    const int64_t id = atoll(name);
    process.threads.push_back(ReadThread(path + "/task/" + name, stat.pid, id));
    return process.threads.size() < kMaxEvidenceThreads;
  });
  return process;
}

// The processes of a rank share a network namespace, so one table has all.
void AddSockets(const std::vector<pid_t>& pids, ConnectionTables* connections,
                RankEvidence* evidence) {
  std::set<uint64_t> inodes;
  for (const pid_t pid : pids) inodes.merge(SocketsOf(pid, kMaxDescriptors));
  if (inodes.empty()) return;
  for (const char* protocol : {"tcp", "tcp6"}) {
    std::vector<SocketEvidence> sockets =
        ParseSockets(connections->Of(pids.front(), protocol), protocol, inodes);
    const size_t room = kMaxEvidenceSockets - evidence->sockets.size();
    if (sockets.size() > room) sockets.resize(room);
    evidence->sockets.insert(evidence->sockets.end(), sockets.begin(),
                             sockets.end());
  }
}

}  // namespace

const std::string& ConnectionTables::Of(pid_t pid,
                                        const std::string& protocol) {
  std::string space = LinkTarget(fmt::format("/proc/{}/ns/net", pid));
  // Not one that may be known to other ranks, too.
  if (space.empty()) space = fmt::format("of process {}", pid);
  std::string& table = tables_[std::pair(std::move(space), protocol)];
  if (table.empty()) {
    table = Text(fmt::format("/proc/{}/net/{}", pid, protocol));
  }
  return table;
}

void AddProcesses(pid_t shim, const std::vector<ProcessStat>& all,
                  ConnectionTables* connections, RankEvidence* evidence) {
  std::map<pid_t, const ProcessStat*> by_pid;
  for (const ProcessStat& process : all) by_pid[process.pid] = &process;
  std::vector<pid_t> pids = TreeOf(shim, all);
  std::erase(pids, shim);
  std::erase_if(pids, [&](pid_t pid) { return !by_pid.contains(pid); });
  if (pids.size() > kMaxEvidenceProcesses) {
    evidence->notes.push_back(
        fmt::format("it has {} processes: the first {} are here", pids.size(),
                    kMaxEvidenceProcesses));
    pids.resize(kMaxEvidenceProcesses);
  }
  for (const pid_t pid : pids) {
    evidence->processes.push_back(ReadProcess(*by_pid.at(pid)));
  }
  if (!pids.empty()) AddSockets(pids, connections, evidence);
}

void AddPressures(const std::string& directory, RankEvidence* evidence) {
  auto* const readings = &evidence->readings;
  for (const char* what : {"cpu", "memory", "io"}) {
    AddPressure(Text(directory.empty()
                         ? fmt::format("/proc/pressure/{}", what)
                         : fmt::format("{}/{}.pressure", directory, what)),
                what, readings);
  }
  if (directory.empty()) return;
  for (const char* file : {"memory.current", "memory.max",
                           "memory.swap.current", "pids.current"}) {
    AddNumber(Text(directory + "/" + file), file, readings);
  }
  AddNumbers(Text(directory + "/cpu.stat"), "cpu.stat",
             {"nr_throttled", "throttled_usec", "usage_usec"}, readings);
  AddNumbers(Text(directory + "/memory.events"), "memory.events",
             {"high", "max", "oom", "oom_kill"}, readings);
}

ProcessPlace PlaceOf(pid_t pid) {
  const std::string path = fmt::format("/proc/{}", pid);
  const ProcessStatus status = ParseProcessStatus(Text(path + "/status"));
  ProcessPlace place;
  place.uid = status.uid;
  place.gid = status.gid;
  place.program = LinkTarget(path + "/exe");
  const std::string line = Text(path + "/cmdline");
  place.called = line.substr(0, line.find('\0'));
  return place;
}

}  // namespace lockstep::worker::evidence
