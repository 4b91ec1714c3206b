#include "worker/agent/port_watch.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>

#include "common/os/procfs.h"

namespace lockstep {
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
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const auto text = ReadProcFile(path);
    if (!text.ok()) continue;
    for (const Listener& listener : ParseListeners(*text, ports)) {
      found.push_back(listener);
    }
  }
  return found;
}

std::set<uint64_t> SocketsOf(pid_t pid) {
  std::set<uint64_t> sockets;
  const std::string path = "/proc/" + std::to_string(pid) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(path.c_str()),
                                                closedir);
  if (!dir) return sockets;
  while (const dirent* entry = readdir(dir.get())) {
    char target[64];
    const ssize_t size =
        readlinkat(dirfd(dir.get()), entry->d_name, target, sizeof(target));
    constexpr std::string_view kPrefix = "socket:[";
    if (size <= 0) continue;
    const std::string_view text(target, static_cast<size_t>(size));
    uint64_t inode = 0;
    if (text.starts_with(kPrefix) && text.ends_with(']') &&
        Parse(text.substr(kPrefix.size(), text.size() - kPrefix.size() - 1), 10,
              &inode)) {
      sockets.insert(inode);
    }
  }
  return sockets;
}

std::set<int32_t> TakenPorts(const std::vector<Listener>& listeners,
                             const std::set<uint64_t>& own) {
  std::set<int32_t> taken;
  for (const Listener& listener : listeners) {
    if (!own.contains(listener.inode)) taken.insert(listener.port);
  }
  return taken;
}

}  // namespace lockstep
