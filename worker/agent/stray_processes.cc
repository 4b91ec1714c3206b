#include "worker/agent/stray_processes.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/random.h"
#include "common/os/process.h"

namespace lockstep {
namespace {

constexpr std::string_view kSocketSuffix = ".sock";
// What is forked while the others are killed: until a round finds none.
constexpr int kRounds = 5;

// SIGKILL to `process`, if `wanted` says so of its environment once its pid
// cannot change hands any more.
template <typename Wanted>
bool KillIf(const ProcessStat& process, const Wanted& wanted) {
  const auto held = OpenVerified({process.pid, process.start_time});
  if (!held.ok()) return false;
  const auto environ =
      ReadProcFile(fmt::format("/proc/{}/environ", process.pid));
  return wanted(environ.value_or(std::string())) &&
         SendSignal(*held, SIGKILL).ok();
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

std::string_view VariableIn(std::string_view environ, std::string_view name) {
  while (!environ.empty()) {
    const std::string_view entry = environ.substr(0, environ.find('\0'));
    environ.remove_prefix(std::min(entry.size() + 1, environ.size()));
    if (entry.size() > name.size() && entry[name.size()] == '=' &&
        entry.starts_with(name)) {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
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

int KillLeftovers(const task::TaskRecord& record) {
  int reached = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<ProcessStat> all = ReadAllProcesses();
    std::set<pid_t> tree;
    for (const ProcessStat& process : all) {
      if (record.process.pid > 0 && process.pid == record.process.pid &&
          process.start_time == record.process.start_time) {
        for (const pid_t pid : TreeOf(process.pid, all)) tree.insert(pid);
      }
    }
    int now = 0;
    for (const ProcessStat& process : all) {
      if (process.state == 'Z' || process.pid == getpid()) continue;
      // A session's number alone may come again.
      const bool in_session = record.process.pid > 0 &&
                              process.session == record.process.pid &&
                              process.start_time >= record.process.start_time;
      const bool in_tree = tree.contains(process.pid);
      now += KillIf(process, [&](const std::string& environ) {
        return in_tree || IsOfTask(environ, record, in_session);
      });
    }
    reached += now;
    if (now == 0) break;
  }
  return reached;
}

int KillStrays(const std::vector<ProcessStat>& all,
               const std::string& directory_mark,
               const std::set<std::string>& live) {
  int reached = 0;
  const std::string ours = directory_mark + ".";
  for (const ProcessStat& process : all) {
    if (process.state == 'Z' || process.pid == getpid()) continue;
    reached += KillIf(process, [&](const std::string& environ) {
      const std::string_view mark = VariableIn(environ, kTaskVariable);
      return mark.starts_with(ours) &&
             !live.contains(std::string(mark.substr(ours.size())));
    });
  }
  return reached;
}

}  // namespace lockstep
