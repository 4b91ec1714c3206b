// Encoding of the records that worker daemon, shim and rank exchange, in files
// and on sockets of one host.
//
// Little-endian fixed-width integers; a string is its length (u32) and its
// bytes; a list is its count (u32) and its elements. A record is an envelope:
//
//   magic     8 bytes, one per kind of record
//   version   u32
//   length    u32, of the payload
//   payload
//   crc       u32, CRC32C of all bytes before it
//
// Part of a static binary with libc only, so: no Abseil, no exceptions, and
// errors are a bool and a sentence. Pure; all input is untrusted.
#ifndef LOCKSTEP_WORKER_TASK_BYTES_H_
#define LOCKSTEP_WORKER_TASK_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::worker::task {

// Limit of a record; a longer one is refused before it is read.
inline constexpr size_t kMaxRecordBytes = 16 << 20;

// CRC32C (RFC 3720, appendix B.4). Other code uses common/base/crc32c.h, which
// needs ISA-L; the shim does not have it.
uint32_t Crc32c(std::string_view data);

class ByteWriter {
 public:
  void U8(uint8_t v) { out_.push_back(static_cast<char>(v)); }
  void U32(uint32_t v) { Fixed(v, 4); }
  void U64(uint64_t v) { Fixed(v, 8); }
  void I32(int32_t v) { U32(static_cast<uint32_t>(v)); }
  void I64(int64_t v) { U64(static_cast<uint64_t>(v)); }
  void Bool(bool v) { U8(v ? 1 : 0); }
  void Str(std::string_view v);
  void Strs(const std::vector<std::string>& v);
  void U32s(const std::vector<uint32_t>& v);
  std::string Take() { return std::move(out_); }

 private:
  void Fixed(uint64_t v, int bytes);
  std::string out_;
};

// Reads the output of ByteWriter. After the first read past the end, or of an
// invalid value, ok() is false and every later read returns zeros.
class ByteReader {
 public:
  explicit ByteReader(std::string_view data) : data_(data) {}
  uint8_t U8() { return static_cast<uint8_t>(Fixed(1)); }
  uint32_t U32() { return static_cast<uint32_t>(Fixed(4)); }
  uint64_t U64() { return Fixed(8); }
  int32_t I32() { return static_cast<int32_t>(U32()); }
  int64_t I64() { return static_cast<int64_t>(U64()); }
  bool Bool();
  // Longer than `limit` bytes is an error.
  std::string Str(size_t limit);
  std::vector<std::string> Strs(size_t max_count, size_t limit);
  std::vector<uint32_t> U32s(size_t max_count);
  bool ok() const { return ok_; }
  // Returns whether everything was read.
  bool AtEnd() const { return ok_ && data_.empty(); }

 private:
  uint64_t Fixed(int bytes);
  std::string_view data_;
  bool ok_ = true;
};

// Puts `payload` in an envelope. `magic` has 8 bytes.
std::string Seal(std::string_view magic, uint32_t version,
                 std::string_view payload);

// Returns the payload if `bytes` are exactly one envelope of version `version`.
// `what` names the record in *error.
bool Unseal(std::string_view what, std::string_view magic, uint32_t version,
            std::string_view bytes, std::string_view* payload,
            std::string* error);

}  // namespace lockstep::worker::task

#endif  // LOCKSTEP_WORKER_TASK_BYTES_H_
