// Enums and times. The numbers of the model's enums are the protos'.
#include <limits>

#include "common/wire/field_checker.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr int64_t kNanos = 1'000'000'000;
// The last whole second that fits a WallTime: in the year 2262.
constexpr int64_t kLastSecond = std::numeric_limits<int64_t>::max() / kNanos;

template <typename Model, typename Proto>
StatusOr<Model> FromEnum(Proto value, bool valid, std::string_view path) {
  // Value 0 is "not said", and a value of a newer version is not understood.
  if (!valid || static_cast<int>(value) == 0) {
    return InvalidArgument("{}: {} is not a value that is known here", path,
                           static_cast<int>(value));
  }
  return static_cast<Model>(value);
}

// Of a Timestamp or a Duration: it can be counted in nanoseconds.
template <typename Message>
bool Fits(const Message& message) {
  return message.seconds() >= 0 && message.seconds() < kLastSecond &&
         message.nanos() >= 0 && message.nanos() < kNanos;
}

}  // namespace

#define LOCKSTEP_ENUM_WIRE(Enum)                                        \
  v1::Enum ToProto(Enum value) { return static_cast<v1::Enum>(value); } \
  StatusOr<Enum> FromProto(v1::Enum value, std::string_view path) {     \
    return FromEnum<Enum>(value, v1::Enum##_IsValid(value), path);      \
  }
LOCKSTEP_ENUM_WIRE(JobKind)
LOCKSTEP_ENUM_WIRE(TaskType)
LOCKSTEP_ENUM_WIRE(JobState)
LOCKSTEP_ENUM_WIRE(RankState)
LOCKSTEP_ENUM_WIRE(DirectiveKind)
LOCKSTEP_ENUM_WIRE(NodeState)
LOCKSTEP_ENUM_WIRE(PackageFormat)
#undef LOCKSTEP_ENUM_WIRE

v1::EndWith ToProto(EndWith value) { return static_cast<v1::EndWith>(value); }
StatusOr<EndWith> FromProto(v1::EndWith value, std::string_view path) {
  if (value == v1::END_WITH_UNSPECIFIED) return EndWith::kUnspecified;
  return FromEnum<EndWith>(value, v1::EndWith_IsValid(value), path);
}

v1::Reason ToProto(Reason value) { return static_cast<v1::Reason>(value); }
StatusOr<Reason> FromProto(v1::Reason value, std::string_view path) {
  if (value == v1::REASON_UNSPECIFIED) return Reason::kNone;
  return FromEnum<Reason>(value, v1::Reason_IsValid(value), path);
}

google::protobuf::Timestamp ToProto(WallTime time) {
  int64_t seconds = ToUnixNanos(time) / kNanos;
  int64_t nanos = ToUnixNanos(time) % kNanos;
  if (nanos < 0) {
    nanos += kNanos;
    --seconds;
  }
  google::protobuf::Timestamp out;
  out.set_seconds(seconds);
  out.set_nanos(static_cast<int32_t>(nanos));
  return out;
}

google::protobuf::Duration ToProto(Duration duration) {
  google::protobuf::Duration out;
  out.set_seconds(duration.count() / kNanos);
  out.set_nanos(static_cast<int32_t>(duration.count() % kNanos));
  return out;
}

StatusOr<WallTime> FromProto(const google::protobuf::Timestamp& time,
                             std::string_view path) {
  FieldChecker check(path);
  check.Range("seconds", time.seconds(), 0, kLastSecond - 1);
  check.Range("nanos", time.nanos(), 0, kNanos - 1);
  if (!Fits(time)) check.Fail("", "is no time");
  if (!check.ok()) return check.status();
  return FromUnixNanos(time.seconds() * kNanos + time.nanos());
}

StatusOr<Duration> FromProto(const google::protobuf::Duration& duration,
                             std::string_view path) {
  FieldChecker check(path);
  check.Range("seconds", duration.seconds(), 0,
              kMaxDuration / std::chrono::seconds(1));
  check.Range("nanos", duration.nanos(), 0, kNanos - 1);
  if (!Fits(duration)) check.Fail("", "is no duration");
  if (!check.ok()) return check.status();
  return Duration(duration.seconds() * kNanos + duration.nanos());
}

}  // namespace lockstep
