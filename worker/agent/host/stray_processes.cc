#include "worker/agent/host/stray_processes.h"

#include <errno.h>
#include <sys/stat.h>

#include <algorithm>

#include "common/base/random.h"
#include "common/os/process.h"
#include "worker/agent/host/orphans.h"

namespace lockstep::worker::agent {
namespace {

constexpr std::string_view kSocketSuffix = ".sock";
// Of `all`: the processes of `roots`, where they still are the same, and what
// descends from them.
std::set<pid_t> TreesOf(const std::vector<ProcessId>& roots,
                        const std::vector<ProcessStat>& all) {
  std::set<pid_t> trees;
  for (const ProcessStat& process : all) {
    const ProcessId id{process.pid, process.start_time};
    if (process.pid <= 1 ||
        std::find(roots.begin(), roots.end(), id) == roots.end()) {
      continue;
    }
    for (const pid_t pid : TreeOf(process.pid, all)) trees.insert(pid);
  }
  return trees;
}

bool IsLive(const ProcessId& id) {
  const auto process = ReadProcessStat(id.pid);
  return process.ok() && process->start_time == id.start_time &&
         process->state != 'Z' && process->state != 'X';
}

}  // namespace

StatusOr<std::string> DirectoryMark(FileSystem* files, const std::string& dir) {
  const std::string path = JoinPath(dir, "mark");
  auto text = files->Read(path, 64);
  if (!text.ok()) {
    if (text.status().code() != StatusCode::kNotFound) return text.status();
    text = RandomHex(8) + "\n";
    LOCKSTEP_RETURN_IF_ERROR(files->WriteAtomic(path, *text, 0600));
  }
  while (!text->empty() && text->back() == '\n') text->pop_back();
  if (text->find_first_not_of("0123456789abcdef") != std::string::npos ||
      text->size() < 16) {
    return DataLoss("{} is damaged: remove it", path);
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  return fmt::format("{}-{:x}", *text, info.st_ino);
}

std::string TaskIdOf(const std::string& socket_path) {
  std::string name = socket_path.substr(socket_path.rfind('/') + 1);
  if (name.ends_with(kSocketSuffix)) {
    name.resize(name.size() - kSocketSuffix.size());
  }
  return name;
}

std::string TaskMark(const std::string& directory_mark, const std::string& id) {
  return directory_mark + "." + id;
}

bool IsOfTask(std::string_view environ, const task::TaskRecord& record,
              bool in_session) {
  if (VariableIn(environ, "LOCKSTEP_JOB") != record.job ||
      VariableIn(environ, "LOCKSTEP_GENERATION") !=
          std::to_string(record.generation) ||
      VariableIn(environ, "LOCKSTEP_RANK") != std::to_string(record.rank)) {
    return false;
  }
  // Another cluster's job may have the same name.
  const std::string_view mark = VariableIn(environ, kTaskVariable);
  if (mark.empty()) return in_session;
  return mark.ends_with("." + TaskIdOf(record.socket_path));
}

Leftovers KillLeftovers(const task::TaskRecord& record,
                        const std::vector<ProcessId>& seen) {
  // Containers are ended by their engine.
  const bool hides = record.container.empty();
  std::vector<ProcessId> roots;
  if (hides) roots = seen;
  roots.push_back({record.process.pid, record.process.start_time});
  // One that was killed is there until the kernel is through with it.
  std::set<std::pair<pid_t, uint64_t>> reached;
  const MonoTime deadline = MonotonicNow() + kEndTime;
  do {
    const std::vector<ProcessStat> all = ReadAllProcesses();
    const std::set<pid_t> trees = TreesOf(roots, all);
    const std::vector<Process> killed = KillWanted(
        all, [&](const ProcessStat& process, const std::string& environ) {
          // A session's number alone may come again.
          const bool in_session =
              record.process.pid > 0 && process.session == record.process.pid &&
              process.start_time >= record.process.start_time;
          return trees.contains(process.pid) ||
                 IsOfTask(environ, record, in_session) ||
                 (hides && record.shim.start_time > 0 &&
                  IsOrphan(process, environ, record.shim.start_time));
        });
    if (killed.empty()) break;
    for (const Process& process : killed) {
      reached.emplace(process.id.pid, process.id.start_time);
    }
    (void)WaitUntilGone(killed, deadline);
    // Those that are this process's children by now.
    for (const Process& process : killed) (void)WaitExit(process, MonoTime());
  } while (MonotonicNow() < deadline);
  Leftovers result;
  result.killed = static_cast<int>(reached.size());
  for (const auto& [pid, start_time] : reached) {
    const ProcessId id{pid, start_time};
    if (IsLive(id)) result.left.push_back(id);
  }
  return result;
}

Leftovers KillStrays(const std::vector<ProcessStat>& all,
                     const std::string& directory_mark,
                     const std::set<std::string>& live) {
  const std::string ours = directory_mark + ".";
  const std::vector<Process> killed =
      KillWanted(all, [&](const ProcessStat&, const std::string& environ) {
        const std::string_view mark = VariableIn(environ, kTaskVariable);
        return mark.starts_with(ours) &&
               !live.contains(std::string(mark.substr(ours.size())));
      });
  (void)WaitUntilGone(killed, MonotonicNow() + kEndTime);
  Leftovers result;
  result.killed = static_cast<int>(killed.size());
  for (const Process& process : killed) {
    if (IsLive(process.id)) result.left.push_back(process.id);
  }
  return result;
}

}  // namespace lockstep::worker::agent
