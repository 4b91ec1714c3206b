#include "worker/devices/host_readings.h"

#include <dirent.h>
#include <errno.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "common/os/proc_text.h"

namespace lockstep::worker::devices {
namespace {

constexpr uint64_t kSectorBytes = 512;  // In diskstats, whatever the disk has.

std::optional<uint64_t> Number(std::string_view word) {
  uint64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || stop != end || word.empty()) return std::nullopt;
  return value;
}

std::vector<std::string> Names(const std::string& directory) {
  std::vector<std::string> names;
  DIR* const dir = opendir(directory.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.push_back(entry->d_name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<uint64_t> NumberIn(const std::string& path) {
  const auto text = ReadProcFile(path);
  if (!text.ok()) return std::nullopt;
  std::string_view line = *text;
  return Number(TakeWord(&line));
}

bool IsDiskName(std::string_view name) {
  for (const char* other : {"loop", "ram", "zram", "fd", "sr", "dm-"}) {
    if (name.substr(0, std::string_view(other).size()) == other) return false;
  }
  return true;
}

std::map<std::string, PortCounters> ReadInfiniband(const std::string& root) {
  std::map<std::string, PortCounters> ports;
  const std::string top = root + "/sys/class/infiniband";
  for (const std::string& device : Names(top)) {
    for (const std::string& port : Names(top + "/" + device + "/ports")) {
      const std::string counters =
          top + "/" + device + "/ports/" + port + "/counters/";
      const auto received = NumberIn(counters + "port_rcv_data");
      const auto sent = NumberIn(counters + "port_xmit_data");
      if (!received || !sent) continue;
      // Counted in words of four bytes (the InfiniBand specification's
      // PortRcvData and PortXmitData).
      ports[device + "/" + port] = {*received * 4, *sent * 4};
    }
  }
  return ports;
}

}  // namespace

std::map<std::string, DiskCounters> ParseDiskStats(std::string_view text) {
  std::map<std::string, DiskCounters> disks;
  while (!text.empty()) {
    std::string_view line = TakeLine(&text);
    TakeWord(&line);  // Major, minor.
    TakeWord(&line);
    const std::string_view name = TakeWord(&line);
    uint64_t fields[10] = {};
    bool ok = !name.empty();
    for (uint64_t& field : fields) {
      const auto number = Number(TakeWord(&line));
      ok = ok && number.has_value();
      field = number.value_or(0);
    }
    if (!ok) continue;
    disks[std::string(name)] = {fields[0], fields[2] * kSectorBytes, fields[4],
                                fields[6] * kSectorBytes,
                                static_cast<double>(fields[9]) / 1e3};
  }
  return disks;
}

std::optional<double> ParsePressure(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = TakeLine(&text);
    if (TakeWord(&line) != "some") continue;
    const size_t at = line.find("total=");
    if (at == std::string_view::npos) return std::nullopt;
    line.remove_prefix(at + 6);
    const auto micros = Number(TakeWord(&line));
    if (!micros) return std::nullopt;
    return static_cast<double>(*micros) / 1e6;
  }
  return std::nullopt;
}

std::map<int, CpuSeconds> ParseCpus(std::string_view text, double ticks) {
  std::map<int, CpuSeconds> cpus;
  while (!text.empty()) {
    std::string_view line = TakeLine(&text);
    std::string_view rest = line;
    std::string_view name = TakeWord(&rest);
    if (name.substr(0, 3) != "cpu" || name.size() == 3) continue;
    name.remove_prefix(3);
    const auto number = Number(name);
    const auto cpu = ParseCpuSeconds("cpu" + std::string(rest) + "\n", ticks);
    if (number && *number < 65536 && cpu.ok()) {
      cpus[static_cast<int>(*number)] = *cpu;
    }
  }
  return cpus;
}

std::vector<MountPoint> ParseDiskMounts(std::string_view text) {
  std::vector<MountPoint> mounts;
  std::set<std::string, std::less<>> devices;
  while (!text.empty()) {
    std::string_view line = TakeLine(&text);
    const std::string_view device = TakeWord(&line);
    const std::string_view path = TakeWord(&line);
    const std::string_view type = TakeWord(&line);
    if (device.substr(0, 5) != "/dev/" || path.empty() || type == "squashfs" ||
        type == "iso9660" || path.find('\\') != std::string_view::npos ||
        !devices.insert(std::string(device)).second) {
      continue;
    }
    mounts.push_back(
        {std::string(device), std::string(path), std::string(type)});
  }
  return mounts;
}

StatusOr<HostReadings> ReadHostReadings(const std::string& root) {
  HostReadings host;
  LOCKSTEP_ASSIGN_OR_RETURN(host.base, ReadHostMetrics());
  if (const auto text = ReadProcFile(root + "/proc/diskstats"); text.ok()) {
    for (const auto& [name, counters] : ParseDiskStats(*text)) {
      // Partitions are no entry of their own there.
      const std::string block = root + "/sys/block/" + name;
      if (IsDiskName(name) && access(block.c_str(), F_OK) == 0) {
        host.disks[name] = counters;
      }
    }
  }
  for (const char* resource : {"cpu", "memory", "io"}) {
    const auto text = ReadProcFile(root + "/proc/pressure/" + resource);
    if (!text.ok()) continue;
    if (const auto seconds = ParsePressure(*text)) {
      host.pressure[resource] = *seconds;
    }
  }
  if (const auto text = ReadProcFile(root + "/proc/vmstat"); text.ok()) {
    std::string_view rest = *text;
    while (!rest.empty()) {
      std::string_view line = TakeLine(&rest);
      if (TakeWord(&line) == "oom_kill")
        host.oom_kills = Number(TakeWord(&line));
    }
  }
  host.infiniband = ReadInfiniband(root);
  return host;
}

StatusOr<FileSystemUse> ReadFileSystemUse(const std::string& path) {
  struct statvfs use {};
  if (statvfs(path.c_str(), &use) != 0) {
    return ErrnoStatus(errno, "reading the free space of " + path);
  }
  const uint64_t block = use.f_frsize;
  return FileSystemUse{use.f_blocks * block, use.f_bfree * block,
                       use.f_bavail * block};
}

bool IsHostNetworkDevice(std::string_view name) {
  if (name == "lo") return false;
  for (const char* other :
       {"veth", "docker", "br-", "cni", "cali", "flannel", "virbr", "vnet",
        "ifb", "tap", "tun", "dummy", "lxc"}) {
    if (name.substr(0, std::string_view(other).size()) == other) return false;
  }
  return true;
}

}  // namespace lockstep::worker::devices
