// One list of fields for both directions of a record: a template that calls
// RecordWriter or RecordReader with each member, in the order of the bytes.
// The form of a field is that of its member's type, as bytes.h says.
#ifndef LOCKSTEP_WORKER_TASK_RECORD_FIELDS_H_
#define LOCKSTEP_WORKER_TASK_RECORD_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/task/bytes.h"

namespace lockstep::worker::task {

class RecordWriter {
 public:
  void operator()(bool v) { bytes_.Bool(v); }
  void operator()(uint32_t v) { bytes_.U32(v); }
  void operator()(uint64_t v) { bytes_.U64(v); }
  void operator()(int32_t v) { bytes_.I32(v); }
  void operator()(int64_t v) { bytes_.I64(v); }
  // At most `limit` bytes are read. Text is cut to them, other strings are not.
  void operator()(const std::string& v, size_t /*limit*/) { bytes_.Str(v); }
  void Text(std::string_view v, size_t limit) {
    bytes_.Str(v.substr(0, limit));
  }
  void operator()(const std::vector<std::string>& v, size_t /*most*/,
                  size_t /*limit*/) {
    bytes_.Strs(v);
  }
  void operator()(const std::vector<uint32_t>& v, size_t /*most*/) {
    bytes_.U32s(v);
  }
  // From 1 to `last`.
  template <typename E>
  void Enum(E v, E /*last*/) {
    bytes_.U8(static_cast<uint8_t>(v));
  }
  // A process id is not negative.
  void Pid(int32_t v) { bytes_.I32(v); }

  std::string Take() { return bytes_.Take(); }

 private:
  ByteWriter bytes_;
};

class RecordReader {
 public:
  explicit RecordReader(std::string_view bytes) : bytes_(bytes) {}

  void operator()(bool& v) { v = bytes_.Bool(); }
  void operator()(uint32_t& v) { v = bytes_.U32(); }
  void operator()(uint64_t& v) { v = bytes_.U64(); }
  void operator()(int32_t& v) { v = bytes_.I32(); }
  void operator()(int64_t& v) { v = bytes_.I64(); }
  void operator()(std::string& v, size_t limit) { v = bytes_.Str(limit); }
  void Text(std::string& v, size_t limit) { v = bytes_.Str(limit); }
  void operator()(std::vector<std::string>& v, size_t most, size_t limit) {
    v = bytes_.Strs(most, limit);
  }
  void operator()(std::vector<uint32_t>& v, size_t most) {
    v = bytes_.U32s(most);
  }
  template <typename E>
  void Enum(E& v, E last) {
    const uint8_t number = bytes_.U8();
    in_range_ &= number >= 1 && number <= static_cast<uint8_t>(last);
    v = static_cast<E>(number);
  }
  void Pid(int32_t& v) {
    v = bytes_.I32();
    in_range_ &= v >= 0;
  }

  // Every field could be, and no byte is left over.
  bool Complete() const { return in_range_ && bytes_.AtEnd(); }

 private:
  ByteReader bytes_;
  bool in_range_ = true;
};

}  // namespace lockstep::worker::task

#endif  // LOCKSTEP_WORKER_TASK_RECORD_FIELDS_H_
