#include "worker/task/task_record.h"

#include "worker/task/bytes.h"

namespace lockstep::task {
namespace {
constexpr std::string_view kTaskMagic = "LSTASKRC";
// Without a container, 1: an older daemon reads it, and its records are read.
constexpr uint32_t kPlainTaskVersion = 1;
constexpr uint32_t kContainerTaskVersion = 2;
constexpr size_t kMaxTaskPath = 4095;
}  // namespace

std::string EncodeTaskRecord(const TaskRecord& record) {
  ByteWriter w;
  w.Str(record.job);
  w.U64(record.generation);
  w.U32(record.rank);
  w.Str(record.boot_id);
  w.I32(record.shim.pid);
  w.U64(record.shim.start_time);
  w.I32(record.process.pid);
  w.U64(record.process.start_time);
  w.Str(record.nonce);
  w.Str(record.socket_path);
  w.Str(record.log_path);
  w.Str(record.exit_record_path);
  w.Str(record.page_path);
  w.Str(record.cwd);
  w.U32s(record.ports);
  w.I64(record.started_unix_nanos);
  if (record.container.empty())
    return Seal(kTaskMagic, kPlainTaskVersion, w.Take());
  w.Str(record.engine);
  w.Str(record.container);
  return Seal(kTaskMagic, kContainerTaskVersion, w.Take());
}

bool DecodeTaskRecord(std::string_view bytes, TaskRecord* record,
                      std::string* error) {
  std::string_view payload;
  const char* what = "the task record";
  const bool contained =
      Unseal(what, kTaskMagic, kContainerTaskVersion, bytes, &payload, error);
  if (!contained &&
      !Unseal(what, kTaskMagic, kPlainTaskVersion, bytes, &payload, error)) {
    return false;
  }
  ByteReader r(payload);
  record->job = r.Str(256);
  record->generation = r.U64();
  record->rank = r.U32();
  record->boot_id = r.Str(64);
  record->shim.pid = r.I32();
  record->shim.start_time = r.U64();
  record->process.pid = r.I32();
  record->process.start_time = r.U64();
  record->nonce = r.Str(64);
  record->socket_path = r.Str(kMaxTaskPath);
  record->log_path = r.Str(kMaxTaskPath);
  record->exit_record_path = r.Str(kMaxTaskPath);
  record->page_path = r.Str(kMaxTaskPath);
  record->cwd = r.Str(kMaxTaskPath);
  record->ports = r.U32s(65536);
  record->started_unix_nanos = r.I64();
  record->engine = contained ? r.Str(kMaxTaskPath) : std::string();
  record->container = contained ? r.Str(256) : std::string();
  if (!r.AtEnd() || record->shim.pid < 0 || record->process.pid < 0) {
    *error = "the task record has a field out of range";
    return false;
  }
  return true;
}

}  // namespace lockstep::task
