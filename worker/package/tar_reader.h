// Reads a tar archive (POSIX ustar and pax, and GNU's long names) as a stream.
//
// It says what is in the archive and judges nothing but the format: names are
// as they stand there, however evil (unpack.h judges them). Sparse files and
// archives of several volumes are refused.
#ifndef LOCKSTEP_WORKER_PACKAGE_TAR_READER_H_
#define LOCKSTEP_WORKER_PACKAGE_TAR_READER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "worker/package/byte_source.h"

namespace lockstep {

struct TarEntry {
  enum class Type {
    kFile,
    kDirectory,
    kSymlink,
    kHardLink,
    kCharacterDevice,
    kBlockDevice,
    kFifo,
    kUnknown,
  };
  Type type = Type::kFile;
  std::string name;
  std::string link;  // Of kSymlink and kHardLink.
  uint32_t mode = 0;
  uint64_t size = 0;  // Of kFile.
};

// Thread-compatible.
class TarReader {
 public:
  // `bytes` is borrowed: the archive, decompressed.
  explicit TarReader(ByteSource* bytes) : bytes_(bytes) {}

  // The next entry; absent: the archive has ended, as it must. What was not
  // read of the last one is passed over. DataLoss: no tar, or cut off.
  StatusOr<std::optional<TarEntry>> Next();
  // Of the last entry's contents; 0: no more.
  StatusOr<size_t> Read(char* buffer, size_t size);

 private:
  // What the entries before one say of it.
  struct Said {
    std::optional<std::string> name;
    std::optional<std::string> link;
    std::optional<uint64_t> size;
  };

  // Returns false at the end of the bytes.
  StatusOr<bool> ReadBlock(char* block);
  Status Skip();
  StatusOr<std::string> ReadText(uint64_t size);
  Status ReadPax(uint64_t size, Said* said);
  Status ReadEnd();

  ByteSource* const bytes_;
  uint64_t at_ = 0;
  uint64_t left_ = 0;     // Of the contents.
  uint64_t padding_ = 0;  // Behind them.
  bool ended_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_PACKAGE_TAR_READER_H_
