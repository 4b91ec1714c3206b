// Writes gzip (RFC 1952), fast and deterministically: equal bytes give equal
// output, however they are split.
//
// Input is cut into pieces of kPiece. A piece whose beginning hardly shrinks at
// level 1 (weights, images, compressed files) is stored; others are compressed
// at level 1. So compression with little gain does not cost time.
#ifndef LOCKSTEP_CLIENT_PACKAGE_GZIP_WRITER_H_
#define LOCKSTEP_CLIENT_PACKAGE_GZIP_WRITER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep::cli {

// Thread-compatible.
class GzipWriter {
 public:
  // Receives the compressed bytes in order.
  using Output = std::function<Status(std::string_view)>;

  static constexpr size_t kPiece = size_t{1} << 20;
  // The sample of a piece that decides whether it is compressed.
  static constexpr size_t kSample = size_t{16} << 10;

  explicit GzipWriter(Output output);
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  // Returns the error of `output`, which is sticky, or Internal if zlib has no
  // memory.
  Status Write(std::string_view bytes);
  // Writes the end. No writes may follow.
  Status Close();

 private:
  struct Stream;

  Status Flush(bool last);

  const Output output_;
  const std::unique_ptr<Stream> stream_;
  std::string piece_;
  Status status_;
};

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_PACKAGE_GZIP_WRITER_H_
