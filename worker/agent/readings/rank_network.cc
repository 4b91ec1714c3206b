#include "worker/agent/readings/rank_network.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/os/procfs.h"
#include "common/os/tcp_sockets.h"

namespace lockstep::worker::agent {
namespace {

// From the begin of one reading to that of the next, in times of its length.
constexpr int64_t kLeastDistance = 50;
// Descriptors of one process that are looked at.
constexpr size_t kMostDescriptors = 4096;

// 0: it has ended, or may not be inspected.
uint64_t NamespaceOf(const std::string& process) {
  struct stat info {};
  const std::string path = fmt::format("/proc/{}/ns/net", process);
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

std::optional<NetworkBytes> CountersOf(pid_t pid) {
  const auto text = ReadProcFile(fmt::format("/proc/{}/net/dev", pid));
  if (!text.ok()) return std::nullopt;
  const auto devices = ParseNetworkCounters(*text);
  if (!devices.ok()) return std::nullopt;
  NetworkBytes sum;
  for (const auto& [name, counters] : *devices) {
    if (name == "lo") continue;
    sum = sum + NetworkBytes{counters.transmit_bytes, counters.receive_bytes};
  }
  return sum;
}

int64_t Signed(uint64_t bytes) {
  return static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX));
}

}  // namespace

RankNetwork::RankNetwork() : own_namespace_(NamespaceOf("self")) {}

void RankNetwork::Adopt(const RankRef& ref, const Usage& usage) {
  if (!usage.network_sent_bytes || !usage.network_received_bytes) return;
  meters_[ref].Adopt({static_cast<uint64_t>(*usage.network_sent_bytes),
                      static_cast<uint64_t>(*usage.network_received_bytes)});
}

void RankNetwork::Begin() {
  const MonoTime now = MonotonicNow();
  if (now - began_ < kLeastDistance * took_) return;
  began_ = now;
  auto sockets = AskTcpSockets(TcpKind::kConnected);
  if (!sockets) {
    took_ = MonotonicNow() - began_;
    return;
  }
  sockets_ = std::make_unique<SocketTable>(*std::move(sockets));
}

void RankNetwork::Take(const RankRef& ref, const std::vector<pid_t>& pids,
                       Usage* usage) {
  if (sockets_ == nullptr) return;
  std::set<uint64_t> open;
  std::map<uint64_t, pid_t> others;
  bool seen = false;
  for (const pid_t pid : pids) {
    const uint64_t of = NamespaceOf(std::to_string(pid));
    if (of == 0) continue;
    seen = true;
    if (of == own_namespace_) {
      open.merge(SocketsOf(pid, kMostDescriptors));
    } else {
      others.emplace(of, pid);
    }
  }
  if (!seen) return;
  NetworkMeter& meter = meters_[ref];
  meter.TakeSockets(open, *sockets_);
  for (const auto& [inode, pid] : others) {
    if (const auto counters = CountersOf(pid)) {
      meter.TakeNamespace(inode, *counters);
    }
  }
  const NetworkBytes total = meter.total();
  usage->network_sent_bytes = Signed(total.sent);
  usage->network_received_bytes = Signed(total.received);
}

void RankNetwork::End() {
  if (sockets_ == nullptr) return;
  sockets_.reset();
  took_ = MonotonicNow() - began_;
}

}  // namespace lockstep::worker::agent
