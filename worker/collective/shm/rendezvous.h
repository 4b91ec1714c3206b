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
// back. Memory is not shared with a process of another user (SO_PEERCRED), nor
// before its proof was checked. A stranger on the socket is dropped, and
// forming goes on.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H_
#define LOCKSTEP_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H_

#include <vector>

#include "common/base/fd.h"
#include "common/base/status.h"
#include "worker/collective/communicator.h"
#include "worker/collective/shm/segment.h"

namespace lockstep::worker::collective::shm {

// A peer; for this rank itself only the segment is set.
struct Member {
  Fd socket;   // its end is the end of the peer
  Fd process;  // a pidfd; empty where the kernel has none
  Segment segment;
};

// The ranks of one host, which share memory: the result of the rendezvous.
struct Group {
  std::vector<Member> members;
  // The number of processors on which the ranks together may run.
  int processors = 1;
};

// Forms the group. Errors are those of forming a communicator, and
// Unauthenticated (WRONG_JOB_KEY): a rank has another key; PermissionDenied: a
// rank is another user's.
StatusOr<Group> FormGroup(const CommunicatorOptions& options);

}  // namespace lockstep::worker::collective::shm

#endif  // LOCKSTEP_WORKER_COLLECTIVE_SHM_RENDEZVOUS_H_
