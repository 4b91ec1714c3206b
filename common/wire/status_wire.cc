// What became of a job: causes, exits, attempts, checkpoints, bills.
#include "common/wire/fields.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr size_t kMaxTasks = 65536;

void WriteHow(const ExitStatus& from, v1::ExitStatus* to) {
  switch (from.how) {
    case ExitStatus::How::kCode:
      to->set_code(from.value);
      break;
    case ExitStatus::How::kSignal:
      to->set_signal(from.value);
      break;
    case ExitStatus::How::kExecErrno:
      to->set_exec_errno(from.value);
      break;
  }
}

void ReadHow(const v1::ExitStatus& from, ExitStatus* to, FieldChecker* check) {
  switch (from.how_case()) {
    case v1::ExitStatus::kCode:
      to->how = ExitStatus::How::kCode;
      to->value = from.code();
      check->Range("code", from.code(), 0, 255);
      break;
    case v1::ExitStatus::kSignal:
      to->how = ExitStatus::How::kSignal;
      to->value = from.signal();
      check->Range("signal", from.signal(), 1, 64);
      break;
    case v1::ExitStatus::kExecErrno:
      to->how = ExitStatus::How::kExecErrno;
      to->value = from.exec_errno();
      check->Range("exec_errno", from.exec_errno(), 0, 4095);
      break;
    case v1::ExitStatus::HOW_NOT_SET:
      check->Fail("", "says neither code, signal nor exec_errno");
      break;
  }
}

void ReadTarget(const v1::RestoreTarget& from, RestoreTarget* to,
                FieldChecker* check) {
  switch (from.target_case()) {
    case v1::RestoreTarget::kStep:
      check->Range("step", from.step(), 1, kMaxExact);
      to->step = from.step();
      break;
    case v1::RestoreTarget::kFromStart:
      check->Require(from.from_start(), "from_start", "must be true");
      break;
    case v1::RestoreTarget::TARGET_NOT_SET:
      check->Fail("", "neither a step nor from_start is given");
      break;
  }
}

}  // namespace

LOCKSTEP_FIELDS(Cause, v1::Cause) {
  LOCKSTEP_FIELD(reason);
  LOCKSTEP_FIELD(message, Bytes(kMaxReportText));
}

LOCKSTEP_FIELDS(ExitStatus, v1::ExitStatus) {
  v.OnWrite(WriteHow);
  v.OnRead(ReadHow);
  LOCKSTEP_FIELD(message, Bytes(kMaxReportText));
  LOCKSTEP_FIELD(location, Bytes(kMaxReportPath));
  LOCKSTEP_FIELD(reason);
  LOCKSTEP_FIELD(end_time);
  LOCKSTEP_FIELD(victim);
  LOCKSTEP_FIELD(out_of_memory);
}

LOCKSTEP_FIELDS(Checkpoint, v1::Checkpoint) {
  LOCKSTEP_FIELD(step, Range(0, kMaxExact));
  LOCKSTEP_FIELD(generation);
  LOCKSTEP_FIELD(path, Bytes(kMaxReportPath));
  LOCKSTEP_FIELD(bytes, kCounter);
  LOCKSTEP_FIELD(time);
}

LOCKSTEP_FIELDS(Attempt, v1::Attempt) {
  LOCKSTEP_FIELD(ordinal, kCounter);
  LOCKSTEP_FIELD(generation);
  LOCKSTEP_FIELD(start_time);
  LOCKSTEP_FIELD(end_time);
  LOCKSTEP_FIELD(end_cause);
  LOCKSTEP_FIELD(resumed_step, Range(-1, kMaxExact));
  LOCKSTEP_FIELD(tasks, AtMost(kMaxTasks));
}

LOCKSTEP_FIELDS(InPlaceRecovery, v1::InPlaceRecovery) {
  LOCKSTEP_FIELD(generation);
  LOCKSTEP_FIELD(number);
  LOCKSTEP_FIELD(start_time);
  LOCKSTEP_FIELD(end_time);
  LOCKSTEP_FIELD(cause);
  LOCKSTEP_FIELD(replaced_ranks, AtMost(kMaxRanks), Each(kRank));
  LOCKSTEP_FIELD(away_ranks, AtMost(kMaxRanks), Each(kRank));
  LOCKSTEP_FIELD(returned_ranks, AtMost(kMaxRanks), Each(kRank));
  LOCKSTEP_FIELD(step, Range(-1, kMaxExact));
}

LOCKSTEP_FIELDS(Event, v1::Event) {
  LOCKSTEP_FIELD(time);
  LOCKSTEP_FIELD(generation);
  LOCKSTEP_FIELD(reason);
  LOCKSTEP_FIELD(message, Bytes(kMaxReportText));
}

LOCKSTEP_FIELDS(Bill, v1::Bill) {
  LOCKSTEP_FIELD(core_seconds, Number(0, 1e15));
  LOCKSTEP_FIELD(gpu_seconds, Number(0, 1e15));
  LOCKSTEP_FIELD(cost, Number(0, kHugeFigure));
  LOCKSTEP_FIELD(currency, Text(32));
  LOCKSTEP_FIELD(ml_units, Number(0, kHugeFigure));
}

LOCKSTEP_FIELDS(Directive, v1::Directive) {
  LOCKSTEP_FIELD(id, Range(1, 4095));
  LOCKSTEP_FIELD(kind);
}

LOCKSTEP_FIELDS(Fence, v1::Fence) {
  LOCKSTEP_FIELD(after);
  LOCKSTEP_FIELD(neighbours_count);
}

LOCKSTEP_FIELDS(RestoreTarget, v1::RestoreTarget) {
  v.OnWrite([](const RestoreTarget& from, v1::RestoreTarget* to) {
    if (from.step) {
      to->set_step(*from.step);
    } else {
      to->set_from_start(true);
    }
  });
  v.OnRead(ReadTarget);
}

LOCKSTEP_FIELDS(LineageEntry, v1::LineageEntry) {
  LOCKSTEP_FIELD(generation);
  LOCKSTEP_FIELD(start_step, Range(LineageEntry::kNotSaid, kMaxExact));
}

}  // namespace lockstep
