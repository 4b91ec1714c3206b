// What became of a job: causes, exits, attempts, checkpoints, bills.
#include "common/wire/field_checker.h"
#include "common/wire/fill_repeated.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr size_t kMaxTasks = 65536;

}  // namespace

v1::Cause ToProto(const Cause& value) {
  v1::Cause out;
  out.set_reason(ToProto(value.reason));
  out.set_message(value.message);
  return out;
}

StatusOr<Cause> FromProto(const v1::Cause& value, std::string_view path) {
  FieldChecker check(path);
  Cause out;
  check.Take(FromProto(value.reason(), check.At("reason")), &out.reason);
  check.Bytes("message", value.message(), kMaxReportText);
  if (!check.ok()) return check.status();
  out.message = value.message();
  return out;
}

v1::ExitStatus ToProto(const ExitStatus& value) {
  v1::ExitStatus out;
  switch (value.how) {
    case ExitStatus::How::kCode:
      out.set_code(value.value);
      break;
    case ExitStatus::How::kSignal:
      out.set_signal(value.value);
      break;
    case ExitStatus::How::kExecErrno:
      out.set_exec_errno(value.value);
      break;
  }
  out.set_message(value.message);
  if (value.end_time != WallTime{}) {
    *out.mutable_end_time() = ToProto(value.end_time);
  }
  out.set_victim(value.victim);
  out.set_out_of_memory(value.out_of_memory);
  out.set_reason(ToProto(value.reason));
  out.set_location(value.location);
  return out;
}

StatusOr<ExitStatus> FromProto(const v1::ExitStatus& value,
                               std::string_view path) {
  FieldChecker check(path);
  ExitStatus out;
  switch (value.how_case()) {
    case v1::ExitStatus::kCode:
      out.how = ExitStatus::How::kCode;
      out.value = value.code();
      check.Range("code", value.code(), 0, 255);
      break;
    case v1::ExitStatus::kSignal:
      out.how = ExitStatus::How::kSignal;
      out.value = value.signal();
      check.Range("signal", value.signal(), 1, 64);
      break;
    case v1::ExitStatus::kExecErrno:
      out.how = ExitStatus::How::kExecErrno;
      out.value = value.exec_errno();
      check.Range("exec_errno", value.exec_errno(), 0, 4095);
      break;
    case v1::ExitStatus::HOW_NOT_SET:
      check.Fail("", "says neither code, signal nor exec_errno");
      break;
  }
  check.Bytes("message", value.message(), kMaxReportText);
  check.Bytes("location", value.location(), kMaxReportPath);
  check.Take(FromProto(value.reason(), check.At("reason")), &out.reason);
  if (value.has_end_time()) {
    check.Take(FromProto(value.end_time(), check.At("end_time")),
               &out.end_time);
  }
  if (!check.ok()) return check.status();
  out.message = value.message();
  out.location = value.location();
  out.victim = value.victim();
  out.out_of_memory = value.out_of_memory();
  return out;
}

v1::Checkpoint ToProto(const Checkpoint& value) {
  v1::Checkpoint out;
  out.set_step(value.step);
  out.set_generation(value.generation);
  out.set_path(value.path);
  if (value.time != WallTime{}) *out.mutable_time() = ToProto(value.time);
  out.set_bytes(value.bytes);
  return out;
}

StatusOr<Checkpoint> FromProto(const v1::Checkpoint& value,
                               std::string_view path) {
  FieldChecker check(path);
  Checkpoint out;
  check.Range("step", value.step(), 0, kMaxExact);
  check.Bytes("path", value.path(), kMaxReportPath);
  check.Range("bytes", value.bytes(), 0, INT64_MAX);
  if (value.has_time()) {
    check.Take(FromProto(value.time(), check.At("time")), &out.time);
  }
  if (!check.ok()) return check.status();
  out.step = value.step();
  out.generation = value.generation();
  out.path = value.path();
  out.bytes = value.bytes();
  return out;
}

v1::Attempt ToProto(const Attempt& value) {
  v1::Attempt out;
  out.set_ordinal(value.ordinal);
  out.set_generation(value.generation);
  if (value.start_time != WallTime{}) {
    *out.mutable_start_time() = ToProto(value.start_time);
  }
  if (value.end_time != WallTime{}) {
    *out.mutable_end_time() = ToProto(value.end_time);
  }
  *out.mutable_end_cause() = ToProto(value.end_cause);
  if (value.resumed_step) out.set_resumed_step(*value.resumed_step);
  FillRepeated(value.tasks, out.mutable_tasks());
  return out;
}

StatusOr<Attempt> FromProto(const v1::Attempt& value, std::string_view path) {
  FieldChecker check(path);
  Attempt out;
  check.Range("ordinal", value.ordinal(), 0, INT32_MAX);
  if (value.has_start_time()) {
    check.Take(FromProto(value.start_time(), check.At("start_time")),
               &out.start_time);
  }
  if (value.has_end_time()) {
    check.Take(FromProto(value.end_time(), check.At("end_time")),
               &out.end_time);
  }
  check.Take(FromProto(value.end_cause(), check.At("end_cause")),
             &out.end_cause);
  check.Range("resumed_step", value.resumed_step(), -1, kMaxExact);
  check.Count("tasks", value.tasks_size(), kMaxTasks);
  for (int i = 0; check.ok() && i < value.tasks_size(); ++i) {
    check.Take(FromProto(value.tasks(i), check.At("tasks", i)),
               &out.tasks.emplace_back());
  }
  if (!check.ok()) return check.status();
  out.ordinal = value.ordinal();
  out.generation = value.generation();
  if (value.has_resumed_step()) out.resumed_step = value.resumed_step();
  return out;
}

v1::Event ToProto(const Event& value) {
  v1::Event out;
  *out.mutable_time() = ToProto(value.time);
  out.set_generation(value.generation);
  out.set_reason(ToProto(value.reason));
  out.set_message(value.message);
  return out;
}

StatusOr<Event> FromProto(const v1::Event& value, std::string_view path) {
  FieldChecker check(path);
  Event out;
  check.Take(FromProto(value.time(), check.At("time")), &out.time);
  check.Take(FromProto(value.reason(), check.At("reason")), &out.reason);
  check.Bytes("message", value.message(), kMaxReportText);
  if (!check.ok()) return check.status();
  out.generation = value.generation();
  out.message = value.message();
  return out;
}

v1::Bill ToProto(const Bill& value) {
  v1::Bill out;
  out.set_core_seconds(value.core_seconds);
  out.set_gpu_seconds(value.gpu_seconds);
  out.set_cost(value.cost);
  out.set_currency(value.currency);
  if (value.ml_units) out.set_ml_units(*value.ml_units);
  return out;
}

StatusOr<Bill> FromProto(const v1::Bill& value, std::string_view path) {
  FieldChecker check(path);
  check.Number("core_seconds", value.core_seconds(), 0, 1e15);
  check.Number("gpu_seconds", value.gpu_seconds(), 0, 1e15);
  check.Number("cost", value.cost(), 0, kHugeFigure);
  check.Text("currency", value.currency(), 32);
  check.Number("ml_units", value.ml_units(), 0, kHugeFigure);
  if (!check.ok()) return check.status();
  Bill out{value.core_seconds(), value.gpu_seconds(), value.cost(),
           value.currency(), std::nullopt};
  if (value.has_ml_units()) out.ml_units = value.ml_units();
  return out;
}

v1::Directive ToProto(const Directive& value) {
  v1::Directive out;
  out.set_id(value.id);
  out.set_kind(ToProto(value.kind));
  return out;
}

StatusOr<Directive> FromProto(const v1::Directive& value,
                              std::string_view path) {
  FieldChecker check(path);
  Directive out;
  check.Range("id", value.id(), 1, 4095);
  check.Take(FromProto(value.kind(), check.At("kind")), &out.kind);
  if (!check.ok()) return check.status();
  out.id = value.id();
  return out;
}

v1::RestoreTarget ToProto(const RestoreTarget& value) {
  v1::RestoreTarget out;
  if (value.step) {
    out.set_step(*value.step);
  } else {
    out.set_from_start(true);
  }
  return out;
}

StatusOr<RestoreTarget> FromProto(const v1::RestoreTarget& value,
                                  std::string_view path) {
  FieldChecker check(path);
  switch (value.target_case()) {
    case v1::RestoreTarget::kStep:
      check.Range("step", value.step(), 1, kMaxExact);
      if (!check.ok()) return check.status();
      return RestoreTarget{value.step()};
    case v1::RestoreTarget::kFromStart:
      check.Require(value.from_start(), "from_start", "must be true");
      if (!check.ok()) return check.status();
      return RestoreTarget{};
    case v1::RestoreTarget::TARGET_NOT_SET:
      break;
  }
  return InvalidArgument("{}: neither a step nor from_start is given", path);
}

v1::LineageEntry ToProto(const LineageEntry& value) {
  v1::LineageEntry out;
  out.set_generation(value.generation);
  out.set_start_step(value.start_step);
  return out;
}

StatusOr<LineageEntry> FromProto(const v1::LineageEntry& value,
                                 std::string_view path) {
  FieldChecker check(path);
  check.Range("start_step", value.start_step(), LineageEntry::kNotSaid,
              kMaxExact);
  if (!check.ok()) return check.status();
  return LineageEntry{value.generation(), value.start_step()};
}

}  // namespace lockstep
