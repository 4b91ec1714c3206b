// How the ranks of one host find each other and come to share memory.
//
// Rank r listens on an abstract Unix socket of random name (it belongs to the
// network namespace, so other hosts and namespaces cannot reach it), writes
// the name to the rendezvous store as "shm/<r>", and connects to all lower
// ranks. On a connection, C connecting and A accepting:
//
//   C -> A  Hello of C
//   A -> C  Hello of A, proof of A
//   C -> A  proof of C, with C's memory file
//   A -> C  with A's memory file
//
// A proof is HMAC-SHA256 (RFC 2104), with the generation's key, of the role
// and both Hellos, which have a nonce each: it cannot be replayed or sent
// back. Nothing is shared with a process of another user (SO_PEERCRED), nor
// before its proof was checked. A stranger on the socket costs nobody
// anything: it is dropped, and forming goes on.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H_

#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/shm/segment.h"

namespace lockstep::shm {

// A peer, or with nothing but its segment this rank itself.
struct Member {
  Fd socket;   // its end is the end of the peer
  Fd process;  // a pidfd; none where the kernel gives none
  Segment segment;
};

// The result, by rank.
struct Group {
  std::vector<Member> members;
  // The ranks together may run on so many processors.
  int processors = 1;
};

// Errors as FormCommunicator's, and Unauthenticated (WRONG_JOB_KEY) for a rank
// with another key; PermissionDenied for one of another user.
StatusOr<Group> FormGroup(const CommunicatorOptions& options);

}  // namespace lockstep::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H_
