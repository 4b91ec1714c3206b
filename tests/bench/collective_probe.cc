// A native job that forms its communicator, sums one number over all ranks and
// writes when that was done to slot RANK of a board:
//
//   collective_probe BOARD FIRST_SLOT
#include "tests/bench/peers/probe.h"
#include "worker/runtime/session.h"

namespace lockstep::worker::runtime {
namespace {

Status Probe(Session* session, const char* board, int64_t first) {
  LOCKSTEP_RETURN_IF_ERROR(session->Form({{"probe", "1"}}));
  double one = 1;
  LOCKSTEP_RETURN_IF_ERROR(session->AllReduceSum({&one, 1}));
  const int64_t now = probe_nanos();
  if (one != session->world_size()) return DataLoss("the sum is {}", one);
  if (!probe_post(board, first + session->rank(), now)) {
    return Internal("cannot write to {}", board);
  }
  return OkStatus();
}

}  // namespace
}  // namespace lockstep::worker::runtime

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto session = lockstep::worker::runtime::Session::Join({});
  if (!session.ok())
    return lockstep::worker::runtime::Session::ExitCodeFor(session.status());
  return (*session)->Leave(lockstep::worker::runtime::Probe(
      session->get(), argv[1], std::atoll(argv[2])));
}
