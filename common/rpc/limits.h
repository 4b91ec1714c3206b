// Values that both ends of a gRPC connection must agree on, and limits for one
// caller of a server.
#ifndef LOCKSTEP_COMMON_RPC_LIMITS_H_
#define LOCKSTEP_COMMON_RPC_LIMITS_H_

namespace lockstep {

// A client pings an idle connection and closes it if no answer comes.
inline constexpr int kKeepaliveTimeMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 5'000;
// The shortest ping interval that a server accepts. It is half of the clients'
// interval, so that a late ping followed by one in time is not taken for an
// attack (GOAWAY too_many_pings).
inline constexpr int kMinPingIntervalMs = 5'000;
// The limit of one message in either direction. Larger data is paged or
// streamed.
inline constexpr int kMaxMessageBytes = 4 << 20;
// The limit of all headers or trailers of a call. A status text of 2 KiB is
// sent twice, once with every byte written as three.
inline constexpr int kMaxMetadataBytes = 16 << 10;

// Limits of one identity over all its connections: far more than a person or
// script needs, far less than would delay others.
struct CallerLimits {
  // Calls per second in the long run, and in a burst.
  double calls_per_second = 2'000;
  double burst = 4'000;
  // Open unary calls. Each waits for or holds a thread of its role's pool, and
  // keeps a request and an answer in memory.
  int open_calls = 256;
  // Open streams. An idle one holds no thread and about 20 KiB of memory
  // (tests/bench/stream_rows.cc), so the limit means 160 MiB: enough for a
  // dashboard that watches every job of a large cluster.
  int open_streams = 8'192;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_LIMITS_H_
