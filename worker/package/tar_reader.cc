#include "worker/package/tar_reader.h"

#include <archive.h>
#include <archive_entry.h>

#include <string_view>
#include <utility>

namespace lockstep::worker::package {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kTypeFlagAt = 156;
constexpr size_t kChunk = kBlock * 128;
// Zeros behind the end: archivers fill a record of at most 256 KiB.
constexpr uint64_t kMaxTrailer = 1 << 20;

TarEntry::Type TypeOf(archive_entry* in, const TarEntry& entry) {
  switch (archive_entry_filetype(in)) {
    case AE_IFREG:
      // Before there was a type for folders.
      return entry.name.ends_with('/') ? TarEntry::Type::kDirectory
                                       : TarEntry::Type::kFile;
    case AE_IFDIR:
      return TarEntry::Type::kDirectory;
    case AE_IFLNK:
      return TarEntry::Type::kSymlink;
    case AE_IFCHR:
      return TarEntry::Type::kCharacterDevice;
    case AE_IFBLK:
      return TarEntry::Type::kBlockDevice;
    case AE_IFIFO:
      return TarEntry::Type::kFifo;
    default:
      return TarEntry::Type::kUnknown;
  }
}

}  // namespace

void TarReader::Free::operator()(archive* a) const { archive_read_free(a); }

TarReader::TarReader(ByteSource* bytes)
    : bytes_(bytes), archive_(archive_read_new()), chunk_(kChunk) {}

ssize_t TarReader::Fill(archive*, void* self, const void** bytes) {
  auto* const reader = static_cast<TarReader*>(self);
  *bytes = reader->chunk_.data();
  return reader->FillChunk();
}

ssize_t TarReader::FillChunk() {
  chunk_at_ += chunk_size_;
  chunk_size_ = 0;
  while (chunk_size_ < chunk_.size() && !source_ended_) {
    const auto count =
        bytes_->Read(chunk_.data() + chunk_size_, chunk_.size() - chunk_size_);
    if (!count.ok()) {
      source_error_ = count.status();
      return -1;
    }
    chunk_size_ += *count;
    source_ended_ = *count == 0;
  }
  return static_cast<ssize_t>(chunk_size_);
}

Status TarReader::Open() {
  opened_ = true;
  archive* const a = archive_.get();
  if (a == nullptr || archive_read_support_format_tar(a) != ARCHIVE_OK) {
    return ResourceExhausted("not enough memory to read the archive");
  }
  return Judge(archive_read_open(a, this, nullptr, Fill, nullptr));
}

uint64_t TarReader::At() const {
  // -1 where it could not be opened.
  const int64_t at = archive_filter_bytes(archive_.get(), 0);
  return at < 0 ? 0 : static_cast<uint64_t>(at);
}

std::optional<char> TarReader::TypeFlag() const {
  const uint64_t at = At();
  if (at < chunk_at_ + kBlock || at > chunk_at_ + chunk_size_) {
    return std::nullopt;
  }
  return chunk_[at - kBlock - chunk_at_ + kTypeFlagAt];
}

Status TarReader::Judge(int code) const {
  if (code == ARCHIVE_OK) return OkStatus();
  if (!source_error_.ok()) return source_error_;
  const char* const said = archive_error_string(archive_.get());
  const std::string_view text = said == nullptr ? "unknown error" : said;
  if (code == ARCHIVE_WARN &&
      text.find("can't be converted") != std::string_view::npos) {
    return OkStatus();
  }
  const uint64_t known = chunk_at_ + chunk_size_;
  if (source_ended_ &&
      (known < At() + kBlock || text.starts_with("Truncated"))) {
    return DataLoss("the archive is truncated at byte {}: {}", known, text);
  }
  return DataLoss("byte {} does not begin a tar header: {}", At(), text);
}

StatusOr<size_t> TarReader::Read(char* buffer, size_t size) {
  const la_ssize_t count = archive_read_data(archive_.get(), buffer, size);
  if (count >= 0) return static_cast<size_t>(count);
  const Status status = Judge(static_cast<int>(count));
  return status.ok() ? DataLoss("an entry cannot be read") : status;
}

Status TarReader::ReadEnd() {
  ended_ = true;
  // To the last byte, so that the checksum of the compressed data is checked.
  for (uint64_t total = 0; !source_ended_;) {
    if (FillChunk() < 0) return source_error_;
    total += chunk_size_;
    if (total > kMaxTrailer) {
      return DataLoss("more than {} bytes follow the end of the archive",
                      kMaxTrailer);
    }
  }
  return OkStatus();
}

StatusOr<TarEntry> TarReader::EntryOf(archive_entry* in) {
  const auto text = [](const char* value) {
    return std::string(value == nullptr ? "" : value);
  };
  TarEntry entry;
  entry.name = text(archive_entry_pathname(in));
  entry.mode = static_cast<uint32_t>(archive_entry_perm(in));
  if (const char* const link = archive_entry_hardlink(in); link != nullptr) {
    entry.type = TarEntry::Type::kHardLink;
    entry.link = link;
    return entry;
  }
  const std::optional<char> flag = TypeFlag();
  if (archive_entry_sparse_count(in) > 0 || flag == 'S' || flag == 'M') {
    return DataLoss(
        "sparse files and multi-volume archives are not supported: create a "
        "plain archive");
  }
  entry.type = TypeOf(in, entry);
  // To libarchive a file is what has no known type. Without a flag the header
  // is not where that of a plain entry lies.
  if (!flag || (*flag != '\0' && (*flag < '0' || *flag > '7'))) {
    entry.type = TarEntry::Type::kUnknown;
  }
  if (entry.type == TarEntry::Type::kSymlink) {
    entry.link = text(archive_entry_symlink(in));
  }
  if (entry.type == TarEntry::Type::kFile) {
    entry.size = static_cast<uint64_t>(archive_entry_size(in));
  }
  return entry;
}

StatusOr<std::optional<TarEntry>> TarReader::Next() {
  if (ended_) return std::optional<TarEntry>();
  archive* const a = archive_.get();
  if (!opened_) {
    LOCKSTEP_RETURN_IF_ERROR(Open());
  } else {
    LOCKSTEP_RETURN_IF_ERROR(Judge(archive_read_data_skip(a)));
  }
  const uint64_t end = At();
  archive_entry* in = nullptr;
  const int code = archive_read_next_header(a, &in);
  if (code == ARCHIVE_EOF) {
    // libarchive also takes an archive that just ends.
    if (At() < end + kBlock) {
      return DataLoss("the archive is truncated at byte {}", end);
    }
    LOCKSTEP_RETURN_IF_ERROR(ReadEnd());
    return std::optional<TarEntry>();
  }
  LOCKSTEP_RETURN_IF_ERROR(Judge(code));
  LOCKSTEP_ASSIGN_OR_RETURN(TarEntry entry, EntryOf(in));
  return std::optional<TarEntry>(std::move(entry));
}

}  // namespace lockstep::worker::package
