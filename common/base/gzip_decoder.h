// Decompresses a stream of gzip members (RFC 1952).
#ifndef LOCKSTEP_COMMON_BASE_GZIP_DECODER_H_
#define LOCKSTEP_COMMON_BASE_GZIP_DECODER_H_

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/status.h"

namespace lockstep {

// Thread-compatible.
class GzipDecoder {
 public:
  GzipDecoder();
  ~GzipDecoder();
  GzipDecoder(const GzipDecoder&) = delete;
  GzipDecoder& operator=(const GzipDecoder&) = delete;

  // False if there is no memory. Then no other function may be called.
  bool ready() const { return ready_; }
  // True if all input is used up. Read returns 0 until Give adds more.
  bool needs_input() const { return stream_.avail_in == 0; }
  // Continues after the last input, with at most 1 GiB. `compressed` must
  // outlive its use. REQUIRES: needs_input().
  void Give(std::string_view compressed);
  // Reads up to `size` > 0 bytes into `buffer` and returns their number.
  // DataLoss if the data is damaged.
  StatusOr<size_t> Read(char* buffer, size_t size);
  // OK if the data may end here. DataLoss if it is cut off.
  Status CheckEnd() const;

 private:
  z_stream stream_ = {};
  bool ready_ = false;
  bool between_ = false;  // Between members.
  uint64_t given_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_GZIP_DECODER_H_
