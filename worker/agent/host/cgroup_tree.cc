#include "worker/agent/host/cgroup_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/logging.h"
#include "common/os/procfs.h"

namespace lockstep::worker::agent {
namespace {

constexpr char kDaemonGroup[] = "/daemon";
// Enough for any program; a fork bomb meets it before the host's own limit.
constexpr int kMostTasks = 32768;
constexpr int64_t kCpuPeriodMicros = 100'000;

class RealFiles final : public CgroupFiles {
 public:
  StatusOr<std::string> Read(const std::string& path) override {
    return ReadProcFile(path);
  }
  Status Write(const std::string& path, std::string_view text) override {
    const Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd) return ErrnoStatus(errno, "opening " + path);
    // One write is one order.
    if (write(fd.get(), text.data(), text.size()) !=
        static_cast<ssize_t>(text.size())) {
      return ErrnoStatus(errno, fmt::format("writing {} into {}", text, path));
    }
    return OkStatus();
  }
  Status MakeDir(const std::string& path) override {
    if (mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return OkStatus();
    return ErrnoStatus(errno, "making " + path);
  }
  Status RemoveDir(const std::string& path) override {
    if (rmdir(path.c_str()) == 0) return OkStatus();
    if (errno == EBUSY) {
      return FailedPrecondition("{} still contains processes", path);
    }
    return ErrnoStatus(errno, "removing " + path);
  }
};

bool HasWord(std::string_view text, std::string_view word) {
  for (size_t at = 0; (at = text.find(word, at)) != std::string_view::npos;
       ++at) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || text[at - 1] == ' ' || text[at - 1] == '\n';
    const bool ends =
        end == text.size() || text[end] == ' ' || text[end] == '\n';
    if (begins && ends) return true;
  }
  return false;
}

// The path of cgroup v2 in /proc/PID/cgroup: "0::/PATH". "" without one.
std::string OwnPath(std::string_view self) {
  while (!self.empty()) {
    const std::string_view line = self.substr(0, self.find('\n'));
    self.remove_prefix(std::min(line.size() + 1, self.size()));
    if (line.starts_with("0::/")) return std::string(line.substr(3));
  }
  return "";
}

Status Refuse(const std::string& why) {
  return FailedPrecondition("limits are not enforced: {}", why);
}

// Returns the daemon's own group without kDaemonGroup; "" without cgroup v2.
std::string OwnBase(const std::string& mount, const CgroupPlace& place) {
  std::string own = OwnPath(place.self);
  if (own.empty()) return "";
  if (own.ends_with(kDaemonGroup)) {
    own.resize(own.size() - strlen(kDaemonGroup));
  }
  return mount + (own == "/" ? "" : own);
}

Status CheckOffer(const std::string& base, const std::string& controllers) {
  for (const char* controller : {"cpu", "memory"}) {
    if (HasWord(controllers, controller)) continue;
    return Refuse(
        fmt::format("{} does not offer the {} controller", base, controller));
  }
  return OkStatus();
}

// Whether ranks may have their groups below `base`, which is another program's
// to divide.
Status CheckDivided(CgroupFiles* files, const std::string& base) {
  const auto offered = files->Read(base + "/cgroup.controllers");
  if (!offered.ok()) {
    return Refuse(
        fmt::format("the cgroup {} of --rank-cgroup does not exist: see "
                    "systemctl status lockstep-ranks",
                    base));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckOffer(base, *offered));
  const auto handed_on = files->Read(base + "/cgroup.subtree_control");
  if (!handed_on.ok() || !HasWord(*handed_on, "cpu") ||
      !HasWord(*handed_on, "memory")) {
    return Refuse(fmt::format(
        "{} does not enable the cpu and memory controllers in "
        "cgroup.subtree_control; lockstep-ranks.service enables them",
        base));
  }
  // Only this shows whether we may.
  const std::string trial = base + "/trial";
  if (const Status made = files->MakeDir(trial); !made.ok()) {
    return Refuse(Message(made));
  }
  (void)files->RemoveDir(trial);
  return OkStatus();
}

}  // namespace

CgroupFiles* RealCgroupFiles() {
  static RealFiles* const files = new RealFiles;
  return files;
}

std::optional<uint64_t> CgroupField(std::string_view text,
                                    std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(key) || line.size() <= key.size() ||
        line[key.size()] != ' ') {
      continue;
    }
    uint64_t value = 0;
    const auto parsed = std::from_chars(line.data() + key.size() + 1,
                                        line.data() + line.size(), value);
    if (parsed.ec == std::errc()) return value;
  }
  return std::nullopt;
}

StatusOr<std::unique_ptr<CgroupTree>> CgroupTree::Open(
    CgroupFiles* files, const std::string& mount, const CgroupPlace& place) {
  if (place.ranks.empty()) return DivideOwn(files, mount, place);
  const std::string base = mount + place.ranks;
  const Status held = CheckDivided(files, base);
  if (held.ok()) {
    const std::string own = OwnBase(mount, place);
    return std::unique_ptr<CgroupTree>(
        new CgroupTree(files, base, own.empty() ? base : own));
  }
  auto own = DivideOwn(files, mount, place);
  // Reports the problem of the requested group.
  if (!own.ok()) return held;
  LOG_WARN("ranks run in the daemon's own cgroup: {}", Message(held));
  return own;
}

StatusOr<std::unique_ptr<CgroupTree>> CgroupTree::DivideOwn(
    CgroupFiles* files, const std::string& mount, const CgroupPlace& place) {
  const std::string base = OwnBase(mount, place);
  if (base.empty()) return Refuse("this host has no cgroup v2");
  const std::string daemon = base + kDaemonGroup;
  const bool in_daemon_group = OwnPath(place.self).ends_with(kDaemonGroup);
  const auto offered = files->Read(base + "/cgroup.controllers");
  if (!offered.ok()) {
    return Refuse("there is no cgroup v2 at " + base);
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckOffer(base, *offered));
  if (place.managed && !in_daemon_group) {
    return Refuse(
        "the service cannot restart while ranks run in cgroups below its own: "
        "set --rank-cgroup to the cgroup of lockstep-ranks.service, or set "
        "DelegateSubgroup=daemon in the unit (systemd 254 or later)");
  }
  bool moved = false;
  if (!in_daemon_group) {
    if (const Status made = files->MakeDir(daemon); !made.ok()) {
      return Refuse(Message(made));
    }
    const Status entered =
        files->Write(daemon + "/cgroup.procs", std::to_string(place.pid));
    if (!entered.ok()) {
      (void)files->RemoveDir(daemon);
      return Refuse(Message(entered));
    }
    moved = true;
  }
  std::string order = "+cpu +memory";
  if (HasWord(*offered, "pids")) order += " +pids";
  const Status enabled = files->Write(base + "/cgroup.subtree_control", order);
  if (!enabled.ok()) {
    // Others are in our group: it is not ours to divide.
    if (moved) {
      (void)files->Write(base + "/cgroup.procs", std::to_string(place.pid));
      (void)files->RemoveDir(daemon);
    }
    return Refuse(Message(enabled));
  }
  return std::unique_ptr<CgroupTree>(new CgroupTree(files, base, base));
}

bool CgroupTree::IsThere(const std::string& path) const {
  return files_->Read(path + "/cgroup.procs").ok();
}

std::string CgroupTree::PathOf(const std::string& id) const {
  const std::string path = base_ + "/rank-" + id;
  if (earlier_ == base_ || IsThere(path)) return path;
  const std::string earlier = earlier_ + "/rank-" + id;
  return IsThere(earlier) ? earlier : path;
}

bool CgroupTree::Exists(const std::string& id) const {
  return IsThere(PathOf(id));
}

StatusOr<std::string> CgroupTree::Make(const std::string& id,
                                       const Resources& share) {
  const std::string path = PathOf(id);
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDir(path));
  const auto limit = [&](const char* name, const std::string& value) {
    return files_->Write(path + "/" + name, value);
  };
  Status set;
  if (share.memory_bytes > 0) {
    set = limit("memory.max", std::to_string(share.memory_bytes));
    // All of the rank or nothing of it: half a rank is of no use to its peers.
    if (set.ok()) set = limit("memory.oom.group", "1");
  }
  if (set.ok() && share.cpus > 0) {
    const auto quota = std::max<int64_t>(
        1000, std::llround(share.cpus * static_cast<double>(kCpuPeriodMicros)));
    set = limit("cpu.max", fmt::format("{} {}", quota, kCpuPeriodMicros));
  }
  if (set.ok()) {
    const Status pids = limit("pids.max", std::to_string(kMostTasks));
    // Not every host offers that controller.
    if (!pids.ok() && pids.code() != StatusCode::kNotFound) set = pids;
  }
  if (!set.ok()) {
    (void)files_->RemoveDir(path);
    return set;
  }
  return path;
}

std::optional<CgroupReading> CgroupTree::Read(const std::string& id) {
  const std::string path = PathOf(id);
  const auto events = files_->Read(path + "/memory.events");
  if (!events.ok()) return std::nullopt;
  CgroupReading reading;
  reading.oom_kills = CgroupField(*events, "oom_kill").value_or(0);
  if (const auto cpu = files_->Read(path + "/cpu.stat"); cpu.ok()) {
    reading.cpu_seconds =
        static_cast<double>(CgroupField(*cpu, "usage_usec").value_or(0)) / 1e6;
  }
  // Since Linux 5.19.
  if (const auto peak = files_->Read(path + "/memory.peak"); peak.ok()) {
    int64_t bytes = 0;
    std::from_chars(peak->data(), peak->data() + peak->size(), bytes);
    reading.memory_peak_bytes = std::max<int64_t>(0, bytes);
  }
  return reading;
}

Status CgroupTree::Kill(const std::string& id) {
  const Status killed = files_->Write(PathOf(id) + "/cgroup.kill", "1");
  return killed.code() == StatusCode::kNotFound ? OkStatus() : killed;
}

Status CgroupTree::Remove(const std::string& id) {
  const Status removed = files_->RemoveDir(PathOf(id));
  return removed.code() == StatusCode::kNotFound ? OkStatus() : removed;
}

}  // namespace lockstep::worker::agent
