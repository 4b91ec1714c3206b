// lockstep-shim FD: holds one rank of a job. FD is an inherited memfd with an
// encoded ShimSpec (worker/task/shim_spec.h). Started by lockstep-worker.
//
// Descriptors above FD stay open, untouched, for as long as the shim lives, and
// the rank gets none of them: sockets that hold the task's ports, and a lock by
// which a restarted daemon sees that a shim is there or is being started.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

#include "worker/shim/holder.h"
#include "worker/shim/init.h"
#include "worker/shim/io.h"
#include "worker/shim/session.h"
#include "worker/shim/shim.h"
#include "worker/shim/warm.h"
#include "worker/task/bytes.h"
#include "worker/task/shim_spec.h"

namespace {

int Refuse(const std::string& text) {
  lockstep::worker::shim::Complain(text);
  return 2;
}

// So that no file of ours gets one of these numbers.
void OpenStandardFds() {
  for (int fd = 0; fd < 3; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", O_RDWR);
  }
}

}  // namespace

int main(int argc, char** argv) {
  // In a container (init.h), and in a trial of an engine.
  if (argc > 2 && strcmp(argv[1], "--") == 0) {
    return lockstep::worker::shim::RunInit(argv + 2);
  }
  if (argc == 2 && strcmp(argv[1], "--version") == 0) return 0;
  if (argc == 2 && strcmp(argv[1], "--limited") == 0) {
    return lockstep::worker::shim::CheckLimited();
  }
  // Sessions (session.h).
  if (argc > 3 && strcmp(argv[1], "--session") == 0 &&
      strcmp(argv[2], "--") == 0) {
    return lockstep::worker::shim::RunContainerSession(argv + 3);
  }
  if (argc == 3 && strcmp(argv[1], "--connect") == 0) {
    return lockstep::worker::shim::RunConnect(argv[2]);
  }
  // The program of lockstep-ranks.service (holder.h).
  if (argc == 2 && strcmp(argv[1], "--hold") == 0) {
    return lockstep::worker::shim::RunHolder();
  }
  OpenStandardFds();
  // warm.h
  const bool warm = argc == 3 && strcmp(argv[1], "--warm") == 0;
  if (warm) argv[1] = argv[argc-- - 1];
  char* end = nullptr;
  const long fd = argc == 2 ? strtol(argv[1], &end, 10) : -1;
  if (argc != 2 || end == argv[1] || *end != '\0' || fd < 3 || fd > 1 << 20) {
    return Refuse(
        "usage: lockstep-shim FD, where FD is an open file with the spec of a "
        "rank; only lockstep-worker starts this program");
  }
  lockstep::Fd spec_fd(static_cast<int>(fd));
  std::string bytes;
  if (!lockstep::worker::shim::ReadFd(
          spec_fd.get(), lockstep::worker::task::kMaxRecordBytes, &bytes)) {
    return Refuse(
        lockstep::worker::shim::ErrorText("reading the rank's spec", errno));
  }
  spec_fd.Reset();
  lockstep::worker::task::ShimSpec spec;
  std::string error;
  if (!lockstep::worker::task::DecodeShimSpec(bytes, &spec, &error)) {
    return Refuse(error);
  }
  if (warm) {
    return lockstep::worker::shim::RunWarm(
        spec, lockstep::Fd(static_cast<int>(fd) + 1));
  }
  return lockstep::worker::shim::Shim(std::move(spec)).Run();
}
