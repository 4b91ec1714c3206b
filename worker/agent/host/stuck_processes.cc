#include "worker/agent/host/stuck_processes.h"

#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "common/base/logging.h"

namespace lockstep::worker::agent {
namespace {

constexpr size_t kMaxWord = 64;
constexpr size_t kMaxChannel = 128;

// Programs choose their names.
std::string Word(std::string text, size_t limit) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) {
    text.pop_back();
  }
  if (text.size() > limit) text.resize(limit);
  for (char& c : text) {
    if (c <= 0x20 || c >= 0x7f) c = '?';
  }
  return text;
}

std::string UserOf(const std::string& directory) {
  struct stat info {};
  if (stat(directory.c_str(), &info) != 0) return "";
  char buffer[4096];
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(info.st_uid, &entry, buffer, sizeof(buffer), &found) == 0 &&
      found != nullptr) {
    return Word(found->pw_name, kMaxWord);
  }
  return fmt::format("uid {}", info.st_uid);
}

// Nullopt if it has ended. A zombie has: it holds nothing.
std::optional<ProcessStat> FindLive(const ProcessId& id) {
  const auto process = ReadProcessStat(id.pid);
  if (!process.ok() || process->start_time != id.start_time ||
      process->state == 'Z' || process->state == 'X') {
    return std::nullopt;
  }
  return *process;
}

}  // namespace

HeldProcess DescribeHeld(int64_t pid) {
  HeldProcess held;
  held.pid = pid;
  const auto process = ReadProcessStat(static_cast<pid_t>(pid));
  if (!process.ok()) return held;
  const std::string directory = fmt::format("/proc/{}", pid);
  held.user = UserOf(directory);
  held.command = Word(process->command, kMaxWord);
  held.state = Word(std::string(1, process->state), 1);
  const std::string channel =
      Word(ReadProcFile(directory + "/wchan").value_or(""), kMaxChannel);
  if (channel != "0") held.wait_channel = channel;
  return held;
}

StuckProcesses::StuckProcesses(Find find)
    : find_(find ? std::move(find) : FindLive) {}

void StuckProcesses::Add(const std::vector<ProcessId>& left, const JobName& job,
                         WallTime now) {
  for (const ProcessId& id : left) {
    if (!stuck_.emplace(std::pair(id.pid, id.start_time), Stuck{job, now})
             .second) {
      continue;
    }
    LOG_ERROR("SIGKILL did not end {}", Describe(DescribeHeld(id.pid)));
  }
  Look();
}

void StuckProcesses::Look() {
  shown_.clear();
  for (auto it = stuck_.begin(); it != stuck_.end();) {
    const ProcessId id{it->first.first, it->first.second};
    if (!find_(id)) {
      LOG_INFO("process {}, which SIGKILL had not ended, has ended", id.pid);
      it = stuck_.erase(it);
      continue;
    }
    if (shown_.size() < kMaxStuckProcesses) {
      HeldProcess held = DescribeHeld(id.pid);
      held.job = it->second.job;
      held.since = it->second.since;
      shown_.push_back(std::move(held));
    }
    ++it;
  }
}

}  // namespace lockstep::worker::agent
