#include "sdk/mpi/wire.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace lockstep::mpi {
namespace {

constexpr uint64_t kMagic = 0x3130'6970'6d70'6574;  // "tepmpi01"
constexpr uint32_t kMostText = 64 << 10;

struct RequestHead {
  uint64_t magic = kMagic;
  Verb verb = Verb::kHello;
  uint32_t job_bytes = 0;
  uint32_t key_bytes = 0;
  uint32_t value_bytes = 0;
  int64_t timeout_ns = 0;
};
struct AnswerHead {
  uint64_t magic = kMagic;
  int32_t code = 0;
  uint32_t text_bytes = 0;
};

bool AwaitReady(int fd, int16_t events, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd one{fd, events, 0};
    const auto wait = std::min<int64_t>(left.count(), 60'000);
    const int ready = poll(&one, 1, static_cast<int>(wait));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool SendBytes(int fd, const void* data, size_t bytes, Deadline deadline) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, next, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      next += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!AwaitReady(fd, POLLOUT, deadline)) return false;
    } else {
      return false;
    }
  }
  return true;
}

bool ReceiveBytes(int fd, void* data, size_t bytes, Deadline deadline) {
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(fd, next, bytes, MSG_DONTWAIT);
    if (got > 0) {
      next += got;
      bytes -= static_cast<size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!AwaitReady(fd, POLLIN, deadline)) return false;
    } else {
      return false;
    }
  }
  return true;
}

bool SendText(int fd, const std::string& text, Deadline deadline) {
  return SendBytes(fd, text.data(), text.size(), deadline);
}

bool ReceiveText(int fd, uint32_t bytes, std::string* text, Deadline deadline) {
  if (bytes > kMostText) return false;
  text->resize(bytes);
  return ReceiveBytes(fd, text->data(), bytes, deadline);
}

uint32_t Bytes(const std::string& text) {
  return static_cast<uint32_t>(text.size());
}

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList Resolve(const char* host, const std::string& port, int flags,
                    int* number) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int result = getaddrinfo(host, port.c_str(), &hints, &list);
  if (result != 0) *number = result == EAI_SYSTEM ? errno : EADDRNOTAVAIL;
  return {result == 0 ? list : nullptr, &freeaddrinfo};
}

}  // namespace

bool Send(const Fd& fd, const StoreRequest& request, Deadline deadline) {
  const RequestHead head{kMagic,
                         request.verb,
                         Bytes(request.job),
                         Bytes(request.key),
                         Bytes(request.value),
                         request.timeout_ns};
  return SendBytes(fd.get(), &head, sizeof(head), deadline) &&
         SendText(fd.get(), request.job, deadline) &&
         SendText(fd.get(), request.key, deadline) &&
         SendText(fd.get(), request.value, deadline);
}

bool Receive(const Fd& fd, StoreRequest* request, Deadline deadline) {
  RequestHead head;
  if (!ReceiveBytes(fd.get(), &head, sizeof(head), deadline) ||
      head.magic != kMagic || head.verb > Verb::kGet) {
    return false;
  }
  request->verb = head.verb;
  request->timeout_ns = head.timeout_ns;
  return ReceiveText(fd.get(), head.job_bytes, &request->job, deadline) &&
         ReceiveText(fd.get(), head.key_bytes, &request->key, deadline) &&
         ReceiveText(fd.get(), head.value_bytes, &request->value, deadline);
}

bool Send(const Fd& fd, const StoreAnswer& answer, Deadline deadline) {
  const AnswerHead head{kMagic, answer.code, Bytes(answer.text)};
  return SendBytes(fd.get(), &head, sizeof(head), deadline) &&
         SendText(fd.get(), answer.text, deadline);
}

bool Receive(const Fd& fd, StoreAnswer* answer, Deadline deadline) {
  AnswerHead head;
  if (!ReceiveBytes(fd.get(), &head, sizeof(head), deadline) ||
      head.magic != kMagic) {
    return false;
  }
  answer->code = head.code;
  return ReceiveText(fd.get(), head.text_bytes, &answer->text, deadline);
}

Fd Connect(const std::string& host, const std::string& port, Deadline deadline,
           int* number) {
  const AddressList list = Resolve(host.c_str(), port, 0, number);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    Fd fd(
        socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
      *number = errno;
      continue;
    }
    if (connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0) return fd;
    *number = errno;
    if (*number != EINPROGRESS) continue;
    socklen_t size = sizeof(*number);
    if (!AwaitReady(fd.get(), POLLOUT, deadline)) {
      *number = ETIMEDOUT;
    } else if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, number, &size) == 0 &&
               *number == 0) {
      return fd;
    }
  }
  return {};
}

Fd Listen(const std::string& host, const std::string& port, int* number) {
  AddressList list = Resolve(host.c_str(), port, AI_NUMERICHOST, number);
  if (list == nullptr) list = Resolve(nullptr, port, AI_PASSIVE, number);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    Fd fd(socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (fd &&
        setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(fd.get(), one->ai_addr, one->ai_addrlen) == 0 &&
        listen(fd.get(), SOMAXCONN) == 0) {
      return fd;
    }
    *number = errno;
  }
  return {};
}

}  // namespace lockstep::mpi
