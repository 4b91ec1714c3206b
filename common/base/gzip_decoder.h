// Decompresses gzip (RFC 1952), all its members, as a stream.
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

  // False: there was no memory for it, and nothing else may be called.
  bool ready() const { return ready_; }
  // Whether all input is used up: Read returns 0 until Give has brought more.
  bool needs_input() const { return stream_.avail_in == 0; }
  // `compressed`, which goes on where the last input ended, must outlive its
  // use; at most 1 GiB. REQUIRES: needs_input().
  void Give(std::string_view compressed);
  // Fills up to `size` > 0 bytes and returns how many. DataLoss: the data is
  // damaged.
  StatusOr<size_t> Read(char* buffer, size_t size);
  // OK where the data may end after the input so far; else the DataLoss of
  // data that is cut off.
  Status CheckEnd() const;

 private:
  z_stream stream_ = {};
  bool ready_ = false;
  bool between_ = false;  // Members.
  uint64_t given_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_BASE_GZIP_DECODER_H_
