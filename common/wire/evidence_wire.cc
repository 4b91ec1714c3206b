#include "common/wire/evidence_wire.h"

#include "common/wire/fields.h"

namespace lockstep {
namespace {

constexpr int kMaxEvidenceCode = 16;  // Of google.rpc.Code.
constexpr auto kEvidenceName = Bytes(kMaxEvidenceName);
constexpr auto kEvidenceText = Bytes(kMaxEvidenceText);
constexpr auto kReading = Number(-kHugeFigure, kHugeFigure);

}  // namespace

LOCKSTEP_FIELDS(StackFrame, v1::StackFrame) {
  LOCKSTEP_FIELD(module, kEvidenceName);
  LOCKSTEP_FIELD(function, kEvidenceName);
  LOCKSTEP_FIELD(file, kEvidenceName);
  LOCKSTEP_FIELD(line, kCounter);
  LOCKSTEP_FIELD(library);
}

LOCKSTEP_FIELDS(ThreadEvidence, v1::ThreadEvidence) {
  LOCKSTEP_FIELD(id, kCounter);
  LOCKSTEP_FIELD(name, kEvidenceName);
  LOCKSTEP_FIELD(state, Bytes(1));
  LOCKSTEP_FIELD(wait_channel, kEvidenceName);
  LOCKSTEP_FIELD(system_call, kEvidenceName);
  LOCKSTEP_FIELD(kernel_stack, kEvidenceText);
  LOCKSTEP_FIELD(main);
  LOCKSTEP_FIELD(holds_gil);
  LOCKSTEP_FIELD(frames, AtMost(kMaxEvidenceFrames));
}

LOCKSTEP_FIELDS(ProcessEvidence, v1::ProcessEvidence) {
  LOCKSTEP_FIELD(pid, kCounter);
  LOCKSTEP_FIELD(parent, kCounter);
  LOCKSTEP_FIELD(command, kEvidenceName);
  LOCKSTEP_FIELD(state, Bytes(1));
  LOCKSTEP_FIELD(cpu_seconds, Number(0, kHugeFigure));
  LOCKSTEP_FIELD(resident_bytes, kCounter);
  LOCKSTEP_FIELD(swap_bytes, kCounter);
  LOCKSTEP_FIELD(thread_count, kCounter);
  LOCKSTEP_FIELD(stack_source, kEvidenceName);
  LOCKSTEP_FIELD(stack_error, kEvidenceText);
  LOCKSTEP_FIELD(threads, AtMost(kMaxEvidenceThreads));
}

LOCKSTEP_FIELDS(SocketEvidence, v1::SocketEvidence) {
  LOCKSTEP_FIELD(protocol, kEvidenceName);
  LOCKSTEP_FIELD(local, kEvidenceName);
  LOCKSTEP_FIELD(peer, kEvidenceName);
  LOCKSTEP_FIELD(state, kEvidenceName);
  LOCKSTEP_FIELD(receive_queue, kCounter);
  LOCKSTEP_FIELD(send_queue, kCounter);
}

LOCKSTEP_FIELDS(FlightRecord, v1::FlightRecord) {
  LOCKSTEP_FIELD(group, kEvidenceName);
  LOCKSTEP_FIELD(sequence, kCounter);
  LOCKSTEP_FIELD(operation, kEvidenceName);
  LOCKSTEP_FIELD(state, kEvidenceName);
}

LOCKSTEP_FIELDS(RankEvidence, v1::RankEvidence) {
  LOCKSTEP_FIELD(rank, kRank);
  LOCKSTEP_FIELD(node, EmptyOr(kNodeName));
  LOCKSTEP_FIELD(time);
  LOCKSTEP_FIELD(took);
  LOCKSTEP_FIELD(processes, AtMost(kMaxEvidenceProcesses));
  LOCKSTEP_FIELD(sockets, AtMost(kMaxEvidenceSockets));
  LOCKSTEP_FIELD(readings, AtMost(kMaxEvidenceReadings),
                 Entries(kEvidenceName, kReading));
  LOCKSTEP_FIELD(log_lines, AtMost(kMaxEvidenceLines), Each(kEvidenceText));
  LOCKSTEP_FIELD(notes, AtMost(kMaxEvidenceNotes), Each(kEvidenceText));
  LOCKSTEP_FIELD(phase, kEvidenceName);
  LOCKSTEP_FIELD(step, Range(-1, std::numeric_limits<int64_t>::max()));
  LOCKSTEP_FIELD(ended, kEvidenceText);
  LOCKSTEP_FIELD(nccl_ras, AtMost(kMaxEvidenceLines), Each(kEvidenceText));
  LOCKSTEP_FIELD(flight_records, AtMost(kMaxFlightRecords));
}

LOCKSTEP_FIELDS(EvidenceQuery, v1::EvidenceRequest) {
  LOCKSTEP_FIELD(id);
  LOCKSTEP_FIELD(job, kJobName);
  LOCKSTEP_FIELD(generation, kPositive);
  LOCKSTEP_FIELD(ranks, AtMost(kMaxRanks), Each(kRank));
  LOCKSTEP_FIELD(stacks);
  LOCKSTEP_FIELD(log_lines, Range(0, kMaxEvidenceLines));
  LOCKSTEP_FIELD(within);
  LOCKSTEP_FIELD(kept_uid, EmptyOr(kUid));
  v.Rule([](EvidenceQuery* query, FieldChecker* check) {
    check->Require(query->within <= kMaxEvidenceTime, "within",
                   "must be at most 30 s");
  });
}

LOCKSTEP_FIELDS(EvidenceAnswer, v1::EvidenceReply) {
  LOCKSTEP_FIELD(id);
  LOCKSTEP_FIELD(evidence);
  LOCKSTEP_FIELD(last);
  v.OnWrite([](const EvidenceAnswer& from, v1::EvidenceReply* to) {
    if (from.status.ok()) return;
    to->set_code(static_cast<int>(from.status.code()));
    to->set_message(std::string(Message(from.status)));
  });
  v.OnRead([](const v1::EvidenceReply& from, EvidenceAnswer* to,
              FieldChecker* c) {
    c->Range("code", from.code(), 0, kMaxEvidenceCode);
    c->Bytes("message", from.message(), kMaxReportText);
    if (!c->ok() || from.code() == 0) return;
    to->status = Status(static_cast<StatusCode>(from.code()), from.message());
  });
}

}  // namespace lockstep
