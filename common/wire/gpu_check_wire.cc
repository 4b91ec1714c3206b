#include "common/wire/gpu_check_wire.h"

#include "common/wire/fields.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

constexpr int kMaxCheckCode = 16;  // Of google.rpc.Code.
constexpr size_t kMostChecked = 4096;
constexpr auto kCheckedGpu = Range(0, 4095);
constexpr auto kCheckText = Text(kMaxCheckText);

}  // namespace

LOCKSTEP_FIELDS(GpuCheckPart, v1::GpuCheckPart) {
  LOCKSTEP_FIELD(name, Text(32));
  LOCKSTEP_FIELD(value, Number(0, 1e18));
  LOCKSTEP_FIELD(unit, Text(16));
  LOCKSTEP_FIELD(failure, kCheckText);
  LOCKSTEP_FIELD(skipped, kCheckText);
}

LOCKSTEP_FIELDS(GpuCheck, v1::GpuCheck) {
  LOCKSTEP_FIELD(index, kCheckedGpu);
  LOCKSTEP_FIELD(uuid, Text(128));
  LOCKSTEP_FIELD(time);
  LOCKSTEP_FIELD(took);
  LOCKSTEP_FIELD(failure, kCheckText);
  LOCKSTEP_FIELD(parts, AtMost(kMaxCheckParts));
}

LOCKSTEP_FIELDS(GpuCheckOrder, v1::GpuCheckRequest) {
  LOCKSTEP_FIELD(id);
  LOCKSTEP_FIELD(gpus, AtMost(kMostChecked), Each(kCheckedGpu));
  LOCKSTEP_FIELD(within);
  LOCKSTEP_FIELD(partner, kCheckedGpu);
  v.Rule([](GpuCheckOrder* order, FieldChecker* check) {
    check->Require(order->within <= kMaxGpuCheckTime, "within",
                   "must be at most 10 min");
  });
}

LOCKSTEP_FIELDS(GpuCheckAnswer, v1::GpuCheckReply) {
  LOCKSTEP_FIELD(id);
  LOCKSTEP_FIELD(checks, AtMost(kMostChecked));
  v.OnWrite([](const GpuCheckAnswer& from, v1::GpuCheckReply* to) {
    if (from.status.ok()) return;
    to->set_code(static_cast<int>(from.status.code()));
    to->set_message(std::string(Message(from.status)));
  });
  v.OnRead([](const v1::GpuCheckReply& from, GpuCheckAnswer* to,
              FieldChecker* c) {
    c->Range("code", from.code(), 0, kMaxCheckCode);
    c->Text("message", from.message(), kMaxReportText);
    if (!c->ok() || from.code() == 0) return;
    to->status = Status(static_cast<StatusCode>(from.code()), from.message());
  });
}

}  // namespace lockstep
