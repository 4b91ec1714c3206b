// Times and durations.
#include <limits>

#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr int64_t kNanos = 1'000'000'000;
// The last whole second that fits a WallTime: in the year 2262.
constexpr int64_t kLastSecond = std::numeric_limits<int64_t>::max() / kNanos;

// Of a Timestamp or a Duration: it can be counted in nanoseconds.
template <typename Message>
bool Fits(const Message& message) {
  return message.seconds() >= 0 && message.seconds() < kLastSecond &&
         message.nanos() >= 0 && message.nanos() < kNanos;
}

}  // namespace

void WriteValue(const WallTime& from, google::protobuf::Timestamp* to) {
  int64_t seconds = ToUnixNanos(from) / kNanos;
  int64_t nanos = ToUnixNanos(from) % kNanos;
  if (nanos < 0) {
    nanos += kNanos;
    --seconds;
  }
  to->set_seconds(seconds);
  to->set_nanos(static_cast<int32_t>(nanos));
}

void WriteValue(const Duration& from, google::protobuf::Duration* to) {
  to->set_seconds(from.count() / kNanos);
  to->set_nanos(static_cast<int32_t>(from.count() % kNanos));
}

void ReadValue(const google::protobuf::Timestamp& from, WallTime* to,
               FieldChecker* check) {
  check->Range("seconds", from.seconds(), 0, kLastSecond - 1);
  check->Range("nanos", from.nanos(), 0, kNanos - 1);
  if (!Fits(from)) check->Fail("", "is not a time");
  if (!check->ok()) return;
  *to = FromUnixNanos(from.seconds() * kNanos + from.nanos());
}

void ReadValue(const google::protobuf::Duration& from, Duration* to,
               FieldChecker* check) {
  check->Range("seconds", from.seconds(), 0,
               kMaxDuration / std::chrono::seconds(1));
  check->Range("nanos", from.nanos(), 0, kNanos - 1);
  if (!Fits(from)) check->Fail("", "is not a duration");
  if (!check->ok()) return;
  *to = Duration(from.seconds() * kNanos + from.nanos());
}

}  // namespace lockstep
