#include "worker/evidence/proc_parts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/syscall.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "common/os/proc_text.h"

namespace lockstep::worker::evidence {
namespace {

template <typename T>
bool ToNumber(std::string_view word, T* value, int base = 10) {
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, *value, base);
  return error == std::errc() && stop == end && !word.empty();
}

bool ToReal(std::string_view word, double* value) {
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, *value);
  return error == std::errc() && stop == end && !word.empty();
}

struct NamedCall {
  long number;
  const char* name;
};

// Those in which programs sleep. The numbers are this machine's.
constexpr NamedCall kCalls[] = {
    {SYS_futex, "futex"},
    {SYS_read, "read"},
    {SYS_readv, "readv"},
    {SYS_pread64, "pread64"},
    {SYS_write, "write"},
    {SYS_writev, "writev"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_recvfrom, "recvfrom"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_recvmmsg, "recvmmsg"},
    {SYS_sendto, "sendto"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_sendmmsg, "sendmmsg"},
    {SYS_connect, "connect"},
    {SYS_accept, "accept"},
    {SYS_accept4, "accept4"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
    {SYS_ioctl, "ioctl"},
    {SYS_fsync, "fsync"},
    {SYS_fdatasync, "fdatasync"},
    {SYS_flock, "flock"},
    {SYS_fcntl, "fcntl"},
    {SYS_openat, "openat"},
    {SYS_io_getevents, "io_getevents"},
    {SYS_io_uring_enter, "io_uring_enter"},
    {SYS_restart_syscall, "restart_syscall"},
    {SYS_exit_group, "exit_group"},
#ifdef SYS_poll
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_pause, "pause"},
    {SYS_open, "open"},
    {SYS_epoll_wait, "epoll_wait"},
#endif
};

// "Uid:\t1000\t...".
std::optional<std::string_view> ValueOf(std::string_view text,
                                        std::string_view key) {
  while (!text.empty()) {
    std::string_view line = TakeLine(&text);
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    return TakeWord(&line);
  }
  return std::nullopt;
}

template <typename T>
T NumberOf(std::string_view text, std::string_view key) {
  T value = 0;
  const auto word = ValueOf(text, key);
  return word && ToNumber(*word, &value) ? value : T{};
}

constexpr const char* kTcpStates[] = {
    "",          "ESTABLISHED", "SYN_SENT",    "SYN_RECV",   "FIN_WAIT1",
    "FIN_WAIT2", "TIME_WAIT",   "CLOSE",       "CLOSE_WAIT", "LAST_ACK",
    "LISTEN",    "CLOSING",     "NEW_SYN_RECV"};

std::string StateName(std::string_view word) {
  size_t state = 0;
  if (!ToNumber(word, &state, 16) || state >= std::size(kTcpStates)) return "";
  return kTcpStates[state];
}

// "0100007F:1F90": words in the byte order of this machine.
std::string AddressOf(std::string_view word) {
  const size_t colon = word.find(':');
  if (colon != 8 && colon != 32) return "";
  uint8_t bytes[16] = {};
  for (size_t i = 0; i < colon / 8; ++i) {
    uint32_t part = 0;
    if (!ToNumber(word.substr(8 * i, 8), &part, 16)) return "";
    memcpy(bytes + 4 * i, &part, sizeof(part));
  }
  int port = 0;
  if (!ToNumber(word.substr(colon + 1), &port, 16)) return "";
  char text[INET6_ADDRSTRLEN] = {};
  const bool six = colon == 32;
  if (inet_ntop(six ? AF_INET6 : AF_INET, bytes, text, sizeof(text)) ==
      nullptr) {
    return "";
  }
  return six ? fmt::format("[{}]:{}", text, port)
             : fmt::format("{}:{}", text, port);
}

}  // namespace

ProcessStatus ParseProcessStatus(std::string_view text) {
  ProcessStatus status;
  status.uid = NumberOf<uint32_t>(text, "Uid:");
  status.gid = NumberOf<uint32_t>(text, "Gid:");
  status.resident_bytes = NumberOf<uint32_t>(text, "VmRSS:") * int64_t{1024};
  status.swap_bytes = NumberOf<uint32_t>(text, "VmSwap:") * int64_t{1024};
  status.tracer = NumberOf<int32_t>(text, "TracerPid:");
  return status;
}

std::string SystemCallOf(std::string_view text) {
  long number = -1;
  if (!ToNumber(TakeWord(&text), &number) || number < 0) return "";
  for (const NamedCall& call : kCalls) {
    if (call.number == number) return call.name;
  }
  return fmt::format("syscall {}", number);
}

std::string KernelStackOf(std::string_view text) {
  std::string stack;
  while (!text.empty()) {
    // "[<0>] futex_wait_queue+0x60/0x90".
    std::string_view line = TakeLine(&text);
    TakeWord(&line);
    std::string_view function = TakeWord(&line);
    function = function.substr(0, function.find('+'));
    if (function.empty()) continue;
    if (stack.size() + function.size() + 1 > kMaxEvidenceText) break;
    if (!stack.empty()) stack += '\n';
    stack += function;
  }
  return stack;
}

// "sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid
// timeout inode ...".
std::vector<SocketEvidence> ParseSockets(std::string_view text,
                                         std::string_view protocol,
                                         const std::set<uint64_t>& inodes) {
  std::vector<SocketEvidence> sockets;
  TakeLine(&text);
  while (!text.empty() && sockets.size() < kMaxEvidenceSockets) {
    std::string_view line = TakeLine(&text);
    TakeWord(&line);
    SocketEvidence socket;
    socket.protocol = protocol;
    socket.local = AddressOf(TakeWord(&line));
    socket.peer = AddressOf(TakeWord(&line));
    socket.state = StateName(TakeWord(&line));
    const std::string_view queues = TakeWord(&line);
    const size_t colon = std::min(queues.find(':'), queues.size());
    for (int i = 0; i < 4; ++i) TakeWord(&line);
    uint64_t inode = 0;
    uint32_t sent = 0;
    uint32_t received = 0;
    if (!ToNumber(TakeWord(&line), &inode) || !inodes.contains(inode) ||
        colon == queues.size() ||
        !ToNumber(queues.substr(0, colon), &sent, 16) ||
        !ToNumber(queues.substr(colon + 1), &received, 16)) {
      continue;
    }
    socket.send_queue = sent;
    socket.receive_queue = received;
    sockets.push_back(std::move(socket));
  }
  return sockets;
}

void AddPressure(std::string_view text, std::string_view name,
                 std::map<std::string, double>* readings) {
  while (!text.empty()) {
    // "some avg10=0.00 avg60=0.00 avg300=0.00 total=0".
    std::string_view line = TakeLine(&text);
    const std::string_view kind = TakeWord(&line);
    std::string_view value = TakeWord(&line);
    constexpr std::string_view kKey = "avg10=";
    double number = 0;
    if ((kind != "some" && kind != "full") || !value.starts_with(kKey) ||
        !ToReal(value.substr(kKey.size()), &number)) {
      continue;
    }
    (*readings)[fmt::format("{}.{}.avg10", name, kind)] = number;
  }
}

void AddNumber(std::string_view text, std::string_view name,
               std::map<std::string, double>* readings) {
  double number = 0;
  if (ToReal(TakeWord(&text), &number)) (*readings)[std::string(name)] = number;
}

void AddNumbers(std::string_view text, std::string_view prefix,
                const std::set<std::string_view>& keys,
                std::map<std::string, double>* readings) {
  while (!text.empty()) {
    std::string_view line = TakeLine(&text);
    const std::string_view key = TakeWord(&line);
    double number = 0;
    if (!keys.contains(key) || !ToReal(TakeWord(&line), &number)) continue;
    (*readings)[fmt::format("{}.{}", prefix, key)] = number;
  }
}

}  // namespace lockstep::worker::evidence
