// Reads a tar archive (POSIX ustar and pax, and GNU's long names) as a stream,
// with libarchive.
//
// It validates only the format: names are returned unchanged, even malicious
// ones (unpack.h checks them). Sparse files, multi-volume archives and archives
// without an end mark are refused.
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

namespace lockstep::worker::package {

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

  // Returns the next entry, or nullopt at the end mark. Skips unread bytes of
  // the previous entry. DataLoss: not a tar archive, or truncated.
  StatusOr<std::optional<TarEntry>> Next();
  // Reads the entry's contents; 0 at the end.
  StatusOr<size_t> Read(char* buffer, size_t size);

 private:
  struct Free {
    void operator()(archive* a) const;
  };

  // Read callback of libarchive.
  static ssize_t Fill(archive* a, void* self, const void** bytes);
  ssize_t FillChunk();
  Status Open();
  StatusOr<TarEntry> EntryOf(archive_entry* entry);
  // Position at which libarchive reads next.
  uint64_t At() const;
  // Type flag of the last header.
  std::optional<char> TypeFlag() const;
  // Converts `code` of libarchive. OK also for a warning about the characters
  // of a name, which is left unchanged.
  Status Judge(int code) const;
  Status ReadEnd();

  ByteSource* const bytes_;
  const std::unique_ptr<archive, Free> archive_;
  // Bytes that libarchive works on, from `chunk_at_` on. Chunks are filled so
  // that a header lies in one.
  std::vector<char> chunk_;
  size_t chunk_size_ = 0;
  uint64_t chunk_at_ = 0;
  Status source_error_;  // libarchive only knows that there was one.
  bool source_ended_ = false;
  bool opened_ = false;
  bool ended_ = false;
};

}  // namespace lockstep::worker::package

#endif  // LOCKSTEP_WORKER_PACKAGE_TAR_READER_H_
