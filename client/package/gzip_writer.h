// Gzip (RFC 1952), fast and the same for the same bytes, however they come.
//
// What comes is cut in pieces of kPiece. A piece whose beginning hardly shrinks
// at level 1 (weights, images, what is packed already) is stored as it is, the
// others are packed at level 1: where packing wins little it must not cost the
// time of a slow line.
#ifndef LOCKSTEP_CLIENT_PACKAGE_GZIP_WRITER_H_
#define LOCKSTEP_CLIENT_PACKAGE_GZIP_WRITER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep {

// Thread-compatible.
class GzipWriter {
 public:
  // Takes what was packed, in order.
  using Output = std::function<Status(std::string_view)>;

  static constexpr size_t kPiece = size_t{1} << 20;
  // So much of a piece tells how well it packs.
  static constexpr size_t kSample = size_t{16} << 10;

  explicit GzipWriter(Output output);
  ~GzipWriter();
  GzipWriter(const GzipWriter&) = delete;
  GzipWriter& operator=(const GzipWriter&) = delete;

  // An error is that of `output`, and stays; Internal: zlib has no memory.
  Status Write(std::string_view bytes);
  // Writes the end. Nothing may be written behind it.
  Status Close();

 private:
  struct Stream;

  Status Flush(bool last);

  const Output output_;
  const std::unique_ptr<Stream> stream_;
  std::string piece_;
  Status status_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_PACKAGE_GZIP_WRITER_H_
