// What a worker daemon says.
#include "common/wire/worker_wire.h"

#include "common/base/host_port.h"
#include "common/model/limits.h"
#include "common/model/names.h"
#include "common/wire/fields.h"
#include "common/wire/protocol_version.h"

namespace lockstep {
namespace {

constexpr auto kPort = Range(1, 65535);
constexpr auto kHostPort =
    Matching([](const std::string& text) { return ParseHostPort(text).ok(); },
             " is not host:port");

void ReadWork(const v1::GangStatus& from, GangStatus* to, FieldChecker*) {
  for (const v1::WorkDirectory& message : from.work()) {
    auto work = FromProto(message);
    // For people only: a wrong one must not cost the rest of the report.
    if (!work.ok() || from.work_size() > kMaxRanks) return to->work.clear();
    to->work.push_back(*std::move(work));
  }
}

// The fields that all three messages of a rendezvous have.
template <typename V>
void EntryOf(V& v) {
  LOCKSTEP_FIELD(job, kJobName);
  LOCKSTEP_FIELD(generation, kPositive);
  LOCKSTEP_FIELD(key, Bytes(kMaxWireKey));
  v.Rule([](RendezvousEntry* entry, FieldChecker* check) {
    check->Require(!entry->key.empty(), "key", "is empty");
  });
}

// The fields of a RankStatus that a heartbeat has.
template <typename V>
void ReadingsOf(V& v) {
  LOCKSTEP_FIELD(rank, kRank);
  LOCKSTEP_FIELD(progress);
  LOCKSTEP_FIELD(usage);
}

void WriteReadings(const GangProgress& from, v1::GangProgress* to) {
  for (const RankStatus& rank : from.ranks) {
    MessageWriter<RankStatus, v1::RankStatus> v(rank, to->add_ranks());
    ReadingsOf(v);
  }
}

void ReadReadings(const v1::GangProgress& from, GangProgress* to,
                  FieldChecker* check) {
  check->Count("ranks", static_cast<size_t>(from.ranks_size()), kMaxRanks);
  for (int i = 0; check->ok() && i < from.ranks_size(); ++i) {
    FieldChecker at(check, "ranks", i);
    MessageReader<RankStatus, v1::RankStatus> v(from.ranks(i),
                                                &to->ranks.emplace_back(), &at);
    ReadingsOf(v);
  }
}

}  // namespace

LOCKSTEP_FIELDS(Incarnation, v1::Incarnation) {
  LOCKSTEP_FIELD(counter);
  LOCKSTEP_FIELD(nonce);
}

LOCKSTEP_FIELDS(StorePoint, v1::StorePoint) {
  LOCKSTEP_FIELD(history, kHistory);
  LOCKSTEP_FIELD(epoch);
  LOCKSTEP_FIELD(version, Range(0, kMaxVersion));
  LOCKSTEP_FIELD(epoch_id, EmptyOr(kHistory));
}

LOCKSTEP_FIELDS(Registration, v1::Register) {
  LOCKSTEP_FIELD_AS(node.name, node, kNodeName);
  LOCKSTEP_FIELD_AS(node.incarnation, incarnation);
  LOCKSTEP_FIELD_AS(node.boot_id, boot_id, Text(64));
  LOCKSTEP_FIELD_AS(node.hostname, hostname, Text(255));
  LOCKSTEP_FIELD_AS(node.version, version, Text(128));
  LOCKSTEP_FIELD_AS(node.address, address, kIpAddress);
  LOCKSTEP_FIELD_AS(node.http_address, http_address, Text(300),
                    EmptyOr(kHostPort));
  LOCKSTEP_FIELD_AS(node.http_tls, http_tls);
  LOCKSTEP_FIELD_AS(node.capacity, capacity);
  LOCKSTEP_FIELD_AS(node.gpus, gpus, AtMost(4096));
  LOCKSTEP_FIELD_AS(node.pool, pool,
                    EmptyOr(Matching(IsPoolName, " is not [a-z0-9-]{1,63}")));
  LOCKSTEP_FIELD(gangs, AtMost(kMaxGangs));
  LOCKSTEP_FIELD_AS(node.limits_enforced, limits_enforced);
  LOCKSTEP_FIELD_AS(node.limits_message, limits_message, Bytes(kMaxReportText));
  LOCKSTEP_FIELD_AS(node.container_engine, container_engine, Text(128));
  LOCKSTEP_FIELD_AS(node.certificate_end_time, certificate_end_time);
  LOCKSTEP_FIELD(work_jobs, AtMost(kMaxWorkJobs), Each(kUid));
  LOCKSTEP_FIELD(obeyed);
  LOCKSTEP_FIELD(probe_port, Range(0, 65535));
  LOCKSTEP_FIELD(reclaims, AtMost(4096));
  LOCKSTEP_FIELD_AS(node.checks_gpus, checks_gpus);
  v.OnWrite([](const Registration&, v1::Register* to) {
    to->set_protocol(kWorkerProtocol);
  });
  v.Rule([](Registration* registration, FieldChecker* check) {
    NodeInfo& node = registration->node;
    check->Require(node.incarnation.counter > 0, "incarnation.counter",
                   "must be 1 or more");
    if (node.pool.empty()) node.pool = NodeInfo().pool;
  });
}

LOCKSTEP_FIELDS(RankEvent, v1::RankEvent) {
  LOCKSTEP_FIELD(number, Range(1, UINT32_MAX));
  LOCKSTEP_FIELD(rank, kRank);
  LOCKSTEP_FIELD(time);
  LOCKSTEP_FIELD(reason);
  LOCKSTEP_FIELD(message, Bytes(kMaxReportText));
}

LOCKSTEP_FIELDS(LostPeer, v1::LostPeer) {
  LOCKSTEP_FIELD(rank, kRank);
  LOCKSTEP_FIELD(peer, kRank);
  LOCKSTEP_FIELD(error, Bytes(512));
}

LOCKSTEP_FIELDS(GangStatus, v1::GangStatus) {
  LOCKSTEP_FIELD(job, kJobName);
  LOCKSTEP_FIELD(generation, kPositive);
  LOCKSTEP_FIELD(job_uid, kUid);
  LOCKSTEP_FIELD(phase);
  LOCKSTEP_FIELD(refusal, OmitDefault());
  LOCKSTEP_FIELD(ports, AtMost(kMaxRanks), Each(kPort));
  LOCKSTEP_FIELD(master_port, Range(0, 65535));
  LOCKSTEP_FIELD(ranks, AtMost(kMaxRanks));
  LOCKSTEP_FIELD(checkpoint);
  LOCKSTEP_FIELD(artifacts, AtMost(kMaxArtifacts),
                 Entries(Text(64), Bytes(kMaxReportPath)));
  LOCKSTEP_FIELD(events, AtMost(kMaxGangEvents));
  LOCKSTEP_FIELD(resumed_step, Range(-1, kMaxExact));
  LOCKSTEP_FIELD(directive_done, Range(0, 4095));
  LOCKSTEP_FIELD(evidence_done);
  LOCKSTEP_FIELD(preparations, AtMost(kMaxRanks));
  LOCKSTEP_FIELD(service_ports, AtMost(256), Entries(Text(64), kPort));
  LOCKSTEP_FIELD(outputs, AtMost(kMaxOutputs));
  LOCKSTEP_FIELD(images, AtMost(kMaxImages));
  LOCKSTEP_FIELD(reduction_plan, Text(kMaxReductionPlan));
  LOCKSTEP_FIELD(output_identity, Text(kMaxOutputIdentity));
  v.OnWrite([](const GangStatus& from, v1::GangStatus* to) {
    for (const WorkDirectory& work : from.work) *to->add_work() = ToProto(work);
  });
  v.OnRead(ReadWork);
  LOCKSTEP_FIELD(lost_peers, AtMost(kMaxRanks));
  LOCKSTEP_FIELD(fence);
  v.Rule([](GangStatus* status, FieldChecker* check) {
    for (const ImageContent& image : status->images) {
      check->Require(!image.id.empty(), "images", "has no id");
    }
  });
}

LOCKSTEP_FIELDS(GangProgress, v1::GangProgress) {
  LOCKSTEP_FIELD(job, kJobName);
  LOCKSTEP_FIELD(generation, kPositive);
  v.OnWrite(WriteReadings);
  v.OnRead(ReadReadings);
}

LOCKSTEP_FIELDS(GpuError, v1::GpuError) {
  LOCKSTEP_FIELD(index, Range(0, 4095));
  LOCKSTEP_FIELD(xid, Range(0, 100'000));
}

LOCKSTEP_FIELDS(NodeHeartbeat, v1::Heartbeat) {
  LOCKSTEP_FIELD(sequence);
  LOCKSTEP_FIELD(gangs, AtMost(kMaxGangs));
  LOCKSTEP_FIELD_AS(readings.cpu_utilization, cpu_utilization, Number(0, 1));
  LOCKSTEP_FIELD_AS(readings.memory_available_bytes, memory_available_bytes,
                    kCounter);
  LOCKSTEP_FIELD_AS(readings.gpus, gpus, AtMost(4096));
  LOCKSTEP_FIELD_AS(readings.send_time, send_time);
  LOCKSTEP_FIELD_AS(readings.round_trip, round_trip);
  LOCKSTEP_FIELD_AS(readings.gpu_errors, gpu_errors, AtMost(kMaxGpuErrors));
  LOCKSTEP_FIELD_AS(readings.reclaims, reclaims, AtMost(4096));
  LOCKSTEP_FIELD_AS(readings.stuck_processes, stuck_processes,
                    AtMost(kMaxStuckProcesses));
}

LOCKSTEP_FIELDS(LogPiece, v1::LogChunk) {
  LOCKSTEP_FIELD(job, kJobName);
  LOCKSTEP_FIELD(generation, kPositive);
  LOCKSTEP_FIELD(job_uid, kUid);
  LOCKSTEP_FIELD(rank, kRank);
  LOCKSTEP_FIELD(offset);
  LOCKSTEP_FIELD(data, AtMost(kMaxLogChunk));
  LOCKSTEP_FIELD(end);
  v.Rule([](LogPiece* piece, FieldChecker* check) {
    check->Require(piece->offset <= uint64_t{1} << 60, "offset",
                   "is larger than any log");
  });
}

LOCKSTEP_FIELDS(RendezvousEntry, v1::RendezvousPut) {
  EntryOf(v);
  LOCKSTEP_FIELD(value, AtMost(kMaxWireValue));
}

LOCKSTEP_FIELDS(RendezvousEntry, v1::RendezvousGet) { EntryOf(v); }

LOCKSTEP_FIELDS(RendezvousEntry, v1::RendezvousValue) {
  EntryOf(v);
  LOCKSTEP_FIELD(value, AtMost(kMaxWireValue));
}

}  // namespace lockstep
