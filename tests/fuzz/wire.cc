// Every message of the API and of the worker stream, as its proto and then as
// a value: what is accepted can be sent on, and is then accepted again.
#include "common/wire/evidence_wire.h"
#include "common/wire/gpu_check_wire.h"
#include "common/wire/job_wire.h"
#include "common/wire/worker_wire.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep {
namespace {

using fuzz::Require;

template <typename Proto>
void Convert(std::string_view bytes) {
  Proto proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return;
  }
  const auto value = FromProto(proto);
  if (!value.ok()) {
    Require(value.status().code() == StatusCode::kInvalidArgument,
            "a bad message is INVALID_ARGUMENT");
    Require(Message(value.status()).size() < 2048, "a refusal is short");
    return;
  }
  const auto again = FromProto(Proto(ToProto(*value)));
  Require(again.ok() && *again == *value, "a value survives the wire");
}

template <typename Proto, typename Encode>
void ConvertRendezvous(std::string_view bytes, const Encode& encode) {
  Proto proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return;
  }
  const auto value = FromProto(proto);
  if (!value.ok()) return;
  const auto again = FromProto(encode(*value));
  Require(again.ok() && *again == *value, "a value survives the wire");
}

void ConvertJobSpec(std::string_view bytes) {
  v1::JobSpec proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return;
  }
  const auto spec = FromProto(proto);
  if (!spec.ok()) return;
  const auto again = FromProto(ToProto(*spec));
  Require(again.ok() && *again == *spec, "a spec survives the wire");
}

using Converter = void (*)(std::string_view);
// Their order is part of the kept inputs: add at the end.
constexpr Converter kConverters[] = {
    ConvertJobSpec,
    Convert<v1::Register>,
    Convert<v1::GangStatus>,
    Convert<v1::Heartbeat>,
    Convert<v1::Welcome>,
    Convert<v1::LocalTask>,
    Convert<v1::GangSpec>,
    Convert<v1::Assignment>,
    Convert<v1::LogChunk>,
    Convert<v1::LogAck>,
    [](std::string_view bytes) {
      ConvertRendezvous<v1::RendezvousPut>(bytes, ToRendezvousPut);
    },
    [](std::string_view bytes) {
      ConvertRendezvous<v1::RendezvousGet>(bytes, ToRendezvousGet);
    },
    [](std::string_view bytes) {
      ConvertRendezvous<v1::RendezvousValue>(bytes, ToRendezvousValue);
    },
    Convert<v1::Resources>,
    Convert<v1::GpuUsage>,
    Convert<v1::CheckpointPolicy>,
    Convert<v1::TaskSpec>,
    Convert<v1::ClusterSpec>,
    Convert<v1::Cause>,
    Convert<v1::ExitStatus>,
    Convert<v1::RankProgress>,
    Convert<v1::Usage>,
    Convert<v1::RankStatus>,
    Convert<v1::TaskStatus>,
    Convert<v1::Checkpoint>,
    Convert<v1::Attempt>,
    Convert<v1::Event>,
    Convert<v1::Bill>,
    Convert<v1::Directive>,
    Convert<v1::LineageEntry>,
    Convert<v1::RankEvidence>,
    Convert<v1::EvidenceRequest>,
    Convert<v1::GpuCheckRequest>,
    Convert<v1::GpuCheck>,
};

}  // namespace
}  // namespace lockstep

LOCKSTEP_FUZZ_TARGET(wire)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  std::string_view bytes = fuzz::View(data, size);
  const size_t which = fuzz::TakeChoice(&bytes) % std::size(kConverters);
  kConverters[which](bytes);
  return 0;
}
