#include "worker/checkpoint/checksum.h"

#include <algorithm>

#include "common/base/crc32c.h"

namespace lockstep::worker::checkpoint {

void Checksummer::Add(std::string_view data) {
  sums_.size += data.size();
  sums_.crc = ExtendCrc32c(sums_.crc, data.data(), data.size());
  while (!data.empty()) {
    const size_t part = static_cast<size_t>(
        std::min<uint64_t>(data.size(), kBlockBytes - in_block_));
    block_crc_ = ExtendCrc32c(block_crc_, data.data(), part);
    in_block_ += part;
    data.remove_prefix(part);
    if (in_block_ == kBlockBytes) {
      sums_.blocks.push_back(block_crc_);
      block_crc_ = 0;
      in_block_ = 0;
    }
  }
}

FileSums Checksummer::Finish() const {
  FileSums sums = sums_;
  if (in_block_ > 0) sums.blocks.push_back(block_crc_);
  return sums;
}

Status ChecksummedFile::Append(std::string_view data) {
  while (!data.empty()) {
    if (should_stop_) LOCKSTEP_RETURN_IF_ERROR(should_stop_());
    const std::string_view part = data.substr(0, kBlockBytes);
    LOCKSTEP_RETURN_IF_ERROR(file_->Append(part));
    checksummer_.Add(part);
    data.remove_prefix(part.size());
  }
  return OkStatus();
}

Status ChecksummedFile::SyncAndClose() {
  LOCKSTEP_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

Status ReadChecked(
    FileSystem* fs, const std::string& path, const FileSums& want,
    const std::function<void(uint64_t offset, std::string_view block)>& use) {
  LOCKSTEP_ASSIGN_OR_RETURN(const FileInfo info, fs->Stat(path));
  if (info.is_directory) return DataLoss("{} is a directory", path);
  if (info.size != want.size) {
    return DataLoss("{} has {} bytes, but {} were written", path, info.size,
                    want.size);
  }
  if (want.blocks.size() != BlockCount(want.size)) {
    return DataLoss("{}: {} block checksums for {} bytes", path,
                    want.blocks.size(), want.size);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, fs->OpenRead(path));
  std::string buffer(std::min(kBlockBytes, want.size), '\0');
  uint32_t whole = 0;
  uint64_t offset = 0;
  for (uint32_t block_crc : want.blocks) {
    const size_t size = static_cast<size_t>(
        std::min<uint64_t>(kBlockBytes, want.size - offset));
    LOCKSTEP_ASSIGN_OR_RETURN(const size_t n,
                              file->ReadAt(offset, buffer.data(), size));
    if (n != size) {
      return DataLoss("{} ends at byte {} of {}", path, offset + n, want.size);
    }
    if (ExtendCrc32c(0, buffer.data(), size) != block_crc) {
      return DataLoss("{}: bytes {} to {} are damaged (CRC32C differs)", path,
                      offset, offset + size);
    }
    whole = ExtendCrc32c(whole, buffer.data(), size);
    if (use) use(offset, std::string_view(buffer.data(), size));
    offset += size;
  }
  if (whole != want.crc) {
    return DataLoss("{}: the CRC32C of the whole file differs", path);
  }
  return OkStatus();
}

}  // namespace lockstep::worker::checkpoint
