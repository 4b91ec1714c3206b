// The values that several messages share: model to proto and back.
//
// ToProto never fails. FromProto trusts nothing: an unknown enum value, a
// number out of bounds, a NaN or a name that is none is InvalidArgument, whose
// text starts with `path` and the field. Pure; safe from any thread.
#ifndef LOCKSTEP_COMMON_WIRE_VALUE_WIRE_H_
#define LOCKSTEP_COMMON_WIRE_VALUE_WIRE_H_

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include <optional>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/model/cluster_spec.h"
#include "common/model/job.h"
#include "common/model/node.h"
#include "common/model/resources.h"
#include "common/model/restore_target.h"
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
v1::JobKind ToProto(JobKind value);
v1::TaskType ToProto(TaskType value);
v1::JobState ToProto(JobState value);
v1::Reason ToProto(Reason value);
v1::RankState ToProto(RankState value);
v1::DirectiveKind ToProto(DirectiveKind value);
v1::NodeState ToProto(NodeState value);
v1::PackageFormat ToProto(PackageFormat value);
v1::EndWith ToProto(EndWith value);
StatusOr<JobKind> FromProto(v1::JobKind value, std::string_view path = "kind");
StatusOr<TaskType> FromProto(v1::TaskType value,
                             std::string_view path = "type");
StatusOr<JobState> FromProto(v1::JobState value,
                             std::string_view path = "state");
// REASON_UNSPECIFIED is kNone.
StatusOr<Reason> FromProto(v1::Reason value, std::string_view path = "reason");
StatusOr<RankState> FromProto(v1::RankState value,
                              std::string_view path = "state");
StatusOr<DirectiveKind> FromProto(v1::DirectiveKind value,
                                  std::string_view path = "kind");
StatusOr<NodeState> FromProto(v1::NodeState value,
                              std::string_view path = "state");
StatusOr<PackageFormat> FromProto(v1::PackageFormat value,
                                  std::string_view path = "format");
// END_WITH_UNSPECIFIED is kUnspecified.
StatusOr<EndWith> FromProto(v1::EndWith value,
                            std::string_view path = "end_with");

// ---- Time ------------------------------------------------------------------
google::protobuf::Timestamp ToProto(WallTime time);
google::protobuf::Duration ToProto(Duration duration);
// 1970 to 2261; else, and for nanos that are none, InvalidArgument.
StatusOr<WallTime> FromProto(const google::protobuf::Timestamp& time,
                             std::string_view path = "time");
// 0 to kMaxDuration.
StatusOr<Duration> FromProto(const google::protobuf::Duration& duration,
                             std::string_view path = "duration");

// ---- What a job asks for and gets ------------------------------------------
v1::Resources ToProto(const Resources& value);
v1::Gpu ToProto(const Gpu& value);
v1::GpuUsage ToProto(const GpuUsage& value);
v1::CheckpointPolicy ToProto(const CheckpointPolicy& value);
v1::RankSpec ToProto(const RankSpec& value);
v1::TaskSpec ToProto(const TaskSpec& value);
v1::ClusterSpec ToProto(const ClusterSpec& value);
// What Assignment.cluster holds.
std::string EncodeClusterSpec(const ClusterSpec& value);
v1::Container ToProto(const Container& value);
v1::ImageContent ToProto(const ImageContent& value);
v1::Machine ToProto(const MachineType& value);
v1::Package ToProto(const Package& value);
v1::Runtime ToProto(const Runtime& value);
StatusOr<Resources> FromProto(const v1::Resources& value,
                              std::string_view path = "resources");
StatusOr<Gpu> FromProto(const v1::Gpu& value, std::string_view path = "gpu");
StatusOr<GpuUsage> FromProto(const v1::GpuUsage& value,
                             std::string_view path = "gpu");
// `keep` 0 becomes 3.
StatusOr<CheckpointPolicy> FromProto(const v1::CheckpointPolicy& value,
                                     std::string_view path = "checkpoint");
StatusOr<RankSpec> FromProto(const v1::RankSpec& value,
                             std::string_view path = "rank");
StatusOr<TaskSpec> FromProto(const v1::TaskSpec& value,
                             std::string_view path = "task");
// Ranks are 0 .. count - 1, each once; world_size counts chief and workers.
StatusOr<ClusterSpec> FromProto(const v1::ClusterSpec& value,
                                std::string_view path = "cluster");
StatusOr<ClusterSpec> DecodeClusterSpec(const std::string& bytes,
                                        std::string_view path = "cluster");
StatusOr<Container> FromProto(const v1::Container& value,
                              std::string_view path = "container");
// `id` and `digest` are empty or digests.
StatusOr<ImageContent> FromProto(const v1::ImageContent& value,
                                 std::string_view path = "image");
StatusOr<MachineType> FromProto(const v1::Machine& value,
                                std::string_view path = "machine");
StatusOr<Package> FromProto(const v1::Package& value,
                            std::string_view path = "package");
StatusOr<Runtime> FromProto(const v1::Runtime& value,
                            std::string_view path = "runtime");
// "sha256:" and 64 lower-case hex digits.
bool IsPackageDigest(std::string_view digest);

// ---- What became of it -----------------------------------------------------
v1::Cause ToProto(const Cause& value);
v1::ExitStatus ToProto(const ExitStatus& value);
v1::PhaseSeconds ToProto(const PhaseSeconds& value);
v1::Straggler ToProto(const Straggler& value);
v1::RankProgress ToProto(const RankProgress& value);
v1::Usage ToProto(const Usage& value);
v1::RankStatus ToProto(const RankStatus& value);
v1::TaskStatus ToProto(const TaskStatus& value);
v1::TaskPreparation ToProto(const TaskPreparation& value);
v1::WorkFile ToProto(const WorkFile& value);
v1::WorkDirectory ToProto(const WorkDirectory& value);
v1::OutputFile ToProto(const OutputFile& value);
v1::Checkpoint ToProto(const Checkpoint& value);
v1::Attempt ToProto(const Attempt& value);
v1::Event ToProto(const Event& value);
v1::Bill ToProto(const Bill& value);
v1::Directive ToProto(const Directive& value);
v1::LineageEntry ToProto(const LineageEntry& value);
v1::RestoreTarget ToProto(const RestoreTarget& value);
StatusOr<Cause> FromProto(const v1::Cause& value,
                          std::string_view path = "cause");
StatusOr<ExitStatus> FromProto(const v1::ExitStatus& value,
                               std::string_view path = "exit");
StatusOr<PhaseSeconds> FromProto(const v1::PhaseSeconds& value,
                                 std::string_view path = "phases");
StatusOr<Straggler> FromProto(const v1::Straggler& value,
                              std::string_view path = "straggler");
StatusOr<RankProgress> FromProto(const v1::RankProgress& value,
                                 std::string_view path = "progress");
StatusOr<Usage> FromProto(const v1::Usage& value,
                          std::string_view path = "usage");
StatusOr<RankStatus> FromProto(const v1::RankStatus& value,
                               std::string_view path = "rank");
StatusOr<TaskStatus> FromProto(const v1::TaskStatus& value,
                               std::string_view path = "task");
StatusOr<TaskPreparation> FromProto(const v1::TaskPreparation& value,
                                    std::string_view path = "preparation");
StatusOr<WorkFile> FromProto(const v1::WorkFile& value,
                             std::string_view path = "file");
// At most kMaxWorkEntries entries.
StatusOr<WorkDirectory> FromProto(const v1::WorkDirectory& value,
                                  std::string_view path = "work");
StatusOr<OutputFile> FromProto(const v1::OutputFile& value,
                               std::string_view path = "output");
StatusOr<Checkpoint> FromProto(const v1::Checkpoint& value,
                               std::string_view path = "checkpoint");
StatusOr<Attempt> FromProto(const v1::Attempt& value,
                            std::string_view path = "attempt");
StatusOr<Event> FromProto(const v1::Event& value,
                          std::string_view path = "event");
StatusOr<Bill> FromProto(const v1::Bill& value, std::string_view path = "bill");
StatusOr<Directive> FromProto(const v1::Directive& value,
                              std::string_view path = "directive");
StatusOr<LineageEntry> FromProto(const v1::LineageEntry& value,
                                 std::string_view path = "lineage");
StatusOr<RestoreTarget> FromProto(const v1::RestoreTarget& value,
                                  std::string_view path = "restore");

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_WIRE_VALUE_WIRE_H_
