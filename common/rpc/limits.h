// Numbers that both ends of a gRPC connection must agree on, and what one
// caller may ask of a server.
#ifndef LOCKSTEP_COMMON_RPC_LIMITS_H_
#define LOCKSTEP_COMMON_RPC_LIMITS_H_

namespace lockstep {

// A client pings an idle connection and gives it up when no answer comes.
inline constexpr int kKeepaliveTimeMs = 10'000;
inline constexpr int kKeepaliveTimeoutMs = 5'000;
// What a server puts up with. Half of what clients do, so that a late ping
// followed by one in time is not taken for an attack (GOAWAY too_many_pings).
inline constexpr int kMinPingIntervalMs = 5'000;
// Of one message, both ways. What may be larger is a page or a stream.
inline constexpr int kMaxMessageBytes = 4 << 20;
// Of all headers or trailers of a call: a status text of 2 KiB is sent twice,
// once with every byte written as three.
inline constexpr int kMaxMetadataBytes = 16 << 10;

// What one identity may do, whatever number of connections it opens: far more
// than a person or a script does, far less than what would keep others waiting.
struct CallerLimits {
  // Calls per second in the long run, and at once.
  double calls_per_second = 2'000;
  double burst = 4'000;
  // Unary calls that have not ended: each waits for a thread of its role's pool
  // or holds one, and has a request and an answer in memory.
  int open_calls = 256;
  // Streams that have not ended. An idle one holds no thread and about 20 KiB
  // of memory (tests/bench/stream_rows.cc), so these are 160 MiB: enough for a
  // dashboard that watches every job of a large cluster.
  int open_streams = 8'192;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_RPC_LIMITS_H_
