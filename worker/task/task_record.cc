#include "worker/task/task_record.h"

#include "worker/task/bytes.h"
#include "worker/task/record_fields.h"

namespace lockstep::worker::task {
namespace {
constexpr std::string_view kTaskMagic = "LSTASKRC";
// Without a container, 1: an older daemon reads it, and its records are read.
constexpr uint32_t kPlainTaskVersion = 1;
constexpr uint32_t kContainerTaskVersion = 2;
constexpr size_t kMaxTaskPath = 4095;

template <typename F, typename Record>
void TaskFieldsOf(F& f, Record& record, bool contained) {
  f(record.job, 256);
  f(record.generation);
  f(record.rank);
  f(record.boot_id, 64);
  f.Pid(record.shim.pid);
  f(record.shim.start_time);
  f.Pid(record.process.pid);
  f(record.process.start_time);
  f(record.nonce, 64);
  f(record.socket_path, kMaxTaskPath);
  f(record.log_path, kMaxTaskPath);
  f(record.exit_record_path, kMaxTaskPath);
  f(record.page_path, kMaxTaskPath);
  f(record.cwd, kMaxTaskPath);
  f(record.ports, 65536);
  f(record.started_unix_nanos);
  if (!contained) return;
  f(record.engine, kMaxTaskPath);
  f(record.container, 256);
}

}  // namespace

std::string EncodeTaskRecord(const TaskRecord& record) {
  const bool contained = !record.container.empty();
  RecordWriter writer;
  TaskFieldsOf(writer, record, contained);
  return Seal(kTaskMagic, contained ? kContainerTaskVersion : kPlainTaskVersion,
              writer.Take());
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
  *record = TaskRecord();
  RecordReader reader(payload);
  TaskFieldsOf(reader, *record, contained);
  if (reader.Complete()) return true;
  *error = "the task record has a field out of range";
  return false;
}

}  // namespace lockstep::worker::task
