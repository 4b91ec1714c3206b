// The messages of the worker stream: ToProto and FromProto of each, as
// convert.h says. No gRPC here.
#ifndef LOCKSTEP_COMMON_WIRE_WORKER_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_WORKER_WIRE_H_

#include <cstddef>
#include <cstdint>

#include "common/model/assignment.h"
#include "common/model/stream_values.h"
#include "common/wire/value_wire.h"
#include "lockstep/v1/worker.pb.h"

namespace lockstep {

inline constexpr size_t kMaxWireKey = 256;
inline constexpr size_t kMaxWireValue = 32 << 10;
inline constexpr size_t kMaxLogChunk = 256 << 10;
inline constexpr size_t kMaxGangs = 4096;  // On one node.
inline constexpr size_t kMaxGangEvents = 1024;
inline constexpr size_t kMaxArtifacts = 64;
inline constexpr size_t kMaxOutputs = 100;
inline constexpr size_t kMaxImages = 64;
inline constexpr size_t kMaxPrefetched = 1024;
inline constexpr size_t kMaxGpuErrors = 256;
inline constexpr size_t kMaxOutputIdentity = 64;
inline constexpr size_t kMaxListedFiles = 1000;
inline constexpr int64_t kMaxFileChunk = 256 << 10;
// Jobs of which a node keeps working directories.
inline constexpr size_t kMaxWorkJobs = 100'000;
inline constexpr size_t kJobKeyBytes = 32;
inline constexpr int64_t kMaxVersion = 1'000'000'000'000'000'000;

LOCKSTEP_CONVERTS_ENUM(Goal, "goal", false)
LOCKSTEP_CONVERTS_ENUM(GangPhase, "phase", false)

LOCKSTEP_CONVERTS_AS(Registration, v1::Register, "register")
LOCKSTEP_CONVERTS(GangStatus, "gang_status")
LOCKSTEP_CONVERTS_AS(NodeHeartbeat, v1::Heartbeat, "heartbeat")
LOCKSTEP_CONVERTS_AS(WelcomeInfo, v1::Welcome, "welcome")
LOCKSTEP_CONVERTS(LocalTask, "task")
LOCKSTEP_CONVERTS(GangSpec, "spec")
// Also: PREPARE needs a spec, LAUNCH and GO a spec and a cluster spec.
LOCKSTEP_CONVERTS(Assignment, "assignment")
LOCKSTEP_CONVERTS_AS(LogPiece, v1::LogChunk, "log_chunk")
LOCKSTEP_CONVERTS_AS(LogAckInfo, v1::LogAck, "log_ack")
LOCKSTEP_CONVERTS(Prefetch, "prefetch")
// Each item is an image or a package; an image that is ready has its content.
LOCKSTEP_CONVERTS_AS(PrefetchReport, v1::PrefetchStatus, "prefetch_status")
// `path` may be anything: whoever opens it must keep within the directory.
LOCKSTEP_CONVERTS_AS(FileQuery, v1::FileRequest, "file_request")
LOCKSTEP_CONVERTS_AS(FileAnswer, v1::FileReply, "file_reply")

// One value, and three messages that it may become.
LOCKSTEP_CONVERTS_BY(ToRendezvousPut, RendezvousEntry, v1::RendezvousPut,
                     "rendezvous_put")
LOCKSTEP_CONVERTS_BY(ToRendezvousGet, RendezvousEntry, v1::RendezvousGet,
                     "rendezvous_get")
LOCKSTEP_CONVERTS_BY(ToRendezvousValue, RendezvousEntry, v1::RendezvousValue,
                     "rendezvous_value")

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_WORKER_WIRE_H_
