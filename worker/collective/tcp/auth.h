// How two ranks prove to each other, on a fresh connection, that they are of
// one generation: a challenge in both directions with HMAC-SHA256 (RFC 2104),
// in the manner of ISO/IEC 9798-4, three-pass mutual authentication.
//
//   connector: Hello, with its rank, the rank that it wants, the number of the
//              connection, and a nonce
//   acceptor:  Challenge, with its nonce and a proof over both
//   connector: Proof
//
// The proofs are bound to the key, the session (a hash of what rank 0
// published for this forming, so fresh each time), both ranks, the
// connection's number, the direction and both nonces. It authenticates the
// connection's ends, not the bytes that follow.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_TCP_AUTH_H_
#define LOCKSTEP_WORKER_COLLECTIVE_TCP_AUTH_H_

#include <cstdint>
#include <string>

#include "common/base/sha256.h"

namespace lockstep::worker::collective::tcp {

inline constexpr size_t kNonceBytes = 16;

struct Hello {
  char magic[8];
  uint32_t from;
  uint32_t to;
  uint32_t stream;  // from 0
  uint32_t zero;
  uint8_t nonce[kNonceBytes];
};
static_assert(sizeof(Hello) == 40, "no padding");

struct Challenge {
  uint8_t nonce[kNonceBytes];
  Sha256Mac proof;
};

struct Proof {
  Sha256Mac proof;
};

struct Secret {
  std::string key;      // of the generation; may be empty
  std::string session;  // 32 bytes
};

Hello MakeHello(int from, int to, int stream = 0);
bool IsHello(const Hello& hello);
Challenge Answer(const Secret& secret, const Hello& hello);
// Whether the other end has the secret: the connector checks a challenge, the
// acceptor a proof.
bool Proves(const Secret& secret, const Hello& hello,
            const Challenge& challenge);
Proof Answer(const Secret& secret, const Hello& hello,
             const Challenge& challenge);
bool Proves(const Secret& secret, const Hello& hello,
            const Challenge& challenge, const Proof& proof);

}  // namespace lockstep::worker::collective::tcp

#endif  // LOCKSTEP_WORKER_COLLECTIVE_TCP_AUTH_H_
