#include "worker/shim/warm_client.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include <utility>

#include "common/os/marked_processes.h"
#include "worker/shim/send_descriptors.h"

namespace lockstep::worker::shim {

StatusOr<WarmShim> StartWarmShim(const std::string& shim_program,
                                 const task::ShimSpec& spec) {
  std::string error;
  if (!task::CheckShimSpec(spec, &error)) return InvalidArgument("{}", error);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoStatus(errno, "creating the socket of a warm start");
  }
  WarmShim warm;
  warm.control.Reset(ends[0]);
  const Fd child(ends[1]);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Fd memfd, MakeMemfd("lockstep-spec", task::EncodeShimSpec(spec)));
  SpawnOptions options;
  options.program = shim_program;
  options.argv = {shim_program, "--warm", "3"};  // 3: the first of `fds`.
  options.env = {fmt::format("{}=shim", kToolVariable)};
  options.cwd = std::string("/");
  options.fds = {memfd.get(), child.get()};
  LOCKSTEP_ASSIGN_OR_RETURN(warm.shim, Spawn(options));
  return warm;
}

StatusOr<std::optional<std::string>> TakeWords(const WarmShim& warm) {
  char buffer[16 << 10];
  const ssize_t n =
      recv(warm.control.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (n > 0) return std::string(buffer, static_cast<size_t>(n));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    return std::optional<std::string>();
  }
  return Unavailable("the interpreter has ended");
}

Status HandOver(const WarmShim& warm, const task::ShimSpec& rank,
                const std::string& stderr_path, const std::vector<int>& held) {
  std::string error;
  if (!task::CheckShimSpec(rank, &error)) return InvalidArgument("{}", error);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Fd memfd, MakeMemfd("lockstep-spec", task::EncodeShimSpec(rank)));
  const Fd errors(open(stderr_path.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  if (!errors) return ErrnoStatus(errno, "opening " + stderr_path);
  std::vector<int> fds = {memfd.get(), errors.get()};
  fds.insert(fds.end(), held.begin(), held.end());
  if (SendWithDescriptors(warm.control.get(), "r", fds) != 1) {
    return ErrnoStatus(errno, "handing a rank to its interpreter");
  }
  return OkStatus();
}

}  // namespace lockstep::worker::shim
