#include "worker/shim/shim_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/file.h"
#include "common/os/marked_processes.h"
#include "worker/shim/send_descriptors.h"

namespace lockstep::worker::shim {
namespace {

using task::ShimReply;
using task::ShimRequest;

constexpr Duration kRetry = std::chrono::milliseconds(2);

int MillisUntil(MonoTime deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::max(deadline - MonotonicNow(), Duration::zero()));
  return static_cast<int>(std::min<int64_t>(left.count(), 3'600'000));
}

// NotFound if there is no listener.
StatusOr<Fd> TryConnect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() > task::kMaxSocketPath) {
    return InvalidArgument(
        "the socket path {} has {} bytes; Linux allows at most {}: choose a "
        "shorter runtime directory",
        path, path.size(), task::kMaxSocketPath);
  }
  memcpy(address.sun_path, path.data(), path.size());
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return ErrnoStatus(errno, "creating a socket");
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
              sizeof(address)) == 0) {
    return fd;
  }
  const int error = errno;
  // EAGAIN: it listens, and its queue is full for the moment.
  if (error == ENOENT || error == ECONNREFUSED || error == EAGAIN) {
    return NotFound("no shim answers on {}", path);
  }
  return ErrnoStatus(error, "connecting to the shim on " + path);
}

template <typename Record>
StatusOr<Record> ReadRecord(const std::string& path,
                            bool (*decode)(std::string_view, Record*,
                                           std::string*)) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes,
                            RealFileSystem()->Read(path, 1 << 20));
  Record record;
  std::string error;
  if (!decode(bytes, &record, &error)) return DataLoss("{}: {}", path, error);
  return record;
}

}  // namespace

StatusOr<Process> StartShim(const std::string& shim_program,
                            const task::ShimSpec& spec,
                            const std::string& stderr_path,
                            const std::vector<int>& held) {
  std::string error;
  if (!task::CheckShimSpec(spec, &error)) return InvalidArgument("{}", error);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Fd memfd, MakeMemfd("lockstep-spec", task::EncodeShimSpec(spec)));
  SpawnOptions options;
  options.program = shim_program;
  options.argv = {shim_program, "3"};  // 3: the first of `fds`.
  options.env = {fmt::format("{}=shim", kToolVariable)};  // Not the rank's.
  options.cwd = std::string("/");
  options.stderr_path = stderr_path;
  options.fds = {memfd.get()};
  options.fds.insert(options.fds.end(), held.begin(), held.end());
  return Spawn(options);
}

StatusOr<task::TaskRecord> ReadTaskRecord(const std::string& path) {
  return ReadRecord<task::TaskRecord>(path, task::DecodeTaskRecord);
}

StatusOr<task::ExitRecord> ReadExitRecord(const std::string& path) {
  return ReadRecord<task::ExitRecord>(path, task::DecodeExitRecord);
}

StatusOr<std::unique_ptr<ShimClient>> ShimClient::Connect(
    const std::string& socket_path, const std::string& nonce,
    MonoTime deadline) {
  StatusOr<Fd> fd = TryConnect(socket_path);
  // There is nothing to wait on for a file that is not there yet.
  while (!fd.ok() && fd.status().code() == StatusCode::kNotFound &&
         MonotonicNow() < deadline) {
    poll(nullptr, 0,
         static_cast<int>(
             std::chrono::ceil<std::chrono::milliseconds>(kRetry).count()));
    fd = TryConnect(socket_path);
  }
  if (!fd.ok()) return fd.status();
  std::unique_ptr<ShimClient> client(new ShimClient(*std::move(fd)));
  ShimRequest hello;
  hello.kind = ShimRequest::Kind::kHello;
  hello.nonce = nonce;
  // A shim answers in microseconds. The deadline for its start must not
  // disconnect a running shim.
  const MonoTime answer_by =
      std::max(deadline, MonotonicNow() + std::chrono::seconds(1));
  const StatusOr<ShimReply> reply = client->Call(hello, answer_by);
  if (reply.ok()) return client;
  if (reply.status().code() == StatusCode::kFailedPrecondition) {
    return PermissionDenied("{}", Message(reply.status()));
  }
  return reply.status();
}

StatusOr<ShimReply> ShimClient::State(MonoTime deadline) {
  return Call(ShimRequest(), deadline);
}

StatusOr<ShimReply> ShimClient::Signal(int signo, bool whole_tree,
                                       MonoTime deadline) {
  ShimRequest request;
  request.kind = ShimRequest::Kind::kSignal;
  request.signo = signo;
  request.whole_tree = whole_tree;
  return Call(request, deadline);
}

StatusOr<ShimReply> ShimClient::KillTree(std::optional<Duration> grace,
                                         MonoTime deadline) {
  ShimRequest request;
  request.kind = ShimRequest::Kind::kKillTree;
  request.grace_nanos =
      grace ? std::max<int64_t>(grace->count(), 0) : int64_t{-1};
  return Call(request, deadline);
}

StatusOr<ShimReply> ShimClient::Fence(int64_t fence_nanos, MonoTime deadline) {
  ShimRequest request;
  request.kind = ShimRequest::Kind::kFence;
  request.fence_nanos = fence_nanos;
  return Call(request, deadline);
}

StatusOr<ShimReply> ShimClient::Forget(MonoTime deadline) {
  ShimRequest request;
  request.kind = ShimRequest::Kind::kForget;
  return Call(request, deadline);
}

StatusOr<ShimReply> ShimClient::StartSession(ShimRequest request,
                                             const std::vector<int>& fds,
                                             MonoTime deadline) {
  request.kind = ShimRequest::Kind::kSession;
  return Call(std::move(request), deadline, fds);
}

StatusOr<ShimReply> ShimClient::Call(ShimRequest request, MonoTime deadline,
                                     const std::vector<int>& fds) {
  request.id = ++last_id_;
  const std::string bytes = task::EncodeShimRequest(request);
  if (SendWithDescriptors(fd_.get(), bytes, fds) !=
      static_cast<ssize_t>(bytes.size())) {
    // The socket may still hold a refusal that it sent before it exited.
    const int error = errno;
    const StatusOr<ShimReply> word = Receive(MonotonicNow());
    if (word.ok() && word->kind == ShimReply::Kind::kRefused) {
      return FailedPrecondition("the shim refused: {}", word->error);
    }
    return Unavailable("cannot send to the shim: {}", strerror(error));
  }
  for (;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(ShimReply reply, Receive(deadline));
    if (reply.kind == ShimReply::Kind::kRefused) {
      return FailedPrecondition("the shim refused: {}", reply.error);
    }
    if (reply.id == request.id) return reply;
    if (reply.id == 0) pushed_.push_back(std::move(reply));
    // An answer that an earlier call no longer waited for is passed over.
  }
}

StatusOr<ShimReply> ShimClient::Receive(MonoTime deadline) {
  std::vector<char> buffer(task::kMaxShimMessage);
  for (;;) {
    const ssize_t n =
        recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n == 0) return Unavailable("the shim has closed the connection");
    if (n > 0) {
      ShimReply reply;
      std::string error;
      if (!task::DecodeShimReply(
              std::string_view(buffer.data(), static_cast<size_t>(n)), &reply,
              &error)) {
        return DataLoss("{}", error);
      }
      if (reply.kind == ShimReply::Kind::kState) last_ = reply;
      return reply;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      return Unavailable("the shim is gone: {}", strerror(errno));
    }
    if (MonotonicNow() >= deadline)
      return DeadlineExceeded("the shim gave no answer");
    pollfd p{fd_.get(), POLLIN, 0};
    poll(&p, 1, MillisUntil(deadline));
  }
}

StatusOr<std::optional<ShimReply>> ShimClient::TakePush() {
  if (!pushed_.empty()) {
    ShimReply reply = std::move(pushed_.front());
    pushed_.pop_front();
    return std::optional<ShimReply>(std::move(reply));
  }
  StatusOr<ShimReply> reply = Receive(MonotonicNow());
  if (reply.ok()) return std::optional<ShimReply>(*std::move(reply));
  if (reply.status().code() == StatusCode::kDeadlineExceeded) {
    return std::optional<ShimReply>();
  }
  return reply.status();
}

}  // namespace lockstep::worker::shim
