// Working directories of tasks: what they hold, and how parts of them are asked
// for.
#include "common/wire/field_checker.h"
#include "common/wire/fill_repeated.h"
#include "common/wire/worker_wire.h"

namespace lockstep {
namespace {

constexpr int kMaxCode = 16;  // Of google.rpc.Code.

}  // namespace

v1::WorkFile ToProto(const WorkFile& value) {
  v1::WorkFile out;
  out.set_path(value.path);
  out.set_bytes(value.bytes);
  if (value.modify_time != WallTime{}) {
    *out.mutable_modify_time() = ToProto(value.modify_time);
  }
  out.set_directory(value.directory);
  return out;
}

StatusOr<WorkFile> FromProto(const v1::WorkFile& value, std::string_view path) {
  FieldChecker check(path);
  WorkFile out;
  check.Bytes("path", value.path(), kMaxReportPath);
  check.Range("bytes", value.bytes(), 0, INT64_MAX);
  if (value.has_modify_time()) {
    check.Take(FromProto(value.modify_time(), check.At("modify_time")),
               &out.modify_time);
  }
  if (!check.ok()) return check.status();
  out.path = value.path();
  out.bytes = value.bytes();
  out.directory = value.directory();
  return out;
}

v1::WorkDirectory ToProto(const WorkDirectory& value) {
  v1::WorkDirectory out;
  out.set_files(value.files);
  out.set_bytes(value.bytes);
  FillRepeated(value.entries, out.mutable_entries());
  out.set_truncated(value.truncated);
  return out;
}

StatusOr<WorkDirectory> FromProto(const v1::WorkDirectory& value,
                                  std::string_view path) {
  FieldChecker check(path);
  WorkDirectory out;
  check.Range("files", value.files(), 0, INT64_MAX);
  check.Range("bytes", value.bytes(), 0, INT64_MAX);
  check.Count("entries", value.entries_size(), kMaxWorkEntries);
  for (int i = 0; check.ok() && i < value.entries_size(); ++i) {
    check.Take(FromProto(value.entries(i), check.At("entries", i)),
               &out.entries.emplace_back());
  }
  if (!check.ok()) return check.status();
  out.files = value.files();
  out.bytes = value.bytes();
  out.truncated = value.truncated();
  return out;
}

v1::FileRequest ToProto(const FileQuery& value) {
  v1::FileRequest out;
  out.set_id(value.id);
  out.set_job(value.job);
  out.set_job_uid(value.job_uid);
  out.set_task_type(ToProto(value.type));
  out.set_task_index(value.index);
  out.set_path(value.path);
  if (value.range) {
    out.mutable_range()->set_offset(value.range->offset);
    out.mutable_range()->set_length(value.range->length);
  }
  return out;
}

StatusOr<FileQuery> FromProto(const v1::FileRequest& value,
                              std::string_view path) {
  FieldChecker check(path);
  FileQuery out;
  check.JobName("job", value.job());
  check.Text("job_uid", value.job_uid(), 64);
  check.Take(FromProto(value.task_type(), check.At("task_type")), &out.type);
  check.Range("task_index", value.task_index(), 0, kMaxRanks - 1);
  check.Bytes("path", value.path(), kMaxReportPath);
  if (value.has_range()) {
    check.Range("range.offset", value.range().offset(), 0, INT64_MAX);
    check.Range("range.length", value.range().length(), 1, kMaxFileChunk);
    out.range = {value.range().offset(), value.range().length()};
  }
  if (!check.ok()) return check.status();
  out.id = value.id();
  out.job = value.job();
  out.job_uid = value.job_uid();
  out.index = value.task_index();
  out.path = value.path();
  return out;
}

v1::FileReply ToProto(const FileAnswer& value) {
  v1::FileReply out;
  out.set_id(value.id);
  if (!value.status.ok()) {
    out.set_code(static_cast<int>(value.status.code()));
    out.set_message(std::string(Message(value.status)));
    return out;
  }
  FillRepeated(value.entries, out.mutable_entries());
  out.set_truncated(value.truncated);
  out.set_data(value.data);
  out.set_size(value.size);
  return out;
}

StatusOr<FileAnswer> FromProto(const v1::FileReply& value,
                               std::string_view path) {
  FieldChecker check(path);
  FileAnswer out;
  check.Range("code", value.code(), 0, kMaxCode);
  check.Bytes("message", value.message(), kMaxReportText);
  check.Count("entries", value.entries_size(), kMaxListedFiles);
  for (int i = 0; check.ok() && i < value.entries_size(); ++i) {
    check.Take(FromProto(value.entries(i), check.At("entries", i)),
               &out.entries.emplace_back());
  }
  check.Count("data", value.data().size(), kMaxFileChunk);
  check.Range("size", value.size(), 0, INT64_MAX);
  if (!check.ok()) return check.status();
  out.id = value.id();
  if (value.code() != 0) {
    out.status = Status(static_cast<StatusCode>(value.code()), value.message());
    out.entries.clear();
    return out;
  }
  out.truncated = value.truncated();
  out.data = value.data();
  out.size = value.size();
  return out;
}

}  // namespace lockstep
