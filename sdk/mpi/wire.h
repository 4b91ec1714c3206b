// What a rank says to the store of rank 0: one request and one answer for each
// connection. All ranks have processors of one byte order.
#ifndef LOCKSTEP_SDK_MPI_WIRE_H_
#define LOCKSTEP_SDK_MPI_WIRE_H_

#include <cstdint>
#include <string>

#include "common/base/fd.h"
#include "sdk/mpi/fail.h"

namespace lockstep::mpi {

enum class Verb : uint32_t { kHello = 0, kPut = 1, kGet = 2 };

struct StoreRequest {
  Verb verb = Verb::kHello;
  std::string job;
  std::string key;
  std::string value;
  int64_t timeout_ns = 0;  // Of kGet.
};

struct StoreAnswer {
  int32_t code = LOCKSTEP_OK;
  // The value of kGet, or the sentence of an error.
  std::string text;
};

// False: the connection ended, the deadline passed, or the bytes are not of
// this protocol.
bool Send(const Fd& fd, const StoreRequest& request, Deadline deadline);
bool Receive(const Fd& fd, StoreRequest* request, Deadline deadline);
bool Send(const Fd& fd, const StoreAnswer& answer, Deadline deadline);
bool Receive(const Fd& fd, StoreAnswer* answer, Deadline deadline);

// Connects to `host`; on failure the descriptor is empty and *number an errno.
Fd Connect(const std::string& host, const std::string& port, Deadline deadline,
           int* number);
// Listens at `host`, if it is an address in digits, else at every address.
Fd Listen(const std::string& host, const std::string& port, int* number);

}  // namespace lockstep::mpi

#endif  // LOCKSTEP_SDK_MPI_WIRE_H_
