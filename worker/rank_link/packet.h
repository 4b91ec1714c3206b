// One message is one packet of a SOCK_SEQPACKET Unix socket.
//
// Packets are at most 64 KiB: a longer one is refused by both ends. Nothing
// here blocks.
#ifndef LOCKSTEP_WORKER_RANK_LINK_PACKET_H_
#define LOCKSTEP_WORKER_RANK_LINK_PACKET_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace lockstep::worker::rank_link {

inline constexpr size_t kMaxPacketBytes = 64 << 10;
// sun_path less its final NUL.
inline constexpr size_t kMaxSocketPath = 107;
inline constexpr size_t kMaxRendezvousKey = 256;
inline constexpr size_t kMaxRendezvousValue = 32 << 10;
inline constexpr size_t kMaxNonce = 64;

// Environment variables that give a rank its link and identity.
inline constexpr char kLinkVariable[] = "LOCKSTEP_LINK";
inline constexpr char kNonceFdVariable[] = "LOCKSTEP_NONCE_FD";
inline constexpr char kLinkFileVariable[] = "LOCKSTEP_LINK_FILE";
inline constexpr char kJobVariable[] = "LOCKSTEP_JOB";
inline constexpr char kGenerationVariable[] = "LOCKSTEP_GENERATION";
inline constexpr char kRankVariable[] = "LOCKSTEP_RANK";

// Makes a non-blocking, close-on-exec socket that listens at `path` (mode 0666:
// credentials and nonce decide which peers are accepted). Removes a socket that
// an earlier process left there. InvalidArgument: longer than 107 bytes.
StatusOr<Fd> ListenPackets(const std::string& path);
// Connects, non-blocking. Unavailable: no process listens there, or its queue
// of connections is full.
StatusOr<Fd> ConnectPackets(const std::string& path);

enum class PacketResult {
  kDone,
  kWouldBlock,
  kClosed,     // by the other end, or broken
  kOversized,  // longer than kMaxPacketBytes: close the connection
};
PacketResult SendPacket(int fd, std::string_view packet);
// Replaces *packet.
PacketResult ReceivePacket(int fd, std::string* packet);

}  // namespace lockstep::worker::rank_link

#endif  // LOCKSTEP_WORKER_RANK_LINK_PACKET_H_
