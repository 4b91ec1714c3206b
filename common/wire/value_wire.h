// The values that several messages share: ToProto and FromProto of each, as
// convert.h says. The texts are the paths that errors start with. Pure; safe
// from any thread.
#ifndef LOCKSTEP_COMMON_WIRE_VALUE_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_VALUE_WIRE_H_

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/model/cluster_spec.h"
#include "common/model/job.h"
#include "common/model/node.h"
#include "common/model/resources.h"
#include "common/model/restore_target.h"
#include "common/wire/convert.h"
#include "lockstep/v1/event.pb.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/job_spec.pb.h"
#include "lockstep/v1/node.pb.h"
#include "lockstep/v1/resources.pb.h"
#include "lockstep/v1/task.pb.h"

namespace lockstep {

// Ranks of one job, and tasks of one job.
inline constexpr int64_t kMaxRanks = 65536;
// Ten years: the longest time that a job or a message may name.
inline constexpr Duration kMaxDuration = std::chrono::hours(24 * 3652);

// ---- Enums -----------------------------------------------------------------
LOCKSTEP_CONVERTS_ENUM(JobKind, "kind", false)
LOCKSTEP_CONVERTS_ENUM(TaskType, "type", false)
LOCKSTEP_CONVERTS_ENUM(JobState, "state", false)
LOCKSTEP_CONVERTS_ENUM(Reason, "reason", true)
LOCKSTEP_CONVERTS_ENUM(RankState, "state", false)
LOCKSTEP_CONVERTS_ENUM(DirectiveKind, "kind", false)
LOCKSTEP_CONVERTS_ENUM(NodeState, "state", false)
LOCKSTEP_CONVERTS_ENUM(GpuState, "state", false)
LOCKSTEP_CONVERTS_ENUM(PackageFormat, "format", false)
LOCKSTEP_CONVERTS_ENUM(EndWith, "end_with", true)
LOCKSTEP_CONVERTS_ENUM(HangPolicy, "hang", true)
LOCKSTEP_CONVERTS_ENUM(NodeLoss, "node_loss", true)
LOCKSTEP_CONVERTS_ENUM(SignSource, "source", true)

// ---- Time ------------------------------------------------------------------
// 1970 to 2261.
LOCKSTEP_CONVERTS_AS(WallTime, google::protobuf::Timestamp, "time")
// 0 to kMaxDuration.
LOCKSTEP_CONVERTS_AS(Duration, google::protobuf::Duration, "duration")

// ---- What a job asks for and gets ------------------------------------------
LOCKSTEP_CONVERTS(Resources, "resources")
LOCKSTEP_CONVERTS(Gpu, "gpu")
LOCKSTEP_CONVERTS(GpuUsage, "gpu")
LOCKSTEP_CONVERTS(HeldProcess, "process")
LOCKSTEP_CONVERTS(GpuReclaim, "reclaim")
// `keep` 0 becomes 3.
LOCKSTEP_CONVERTS(CheckpointPolicy, "checkpoint")
LOCKSTEP_CONVERTS(RankSpec, "rank")
LOCKSTEP_CONVERTS(TaskSpec, "task")
// Ranks are 0 .. count - 1, each once; world_size counts chief and workers.
LOCKSTEP_CONVERTS(ClusterSpec, "cluster")
// What Assignment.cluster holds.
std::string EncodeClusterSpec(const ClusterSpec& value);
LOCKSTEP_CONVERTS(Container, "container")
// `id` and `digest` are empty or digests.
LOCKSTEP_CONVERTS(ImageContent, "image")
LOCKSTEP_CONVERTS_AS(MachineType, v1::Machine, "machine")
LOCKSTEP_CONVERTS(Package, "package")
LOCKSTEP_CONVERTS(Runtime, "runtime")
// "sha256:" and 64 lower-case hex digits.
bool IsPackageDigest(std::string_view digest);

// ---- What became of it -----------------------------------------------------
LOCKSTEP_CONVERTS(Cause, "cause")
LOCKSTEP_CONVERTS(ExitStatus, "exit")
LOCKSTEP_CONVERTS(PhaseSeconds, "phases")
LOCKSTEP_CONVERTS(Straggler, "straggler")
LOCKSTEP_CONVERTS(ProgressSigns, "signs")
LOCKSTEP_CONVERTS(RankProgress, "progress")
LOCKSTEP_CONVERTS(Usage, "usage")
LOCKSTEP_CONVERTS(RankStatus, "rank")
LOCKSTEP_CONVERTS(TaskStatus, "task")
LOCKSTEP_CONVERTS(TaskPreparation, "preparation")
LOCKSTEP_CONVERTS(WorkFile, "file")
LOCKSTEP_CONVERTS(WorkDirectory, "work")
LOCKSTEP_CONVERTS(OutputFile, "output")
LOCKSTEP_CONVERTS(Checkpoint, "checkpoint")
LOCKSTEP_CONVERTS(Attempt, "attempt")
LOCKSTEP_CONVERTS(InPlaceRecovery, "recovery")
LOCKSTEP_CONVERTS(Event, "event")
LOCKSTEP_CONVERTS(Bill, "bill")
LOCKSTEP_CONVERTS(Directive, "directive")
LOCKSTEP_CONVERTS(LineageEntry, "lineage")
LOCKSTEP_CONVERTS(RestoreTarget, "restore")
LOCKSTEP_CONVERTS(Fence, "fence")

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_VALUE_WIRE_H_
