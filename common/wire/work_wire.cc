// Working directories of tasks: what they hold, and how parts of them are asked
// for.
#include "common/wire/fields.h"
#include "common/wire/worker_wire.h"

namespace lockstep {
namespace {

constexpr int kMaxCode = 16;  // Of google.rpc.Code.

}  // namespace

LOCKSTEP_FIELDS(WorkFile, v1::WorkFile) {
  LOCKSTEP_FIELD(path, Bytes(kMaxReportPath));
  LOCKSTEP_FIELD(bytes, kCounter);
  LOCKSTEP_FIELD(modify_time);
  LOCKSTEP_FIELD(directory);
}

LOCKSTEP_FIELDS(WorkDirectory, v1::WorkDirectory) {
  LOCKSTEP_FIELD(files, kCounter);
  LOCKSTEP_FIELD(bytes, kCounter);
  LOCKSTEP_FIELD(entries, AtMost(kMaxWorkEntries));
  LOCKSTEP_FIELD(truncated);
}

LOCKSTEP_FIELDS(FileQuery::Range, v1::FileRequest::Range) {
  LOCKSTEP_FIELD(offset, kCounter);
  LOCKSTEP_FIELD(length, Range(1, kMaxFileChunk));
}

LOCKSTEP_FIELDS(FileQuery, v1::FileRequest) {
  LOCKSTEP_FIELD(id);
  LOCKSTEP_FIELD(job, kJobName);
  LOCKSTEP_FIELD(job_uid, kUid);
  LOCKSTEP_FIELD_AS(type, task_type);
  LOCKSTEP_FIELD_AS(index, task_index, kRank);
  LOCKSTEP_FIELD(path, Bytes(kMaxReportPath));
  LOCKSTEP_FIELD(range);
}

LOCKSTEP_FIELDS(FileAnswer, v1::FileReply) {
  LOCKSTEP_FIELD(id);
  LOCKSTEP_FIELD(entries, AtMost(kMaxListedFiles));
  LOCKSTEP_FIELD(truncated);
  LOCKSTEP_FIELD(data, AtMost(kMaxFileChunk));
  LOCKSTEP_FIELD(size, kCounter);
  v.OnWrite([](const FileAnswer& from, v1::FileReply* to) {
    if (from.status.ok()) return;
    to->Clear();
    to->set_id(from.id);
    to->set_code(static_cast<int>(from.status.code()));
    to->set_message(std::string(Message(from.status)));
  });
  v.OnRead([](const v1::FileReply& from, FileAnswer* to, FieldChecker* check) {
    check->Range("code", from.code(), 0, kMaxCode);
    check->Bytes("message", from.message(), kMaxReportText);
    if (!check->ok() || from.code() == 0) return;
    *to = FileAnswer();
    to->id = from.id();
    to->status = Status(static_cast<StatusCode>(from.code()), from.message());
  });
}

}  // namespace lockstep
