// Readers of procfs.h.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "common/base/fd.h"
#include "common/os/procfs.h"

namespace lockstep {
namespace {

struct DirCloser {
  DIR* dir;
  ~DirCloser() {
    if (dir != nullptr) closedir(dir);
  }
};

std::string ProcPath(pid_t pid, const char* file) {
  return fmt::format("/proc/{}/{}", pid, file);
}

int64_t CountOpenFds() {
  const DirCloser fds{opendir("/proc/self/fd")};
  if (fds.dir == nullptr) return 0;
  int64_t count = -1;  // The directory's own.
  while (const dirent* entry = readdir(fds.dir)) {
    if (entry->d_name[0] != '.') ++count;
  }
  return count;
}

}  // namespace

StatusOr<std::string> ReadProcFile(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return ErrnoStatus(errno, "opening " + path);
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t n = read(fd.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "reading " + path);
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

double ClockTicksPerSecond() {
  const long ticks = sysconf(_SC_CLK_TCK);
  return ticks > 0 ? static_cast<double>(ticks) : 100.0;
}

uint64_t PageSize() {
  const long size = sysconf(_SC_PAGESIZE);
  return size > 0 ? static_cast<uint64_t>(size) : 4096;
}

// In seconds of Unix time. A /proc that shows nothing but processes, as that of
// a hardened service, has no btime: then by the clocks.
static int64_t BootTime() {
  if (const auto text = ReadProcFile("/proc/stat"); text.ok()) {
    if (const auto boot = ParseBootTime(*text); boot.ok()) return *boot;
  }
  timespec wall{};
  timespec up{};
  clock_gettime(CLOCK_REALTIME, &wall);
  clock_gettime(CLOCK_BOOTTIME, &up);
  return wall.tv_sec - up.tv_sec;
}

StatusOr<HostMetrics> ReadHostMetrics() {
  HostMetrics host;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string stat, ReadProcFile("/proc/stat"));
  LOCKSTEP_ASSIGN_OR_RETURN(host.cpu,
                            ParseCpuSeconds(stat, ClockTicksPerSecond()));
  LOCKSTEP_ASSIGN_OR_RETURN(host.boot_time_unix_seconds, ParseBootTime(stat));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string load,
                            ReadProcFile("/proc/loadavg"));
  LOCKSTEP_ASSIGN_OR_RETURN(host.load, ParseLoadAverage(load));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string memory,
                            ReadProcFile("/proc/meminfo"));
  LOCKSTEP_ASSIGN_OR_RETURN(host.memory, ParseMemoryInfo(memory));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string network,
                            ReadProcFile("/proc/net/dev"));
  LOCKSTEP_ASSIGN_OR_RETURN(host.network, ParseNetworkCounters(network));
  return host;
}

StatusOr<ProcessStat> ReadProcessStat(pid_t pid) {
  const StatusOr<std::string> text = ReadProcFile(ProcPath(pid, "stat"));
  // ESRCH while reading: it ended between the open and the read.
  if (!text.ok()) return NotFound("there is no process {}", pid);
  return ParseProcessStat(*text, ClockTicksPerSecond(), PageSize());
}

std::vector<ProcessStat> ReadAllProcesses() {
  std::vector<ProcessStat> all;
  const DirCloser proc{opendir("/proc")};
  if (proc.dir == nullptr) return all;
  while (const dirent* entry = readdir(proc.dir)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    const StatusOr<ProcessStat> stat =
        ReadProcessStat(static_cast<pid_t>(atoi(entry->d_name)));
    if (stat.ok()) all.push_back(*stat);
  }
  return all;
}

StatusOr<TreeMetrics> ReadTreeMetrics(pid_t root,
                                      const std::vector<ProcessStat>& all) {
  std::map<pid_t, const ProcessStat*> by_pid;
  for (const ProcessStat& p : all) by_pid[p.pid] = &p;
  if (!by_pid.contains(root)) return NotFound("there is no process {}", root);
  TreeMetrics tree;
  for (const pid_t pid : TreeOf(root, all)) {
    const ProcessStat& p = *by_pid.at(pid);
    ++tree.processes;
    tree.threads += p.threads;
    tree.user_seconds += p.user_seconds + p.children_user_seconds;
    tree.system_seconds += p.system_seconds + p.children_system_seconds;
    tree.resident_bytes += p.resident_bytes;
    const StatusOr<std::string> text = ReadProcFile(ProcPath(pid, "io"));
    if (!text.ok()) continue;
    if (const StatusOr<ProcessIo> io = ParseProcessIo(*text); io.ok()) {
      tree.read_bytes += io->read_bytes;
      tree.write_bytes += io->write_bytes;
    }
  }
  return tree;
}

StatusOr<SelfMetrics> ReadSelfMetrics() {
  LOCKSTEP_ASSIGN_OR_RETURN(const ProcessStat stat, ReadProcessStat(getpid()));
  const int64_t boot = BootTime();
  SelfMetrics self;
  self.cpu_seconds = stat.user_seconds + stat.system_seconds;
  self.resident_bytes = stat.resident_bytes;
  self.virtual_bytes = stat.virtual_bytes;
  self.open_fds = CountOpenFds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    self.max_fds = static_cast<int64_t>(limit.rlim_cur);
  }
  self.start_time_unix_seconds =
      static_cast<double>(boot) +
      static_cast<double>(stat.start_time) / ClockTicksPerSecond();
  return self;
}

}  // namespace lockstep
