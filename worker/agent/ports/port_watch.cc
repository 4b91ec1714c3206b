#include "worker/agent/ports/port_watch.h"

#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "common/base/fd.h"
#include "common/base/status.h"

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

// All that one family listens on, asked of the kernel (sock_diag(7)), which
// walks its listening sockets only: /proc/net/tcp takes milliseconds, as it
// walks the whole table of connections. nullopt where the kernel lacks it.
std::optional<std::vector<Listener>> AskListeners(uint8_t family) {
  const Fd socket_fd(
      socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (socket_fd.get() < 0) return std::nullopt;
  // The kernel answers at once; never hang on it all the same.
  const timeval patience = {.tv_sec = 1, .tv_usec = 0};
  setsockopt(socket_fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience,
             sizeof(patience));
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } question = {};
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  question.request.sdiag_family = family;
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = 1u << kListen;
  if (send(socket_fd.get(), &question, sizeof(question), 0) !=
      static_cast<ssize_t>(sizeof(question))) {
    return std::nullopt;
  }
  std::vector<Listener> found;
  alignas(nlmsghdr) char buffer[32 << 10];
  while (true) {
    const ssize_t got = recv(socket_fd.get(), buffer, sizeof(buffer), 0);
    if (got <= 0) return std::nullopt;
    auto left = static_cast<uint32_t>(got);
    for (const auto* header = reinterpret_cast<const nlmsghdr*>(buffer);
         NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return found;
      if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
          header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
        return std::nullopt;
      }
      inet_diag_msg message;
      memcpy(&message, NLMSG_DATA(header), sizeof(message));
      found.push_back(
          {ntohs(message.id.idiag_sport), uint64_t{message.idiag_inode}});
    }
  }
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
  for (const auto& [family, path] : {std::pair(AF_INET, "/proc/net/tcp"),
                                     std::pair(AF_INET6, "/proc/net/tcp6")}) {
    if (auto asked = AskListeners(family)) {
      std::erase_if(*asked, [&](const Listener& listener) {
        return !ports.contains(listener.port);
      });
      found.insert(found.end(), asked->begin(), asked->end());
      continue;
    }
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
