// Limits of an HTTP server for one client and for all.
#ifndef LOCKSTEP_COMMON_HTTP_LIMITS_H_
#define LOCKSTEP_COMMON_HTTP_LIMITS_H_

#include <chrono>
#include <cstddef>

#include "common/base/clock.h"

namespace lockstep::http {

struct ConnectionLimits {
  // For the TLS handshake, from accept.
  Duration handshake = std::chrono::seconds(5);
  // Until the last byte of a request's head: for the first request from accept
  // or the handshake, for a later one from its first byte.
  Duration request = std::chrono::seconds(5);
  // Between an answer and the first byte of the next request.
  Duration idle = std::chrono::seconds(90);
  // For writing an answer.
  Duration answer = std::chrono::seconds(30);

  // For answers in progress when the server stops.
  Duration shutdown = std::chrono::milliseconds(500);
  size_t request_bytes = 64 << 10;
  // Concurrent connections, in all and per remote address (IPv6: per /64).
  size_t connections = 256;
  size_t connections_of_address = 128;
  // Memory of answers being written. Above it the slowest connection is closed,
  // unless it is the only one.
  size_t answer_bytes = 64 << 20;
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_LIMITS_H_
