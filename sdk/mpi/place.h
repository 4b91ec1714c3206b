// Where this process is among the ranks, as the environment says: RANK,
// WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which lockstep and torchrun set.
#ifndef LOCKSTEP_SDK_MPI_PLACE_H_
#define LOCKSTEP_SDK_MPI_PLACE_H_

#include <cstdint>
#include <string>

#include "lockstep/lockstep.h"

namespace lockstep::mpi {

struct Place {
  int rank = 0;
  int size = 0;
  // Rank 0 listens here.
  std::string host;
  std::string port;
  // The address of this host that the other ranks reach: of the interface that
  // GLOO_SOCKET_IFNAME names, else of the route to `host`. Empty: all ranks are
  // on one host.
  std::string bind_address;
  // The same text in all processes of one start of one job.
  std::string job;
};

// FAILED_PRECONDITION names the variable that is missing, INVALID_ARGUMENT the
// one that means nothing.
int32_t ReadPlace(Place* place, lockstep_error* error);

}  // namespace lockstep::mpi

#endif  // LOCKSTEP_SDK_MPI_PLACE_H_
