#include "common/os/tcp_sockets.h"

#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <string>

#include "common/base/fd.h"

namespace lockstep {
namespace {

// Of include/net/tcp_states.h. Sockets in TIME_WAIT and those that are only
// half open have no bytes.
constexpr uint32_t kListenState = 1u << 10;
constexpr uint32_t kPeerStates =
    1u << 1 | 1u << 4 | 1u << 5 | 1u << 8 | 1u << 9 | 1u << 11;

// Of tcp_info in linux/tcp.h, since Linux 4.1. That header and glibc's of the
// same struct exclude each other.
constexpr size_t kBytesAcked = 120;
constexpr size_t kBytesReceived = 128;

uint64_t NumberAt(const char* bytes, size_t size, size_t offset) {
  uint64_t number = 0;
  if (offset + sizeof(number) <= size) {
    memcpy(&number, bytes + offset, sizeof(number));
  }
  return number;
}

TcpSocket SocketIn(const nlmsghdr* header) {
  inet_diag_msg message;
  memcpy(&message, NLMSG_DATA(header), sizeof(message));
  TcpSocket socket;
  socket.inode = message.idiag_inode;
  socket.cookie = static_cast<uint64_t>(message.id.idiag_cookie[1]) << 32 |
                  message.id.idiag_cookie[0];
  socket.port = ntohs(message.id.idiag_sport);
  auto left =
      static_cast<int>(header->nlmsg_len - NLMSG_LENGTH(sizeof(inet_diag_msg)));
  const char* at = static_cast<const char*>(NLMSG_DATA(header)) +
                   NLMSG_ALIGN(sizeof(inet_diag_msg));
  for (const auto* part = reinterpret_cast<const rtattr*>(at);
       RTA_OK(part, left); part = RTA_NEXT(part, left)) {
    if (part->rta_type != INET_DIAG_INFO) continue;
    const auto* const info = static_cast<const char*>(RTA_DATA(part));
    const auto size = static_cast<size_t>(RTA_PAYLOAD(part));
    socket.sent_bytes = NumberAt(info, size, kBytesAcked);
    socket.received_bytes = NumberAt(info, size, kBytesReceived);
  }
  return socket;
}

bool Ask(const Fd& link, uint8_t family, TcpKind kind) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } question = {};
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  question.request.sdiag_family = family;
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = kListenState;
  if (kind == TcpKind::kConnected) {
    question.request.idiag_states = kPeerStates;
    question.request.idiag_ext = 1u << (INET_DIAG_INFO - 1);
  }
  return send(link.get(), &question, sizeof(question), 0) ==
         static_cast<ssize_t>(sizeof(question));
}

// All answers to one question. False: the kernel refuses it.
bool Receive(const Fd& link, std::vector<TcpSocket>* found) {
  alignas(nlmsghdr) char buffer[32 << 10];
  while (true) {
    const ssize_t got = recv(link.get(), buffer, sizeof(buffer), 0);
    if (got <= 0) return false;
    auto left = static_cast<uint32_t>(got);
    for (const auto* header = reinterpret_cast<const nlmsghdr*>(buffer);
         NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return true;
      if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
          header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
        return false;
      }
      found->push_back(SocketIn(header));
    }
  }
}

}  // namespace

std::optional<std::vector<TcpSocket>> AskTcpSockets(TcpKind kind) {
  const Fd link(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (link.get() < 0) return std::nullopt;
  // The kernel answers at once; never hang on it all the same.
  const timeval patience = {.tv_sec = 1, .tv_usec = 0};
  setsockopt(link.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  std::vector<TcpSocket> found;
  for (const int family : {AF_INET, AF_INET6}) {
    if (!Ask(link, static_cast<uint8_t>(family), kind) ||
        !Receive(link, &found)) {
      return std::nullopt;
    }
  }
  return found;
}

std::optional<uint64_t> SocketInode(std::string_view link) {
  constexpr std::string_view kBegin = "socket:[";
  if (!link.starts_with(kBegin) || !link.ends_with(']')) return std::nullopt;
  link.remove_prefix(kBegin.size());
  link.remove_suffix(1);
  uint64_t inode = 0;
  const char* const end = link.data() + link.size();
  const auto parsed = std::from_chars(link.data(), end, inode);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return inode;
}

std::set<uint64_t> SocketsOf(pid_t pid, size_t most) {
  std::set<uint64_t> sockets;
  const std::string path = "/proc/" + std::to_string(pid) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(path.c_str()),
                                                closedir);
  if (!dir) return sockets;
  for (size_t seen = 0; seen < most; ++seen) {
    const dirent* const entry = readdir(dir.get());
    if (entry == nullptr) break;
    char target[64];
    const ssize_t size =
        readlinkat(dirfd(dir.get()), entry->d_name, target, sizeof(target));
    if (size <= 0) continue;
    const std::string_view text(target, static_cast<size_t>(size));
    if (const auto inode = SocketInode(text)) sockets.insert(*inode);
  }
  return sockets;
}

}  // namespace lockstep
