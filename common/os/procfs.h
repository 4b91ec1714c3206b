// What /proc says about this host, a process and a process tree.
//
// Each file has a pure parser (text in, values out: the tests') and a thin
// reader. Times are seconds, sizes bytes. proc(5) is the reference. A field
// that a kernel lacks is 0. All functions are safe from any thread.
#ifndef LOCKSTEP_COMMON_OS_PROCFS_H_
#define LOCKSTEP_COMMON_OS_PROCFS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

// The whole of a file whose size stat(2) does not tell.
StatusOr<std::string> ReadProcFile(const std::string& path);
// USER_HZ and the page size of this host.
double ClockTicksPerSecond();
uint64_t PageSize();

// --- The host.

// /proc/stat, all CPUs together. `user` and `nice` hold the guests' time.
struct CpuSeconds {
  double user = 0;
  double nice = 0;
  double system = 0;
  double idle = 0;
  double iowait = 0;
  double irq = 0;
  double softirq = 0;
  double steal = 0;

  double Busy() const { return user + nice + system + irq + softirq + steal; }
  double Total() const { return Busy() + idle + iowait; }
};
StatusOr<CpuSeconds> ParseCpuSeconds(std::string_view proc_stat,
                                     double ticks_per_second);
// When this host booted, seconds since 1970: "btime" of /proc/stat.
StatusOr<int64_t> ParseBootTime(std::string_view proc_stat);

struct LoadAverage {
  double one = 0;
  double five = 0;
  double fifteen = 0;
};
StatusOr<LoadAverage> ParseLoadAverage(std::string_view proc_loadavg);

struct MemoryInfo {
  uint64_t total = 0;
  uint64_t available = 0;
  uint64_t free = 0;
  uint64_t buffers = 0;
  uint64_t cached = 0;
  uint64_t swap_total = 0;
  uint64_t swap_free = 0;
};
StatusOr<MemoryInfo> ParseMemoryInfo(std::string_view proc_meminfo);

struct NetworkCounters {
  uint64_t receive_bytes = 0;
  uint64_t receive_packets = 0;
  uint64_t receive_errors = 0;
  uint64_t receive_drops = 0;
  uint64_t transmit_bytes = 0;
  uint64_t transmit_packets = 0;
  uint64_t transmit_errors = 0;
  uint64_t transmit_drops = 0;
};
// By device, loopback included.
StatusOr<std::map<std::string, NetworkCounters>> ParseNetworkCounters(
    std::string_view proc_net_dev);

struct HostMetrics {
  CpuSeconds cpu;
  int64_t boot_time_unix_seconds = 0;
  LoadAverage load;
  MemoryInfo memory;
  std::map<std::string, NetworkCounters> network;
};
StatusOr<HostMetrics> ReadHostMetrics();

// --- One process.

struct ProcessStat {
  pid_t pid = 0;
  std::string command;  // At most 15 bytes; may hold spaces and brackets.
  char state = '?';     // R, S, D, Z, T ...
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  double user_seconds = 0;
  double system_seconds = 0;
  // Of children that it has waited for.
  double children_user_seconds = 0;
  double children_system_seconds = 0;
  int64_t threads = 0;
  uint64_t start_time = 0;  // Clock ticks since boot.
  uint64_t virtual_bytes = 0;
  uint64_t resident_bytes = 0;
};
StatusOr<ProcessStat> ParseProcessStat(std::string_view proc_pid_stat,
                                       double ticks_per_second,
                                       uint64_t page_size);
// NotFound when there is no such process.
StatusOr<ProcessStat> ReadProcessStat(pid_t pid);

// Bytes that went to or came from storage, not the page cache.
struct ProcessIo {
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
};
StatusOr<ProcessIo> ParseProcessIo(std::string_view proc_pid_io);

// --- A process and all that descend from it.

struct TreeMetrics {
  int processes = 0;
  int64_t threads = 0;
  // Of the living, and of the dead that their parents here waited for.
  double user_seconds = 0;
  double system_seconds = 0;
  uint64_t resident_bytes = 0;  // Shared pages count once for each process.
  uint64_t read_bytes = 0;      // Where we may read it, else 0.
  uint64_t write_bytes = 0;
};

// `root` and its descendants, parents first. Of one reading of /proc, so it
// may lack what was started meanwhile. Pure: `all` is any set of processes.
std::vector<pid_t> TreeOf(pid_t root, const std::vector<ProcessStat>& all);
// Every process that we may see; those that end meanwhile are left out.
std::vector<ProcessStat> ReadAllProcesses();
// The tree of `root` in `all`, from ReadAllProcesses. NotFound when `root` is
// gone.
StatusOr<TreeMetrics> ReadTreeMetrics(pid_t root,
                                      const std::vector<ProcessStat>& all);

// --- This process: process_* of Prometheus clients.

struct SelfMetrics {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0;
  uint64_t virtual_bytes = 0;
  int64_t open_fds = 0;
  int64_t max_fds = 0;
  double start_time_unix_seconds = 0;
};
StatusOr<SelfMetrics> ReadSelfMetrics();

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_PROCFS_H_
