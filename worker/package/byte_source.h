// A stream of bytes that is read once, front to back.
#ifndef LOCKSTEP_WORKER_PACKAGE_BYTE_SOURCE_H_
#define LOCKSTEP_WORKER_PACKAGE_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/fd.h"
#include "common/base/status.h"

namespace lockstep::worker::package {

// Thread-compatible.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads up to `size` > 0 bytes and returns their number; 0 at the end.
  virtual StatusOr<size_t> Read(char* buffer, size_t size) = 0;
};

// Reads memory, which must outlive it.
std::unique_ptr<ByteSource> MakeByteSource(std::string_view bytes);
// Reads a file.
StatusOr<std::unique_ptr<ByteSource>> OpenByteSource(const std::string& path);
// Decompresses gzip (RFC 1952), all members. DataLoss if `compressed` is
// damaged or truncated.
StatusOr<std::unique_ptr<ByteSource>> MakeGunzip(
    std::unique_ptr<ByteSource> compressed);

}  // namespace lockstep::worker::package

#endif  // LOCKSTEP_WORKER_PACKAGE_BYTE_SOURCE_H_
