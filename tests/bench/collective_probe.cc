// A native job that forms its communicator, sums one number over all ranks and
// writes when that was done to slot RANK of a board:
//
//   collective_probe BOARD FIRST_SLOT
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/base/fd.h"
#include "worker/runtime/session.h"

namespace lockstep {
namespace {

Status Probe(Session* session, const char* board, int64_t first) {
  LOCKSTEP_RETURN_IF_ERROR(session->Form({{"probe", "1"}}));
  double one = 1;
  LOCKSTEP_RETURN_IF_ERROR(session->AllReduceSum({&one, 1}));
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (one != session->world_size()) return DataLoss("the sum is {}", one);
  const Fd file(open(board, O_RDWR | O_CLOEXEC));
  const int64_t time = now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
  if (pwrite(file.get(), &time, sizeof(time),
             (first + session->rank()) * static_cast<off_t>(sizeof(time))) !=
      sizeof(time)) {
    return Internal("cannot write to {}", board);
  }
  return OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto session = lockstep::Session::Join({});
  if (!session.ok()) return lockstep::Session::ExitCodeFor(session.status());
  return (*session)->Leave(
      lockstep::Probe(session->get(), argv[1], std::atoll(argv[2])));
}
