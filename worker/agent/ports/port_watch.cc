#include "worker/agent/ports/port_watch.h"

#include <algorithm>
#include <charconv>

#include "common/os/tcp_sockets.h"

namespace lockstep::worker::agent {
namespace {

constexpr int kListen = 10;  // TCP_LISTEN of include/net/tcp_states.h.

// The next word of `line`, taken away from it.
std::string_view Word(std::string_view* line) {
  const size_t begin = line->find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  line->remove_prefix(begin);
  const std::string_view word = line->substr(0, line->find(' '));
  line->remove_prefix(word.size());
  return word;
}

template <typename Number>
bool Parse(std::string_view text, int base, Number* number) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *number, base);
  return parsed.ec == std::errc() && parsed.ptr == end && !text.empty();
}

// Any user may have chosen the process name.
std::string Shown(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c < 0x20 || c > 0x7e; },
      '?');
  return name;
}

}  // namespace

// "sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
// ...", addresses as "HEX:PORT" (proc_pid_net(5)).
std::vector<Listener> ParseListeners(std::string_view proc_net_tcp,
                                     const std::set<int32_t>& ports) {
  std::vector<Listener> found;
  while (!proc_net_tcp.empty()) {
    std::string_view line = proc_net_tcp.substr(0, proc_net_tcp.find('\n'));
    proc_net_tcp.remove_prefix(std::min(line.size() + 1, proc_net_tcp.size()));
    Word(&line);
    const std::string_view local = Word(&line);
    Word(&line);
    int state = 0;
    Listener listener;
    if (!Parse(Word(&line), 16, &state) || state != kListen) continue;
    const size_t colon = local.rfind(':');
    if (colon == std::string_view::npos ||
        !Parse(local.substr(colon + 1), 16, &listener.port) ||
        !ports.contains(listener.port)) {
      continue;
    }
    for (int i = 0; i < 5; ++i) Word(&line);
    if (Parse(Word(&line), 10, &listener.inode)) found.push_back(listener);
  }
  return found;
}

std::vector<Listener> ReadListeners(const std::set<int32_t>& ports) {
  std::vector<Listener> found;
  if (ports.empty()) return found;
  // /proc/net/tcp takes milliseconds, as it walks all connections.
  if (const auto asked = AskTcpSockets(TcpKind::kListening)) {
    for (const TcpSocket& socket : *asked) {
      if (ports.contains(socket.port)) {
        found.push_back({socket.port, socket.inode});
      }
    }
    return found;
  }
  for (const char* const path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const auto text = ReadProcFile(path);
    if (!text.ok()) continue;
    for (const Listener& listener : ParseListeners(*text, ports)) {
      found.push_back(listener);
    }
  }
  return found;
}

std::map<uint64_t, std::string> HoldersOf(const std::set<uint64_t>& inodes,
                                          const std::vector<ProcessStat>& all) {
  std::map<uint64_t, std::string> holders;
  for (const ProcessStat& process : all) {
    if (holders.size() == inodes.size()) break;
    const std::set<uint64_t> sockets = SocketsOf(process.pid);
    for (const uint64_t inode : inodes) {
      if (!sockets.contains(inode)) continue;
      holders.try_emplace(inode, fmt::format("process {} ({})", process.pid,
                                             Shown(process.command)));
    }
  }
  for (const uint64_t inode : inodes) {
    holders.try_emplace(inode, "a process that this daemon may not inspect");
  }
  return holders;
}

}  // namespace lockstep::worker::agent
