// Checksums of a file: CRC32C of each 4 MiB block, so a reader detects and
// locates damage before it uses a byte of the block, and CRC32C and size of the
// whole file. PURE, apart from ChecksummedFile.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_CHECKSUM_H_
#define LOCKSTEP_WORKER_CHECKPOINT_CHECKSUM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"

namespace lockstep::worker::checkpoint {

inline constexpr uint64_t kBlockBytes = 4 << 20;
inline constexpr uint64_t kMaxFileBytes = uint64_t{1} << 46;  // 64 TiB.

struct FileSums {
  uint64_t size = 0;
  uint32_t crc = 0;
  // One per block of kBlockBytes, the last one for what is left.
  std::vector<uint32_t> blocks;

  bool operator==(const FileSums&) const = default;
};

inline uint64_t BlockCount(uint64_t size) {
  return size / kBlockBytes + (size % kBlockBytes != 0);
}

// Feed the bytes in order, in any pieces.
class Checksummer {
 public:
  void Add(std::string_view data);
  FileSums Finish() const;

 private:
  FileSums sums_;
  uint32_t block_crc_ = 0;
  uint64_t in_block_ = 0;
};

// Asked between blocks of a long transfer; an error ends it.
using ShouldStop = std::function<Status()>;

// Appends to `file` in pieces of at most a block, summing what it wrote and
// asking `should_stop` (may be empty) before each.
class ChecksummedFile {
 public:
  ChecksummedFile(std::unique_ptr<WritableFile> file, ShouldStop should_stop)
      : file_(std::move(file)), should_stop_(std::move(should_stop)) {}

  Status Append(std::string_view data);
  // Makes the bytes durable and closes.
  Status SyncAndClose();
  FileSums Sums() const { return checksummer_.Finish(); }

 private:
  std::unique_ptr<WritableFile> file_;
  ShouldStop should_stop_;
  Checksummer checksummer_;
};

// Reads `path` block by block and passes each block to `use` (may be empty)
// after its CRC was verified. DataLoss if the size or a CRC differs from
// `want`; the text names the bytes.
Status ReadChecked(
    FileSystem* fs, const std::string& path, const FileSums& want,
    const std::function<void(uint64_t offset, std::string_view block)>& use);

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_CHECKSUM_H_
