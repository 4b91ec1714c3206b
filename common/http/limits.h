// What one client, and all of them, can take of an HTTP server.
#ifndef LOCKSTEP_COMMON_HTTP_LIMITS_H_
#define LOCKSTEP_COMMON_HTTP_LIMITS_H_

#include <chrono>
#include <cstddef>

#include "common/base/clock.h"

namespace lockstep {

struct ConnectionLimits {
  // Of the TLS handshake, from the acceptance.
  Duration handshake = std::chrono::seconds(5);
  // To the last byte of a request's head: of the first one from the
  // acceptance or the handshake, of a later one from its first byte.
  Duration request = std::chrono::seconds(5);
  // Between an answer and the first byte of the next request.
  Duration idle = std::chrono::seconds(90);
  // Of writing an answer.
  Duration answer = std::chrono::seconds(30);
  // Of what is being answered once the server stops.
  Duration last_words = std::chrono::milliseconds(500);
  size_t request_bytes = 64 << 10;
  // At a time, in all and of one remote address (of IPv6: of its /64).
  size_t connections = 256;
  size_t connections_of_address = 128;
  // Of answers that are being written: above it the one that takes longest is
  // closed, unless it is the only one.
  size_t answer_bytes = 64 << 20;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_LIMITS_H_
