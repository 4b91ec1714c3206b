// Reads a tar archive (POSIX ustar and pax, and GNU's long names) as a stream,
// by libarchive.
//
// It says what is in the archive and judges nothing but the format: names are
// as they stand there, however evil (unpack.h judges them). Sparse files and
// archives of several volumes are refused, and so is an archive without the
// mark of its end.
#ifndef LOCKSTEP_WORKER_PACKAGE_TAR_READER_H_
#define LOCKSTEP_WORKER_PACKAGE_TAR_READER_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/package/byte_source.h"

struct archive;
struct archive_entry;

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
  explicit TarReader(ByteSource* bytes);
  TarReader(const TarReader&) = delete;
  TarReader& operator=(const TarReader&) = delete;

  // The next entry; absent: the archive has ended, as it must. What was not
  // read of the last one is passed over. DataLoss: no tar, or cut off.
  StatusOr<std::optional<TarEntry>> Next();
  // Of the last entry's contents; 0: no more.
  StatusOr<size_t> Read(char* buffer, size_t size);

 private:
  struct Free {
    void operator()(archive* a) const;
  };

  // libarchive asks for bytes.
  static ssize_t Fill(archive* a, void* self, const void** bytes);
  ssize_t FillChunk();
  Status Open();
  StatusOr<TarEntry> EntryOf(archive_entry* entry);
  // Where libarchive reads next.
  uint64_t At() const;
  // The type flag of the header that was read last.
  std::optional<char> TypeFlag() const;
  // What `code` of libarchive stands for: no error only where it is OK, or a
  // warning about the characters of a name, which are left as they are.
  Status Judge(int code) const;
  Status ReadEnd();

  ByteSource* const bytes_;
  const std::unique_ptr<archive, Free> archive_;
  // The bytes that libarchive works on: those from `chunk_at_` on. A header
  // lies in one chunk, as chunks are filled.
  std::vector<char> chunk_;
  size_t chunk_size_ = 0;
  uint64_t chunk_at_ = 0;
  Status source_error_;  // libarchive only knows that there was one.
  bool source_ended_ = false;
  bool opened_ = false;
  bool ended_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_PACKAGE_TAR_READER_H_
