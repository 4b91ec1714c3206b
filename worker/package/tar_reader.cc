#include "worker/package/tar_reader.h"

#include <string.h>

#include <algorithm>
#include <charconv>

namespace lockstep {
namespace {

constexpr size_t kBlock = 512;
// Of a long name or a pax header: more than any file system takes.
constexpr uint64_t kMaxText = 1 << 20;
// Headers before one entry: a name, a link's, and one of each kind of pax.
constexpr int kMaxHeaders = 8;
// Zeros behind the end: archivers fill a record of at most 256 KiB.
constexpr uint64_t kMaxTrailer = 1 << 20;

// A field of the header.
struct Field {
  size_t offset;
  size_t size;
};
constexpr Field kName{0, 100};
constexpr Field kMode{100, 8};
constexpr Field kSize{124, 12};
constexpr Field kChecksum{148, 8};
constexpr size_t kTypeAt = 156;
constexpr Field kLink{157, 100};
constexpr Field kMagic{257, 6};
constexpr Field kPrefix{345, 155};

std::string Text(const char* block, Field field) {
  const char* begin = block + field.offset;
  return std::string(begin, strnlen(begin, field.size));
}

// Octal digits between blanks; or, with the first bit set, base 256 (GNU).
std::optional<uint64_t> Number(const char* block, Field field) {
  const auto* bytes =
      reinterpret_cast<const unsigned char*>(block + field.offset);
  uint64_t value = 0;
  if ((bytes[0] & 0x80) != 0) {
    for (size_t i = 0; i < field.size; ++i) {
      const uint64_t digit = i == 0 ? bytes[0] & 0x7f : bytes[i];
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | digit;
    }
    return value;
  }
  size_t at = 0;
  while (at < field.size && bytes[at] == ' ') ++at;
  for (; at < field.size && bytes[at] >= '0' && bytes[at] <= '7'; ++at) {
    value = value << 3 | static_cast<uint64_t>(bytes[at] - '0');
  }
  if (at < field.size && bytes[at] != ' ' && bytes[at] != '\0') {
    return std::nullopt;
  }
  return value;
}

// The sum of all bytes, the field itself taken as blanks. Some old archivers
// added signed ones.
bool ChecksumHolds(const char* block) {
  int64_t sum = 0;
  int64_t signed_sum = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool own =
        i >= kChecksum.offset && i < kChecksum.offset + kChecksum.size;
    sum += own ? ' ' : static_cast<unsigned char>(block[i]);
    signed_sum += own ? ' ' : static_cast<signed char>(block[i]);
  }
  const auto said = Number(block, kChecksum);
  return said && (*said == static_cast<uint64_t>(sum) ||
                  static_cast<int64_t>(*said) == signed_sum);
}

TarEntry::Type TypeOf(char flag, const std::string& name) {
  switch (flag) {
    case '0':
    case '\0':
    case '7':  // "Contiguous": as a file.
      // Before there was a type for folders.
      return name.ends_with('/') ? TarEntry::Type::kDirectory
                                 : TarEntry::Type::kFile;
    case '1':
      return TarEntry::Type::kHardLink;
    case '2':
      return TarEntry::Type::kSymlink;
    case '3':
      return TarEntry::Type::kCharacterDevice;
    case '4':
      return TarEntry::Type::kBlockDevice;
    case '5':
      return TarEntry::Type::kDirectory;
    case '6':
      return TarEntry::Type::kFifo;
    default:
      return TarEntry::Type::kUnknown;
  }
}

}  // namespace

StatusOr<bool> TarReader::ReadBlock(char* block) {
  size_t have = 0;
  while (have < kBlock) {
    LOCKSTEP_ASSIGN_OR_RETURN(const size_t count,
                              bytes_->Read(block + have, kBlock - have));
    if (count == 0) break;
    have += count;
  }
  if (have == 0) return false;
  if (have < kBlock) {
    return DataLoss("the archive is cut off at byte {}", at_ + have);
  }
  at_ += kBlock;
  return true;
}

StatusOr<size_t> TarReader::Read(char* buffer, size_t size) {
  size = static_cast<size_t>(std::min<uint64_t>(size, left_));
  if (size == 0) return size_t{0};
  LOCKSTEP_ASSIGN_OR_RETURN(const size_t count, bytes_->Read(buffer, size));
  if (count == 0) return DataLoss("the archive is cut off at byte {}", at_);
  left_ -= count;
  at_ += count;
  return count;
}

Status TarReader::Skip() {
  char buffer[16 << 10];
  while (left_ > 0) {
    LOCKSTEP_RETURN_IF_ERROR(Read(buffer, sizeof(buffer)).status());
  }
  left_ = padding_;
  padding_ = 0;
  while (left_ > 0) {
    LOCKSTEP_RETURN_IF_ERROR(Read(buffer, sizeof(buffer)).status());
  }
  return OkStatus();
}

StatusOr<std::string> TarReader::ReadText(uint64_t size) {
  if (size > kMaxText) {
    return DataLoss("a name or header of {} bytes at byte {} is none", size,
                    at_);
  }
  std::string text(size, '\0');
  for (size_t have = 0; have < text.size();) {
    LOCKSTEP_ASSIGN_OR_RETURN(const size_t count,
                              Read(text.data() + have, text.size() - have));
    have += count;
  }
  return text;
}

// "LENGTH KEY=VALUE\n" each, LENGTH of the whole record.
Status TarReader::ReadPax(uint64_t size, Said* said) {
  const uint64_t begin = at_;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, ReadText(size));
  std::string_view rest = text;
  while (!rest.empty()) {
    size_t length = 0;
    const auto parsed =
        std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const auto digits = static_cast<size_t>(parsed.ptr - rest.data());
    if (parsed.ec != std::errc() || length > rest.size() ||
        length < digits + 2 || rest[digits] != ' ' ||
        rest[length - 1] != '\n') {
      return DataLoss("the pax header at byte {} is damaged", begin);
    }
    const std::string_view record =
        rest.substr(digits + 1, length - digits - 2);
    rest.remove_prefix(length);
    const size_t equals = record.find('=');
    if (equals == record.npos) {
      return DataLoss("the pax header at byte {} is damaged", begin);
    }
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key.starts_with("GNU.sparse.")) {
      return DataLoss(
          "it holds a sparse file, which is not read: pack it with "
          "plain ones");
    }
    if (key == "path") said->name = std::string(value);
    if (key == "linkpath") said->link = std::string(value);
    if (key == "size") {
      uint64_t bytes = 0;
      const auto number =
          std::from_chars(value.data(), value.data() + value.size(), bytes);
      if (number.ec != std::errc() ||
          number.ptr != value.data() + value.size()) {
        return DataLoss("the pax header at byte {} is damaged", begin);
      }
      said->size = bytes;
    }
  }
  return OkStatus();
}

Status TarReader::ReadEnd() {
  ended_ = true;
  // To the last byte, so that the checksum of the compressed data is checked.
  char buffer[16 << 10];
  for (uint64_t total = 0;;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const size_t count,
                              bytes_->Read(buffer, sizeof(buffer)));
    if (count == 0) return OkStatus();
    total += count;
    if (total > kMaxTrailer) {
      return DataLoss("more than {} bytes follow the end of the archive",
                      kMaxTrailer);
    }
  }
}

StatusOr<std::optional<TarEntry>> TarReader::Next() {
  if (ended_) return std::optional<TarEntry>();
  Said said;
  for (int headers = 0;; ++headers) {
    LOCKSTEP_RETURN_IF_ERROR(Skip());
    if (headers > kMaxHeaders) {
      return DataLoss("too many headers are at byte {} for one entry", at_);
    }
    char block[kBlock];
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, ReadBlock(block));
    if (!more) return DataLoss("the archive is cut off at byte {}", at_);
    if (std::all_of(block, block + kBlock, [](char c) { return c == 0; })) {
      LOCKSTEP_RETURN_IF_ERROR(ReadEnd());
      return std::optional<TarEntry>();
    }
    const auto size = Number(block, kSize);
    if (!ChecksumHolds(block) || !size || *size >> 62 != 0) {
      return DataLoss("what is at byte {} is no header of a tar archive",
                      at_ - kBlock);
    }
    const auto set_size = [this](uint64_t bytes) {
      left_ = bytes;
      padding_ = (kBlock - bytes % kBlock) % kBlock;
    };
    const char flag = block[kTypeAt];
    if (flag == 'x' || flag == 'g' || flag == 'L' || flag == 'K') {
      set_size(*size);
      if (flag == 'x') {
        LOCKSTEP_RETURN_IF_ERROR(ReadPax(*size, &said));
      } else if (flag == 'g') {
        Said ignored;  // Of all files: comments of git and the like.
        LOCKSTEP_RETURN_IF_ERROR(ReadPax(*size, &ignored));
      } else {
        LOCKSTEP_ASSIGN_OR_RETURN(std::string text, ReadText(*size));
        // It ends with a NUL.
        if (text.ends_with('\0')) text.pop_back();
        (flag == 'L' ? said.name : said.link) = std::move(text);
      }
      continue;
    }
    if (flag == 'S' || flag == 'M') {
      return DataLoss(
          "it holds a sparse file or one of several volumes, "
          "which is not read: pack it with plain ones");
    }
    TarEntry entry;
    entry.name = Text(block, kName);
    if (memcmp(block + kMagic.offset, "ustar\0", kMagic.size) == 0) {
      if (const std::string prefix = Text(block, kPrefix); !prefix.empty()) {
        entry.name = prefix + "/" + entry.name;
      }
    }
    if (said.name) entry.name = *said.name;
    entry.link = said.link ? *said.link : Text(block, kLink);
    entry.type = TypeOf(flag, entry.name);
    entry.mode = static_cast<uint32_t>(Number(block, kMode).value_or(0644));
    const uint64_t bytes = said.size.value_or(*size);
    if (bytes >> 62 != 0) {
      return DataLoss("the entry at byte {} has an impossible size", at_);
    }
    // Only files have contents, whatever the field says of links; what is not
    // known may have them too.
    if (entry.type == TarEntry::Type::kFile ||
        entry.type == TarEntry::Type::kUnknown) {
      entry.size = bytes;
      set_size(bytes);
    }
    return std::optional<TarEntry>(std::move(entry));
  }
}

}  // namespace lockstep
