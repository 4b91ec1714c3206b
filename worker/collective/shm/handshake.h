// The messages of rendezvous.h, and one connection's way through them.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_HANDSHAKE_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_HANDSHAKE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/base/fd.h"
#include "common/base/sha256.h"
#include "common/base/status.h"

namespace lockstep::worker::collective::shm {

using Proof = Sha256Mac;

// Integers as this machine has them: both ends are on it.
struct Hello {
  char magic[8];
  uint32_t rank;
  uint32_t size;
  unsigned char nonce[32];
  uint64_t segment_bytes;
};
static_assert(sizeof(Hello) == 56, "no padding");

struct Answer {
  Hello hello;
  Proof proof;
};

Hello MakeHello(int rank, int size, size_t segment_bytes);
// FailedPrecondition: another version or number of ranks.
Status CheckHello(const Hello& hello, int size);

enum class Role : char { kConnects = 'C', kAccepts = 'A' };
Proof Prove(const std::string& key, Role role, const Hello& connector,
            const Hello& acceptor);

// One message, with `file` where it is not negative. Never blocks:
// Unavailable when the peer does not take it.
Status SendMessage(int socket, const void* data, size_t bytes, int file = -1);

// One message of exactly `bytes`; *file becomes the descriptor that came with
// it, if any. *nothing is true, and the result OK, when there is none yet.
// Unavailable: the peer has closed; FailedPrecondition: another size.
Status ReceiveMessage(int socket, void* data, size_t bytes, Fd* file,
                      bool* nothing);

// Its process, as the kernel knows it. PermissionDenied: of another user.
StatusOr<pid_t> ProcessOf(int socket);
// A pidfd of the peer; none where the kernel has none.
Fd OpenProcess(int socket, pid_t pid);

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_HANDSHAKE_H_
