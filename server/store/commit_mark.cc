#include "server/store/commit_mark.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/base/crc32c.h"
#include "server/store/store_file.h"

namespace lockstep::server {
namespace {

constexpr char kMagic[8] = {'L', 'K', 'S', 'M', 'A', 'R', 'K', '1'};
constexpr off_t kSlotDistance = 4096;

// As in the file. Little endian, as all machines that lockstep runs on.
struct Slot {
  char magic[8];
  uint64_t sequence;
  uint64_t epoch;
  int64_t version;
  char history[kHistoryDigits];
  // Of all before.
  uint32_t crc;
  uint32_t zero;
};
static_assert(sizeof(Slot) == 72);

// Behind the slot. A version from before it leaves it as it is, so it counts
// only with the checksum of the slot that it was written with.
struct Extension {
  int64_t unix_nanos;
  // Zeros: not known.
  char epoch_id[kHistoryDigits];
  // Of the slot, and of all before.
  uint32_t crc;
  uint32_t zero;
};
static_assert(sizeof(Extension) == 48);

struct Written {
  Slot slot;
  Extension extension;
};
static_assert(sizeof(Written) == sizeof(Slot) + sizeof(Extension));

uint32_t CrcOf(const Slot& slot) {
  return MaskCrc32c(Crc32c(std::string_view(
      reinterpret_cast<const char*>(&slot), offsetof(Slot, crc))));
}

uint32_t ExtensionCrcOf(const Written& written) {
  return MaskCrc32c(Crc32c(std::string_view(
      reinterpret_cast<const char*>(&written),
      offsetof(Written, extension) + offsetof(Extension, crc))));
}

struct Newest {
  // There is a file with bytes in it.
  bool present = false;
  // The newer of the readable slots.
  std::optional<Written> written;
};

StatusOr<Newest> ReadSlots(const Fd& fd, const std::string& path) {
  Newest newest;
  for (int i = 0; i < 2; ++i) {
    Written written{};
    const Slot& slot = written.slot;
    const ssize_t size =
        ::pread(fd.get(), &written, sizeof(written), i * kSlotDistance);
    if (size < 0) return ErrnoStatus(errno, "reading " + path);
    if (size > 0) newest.present = true;
    if (size < static_cast<ssize_t>(sizeof(slot)) ||
        memcmp(slot.magic, kMagic, sizeof(kMagic)) != 0 ||
        slot.crc != CrcOf(slot)) {
      continue;
    }
    if (!newest.written || newest.written->slot.sequence < slot.sequence) {
      newest.written = written;
    }
  }
  return newest;
}

}  // namespace

std::string Describe(const StorePoint& point) {
  return fmt::format("version {} of epoch {}", point.version, point.epoch);
}

std::string Describe(const Promise& promise) {
  if (!promise.time) return Describe(promise.point);
  return fmt::format("{}, written at {}", Describe(promise.point),
                     FormatWallTime(*promise.time));
}

StatusOr<std::optional<Promise>> CommitMark::Read(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return std::optional<Promise>();
  if (!fd) return ErrnoStatus(errno, "opening " + path);
  LOCKSTEP_ASSIGN_OR_RETURN(const Newest newest, ReadSlots(fd, path));
  if (!newest.written)
    return DataLoss("{}: neither of its slots can be read", path);
  const Slot& slot = newest.written->slot;
  Promise promise;
  promise.point = {std::string(slot.history, kHistoryDigits), slot.epoch,
                   slot.version};
  const Extension& extension = newest.written->extension;
  if (extension.crc == ExtensionCrcOf(*newest.written)) {
    promise.time = FromUnixNanos(extension.unix_nanos);
    const std::string id(extension.epoch_id, kHistoryDigits);
    if (IsHistory(id)) promise.point.epoch_id = id;
  }
  return std::optional<Promise>(promise);
}

StatusOr<CommitMark> CommitMark::Open(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return ErrnoStatus(errno, "opening " + path);
  LOCKSTEP_ASSIGN_OR_RETURN(const Newest newest, ReadSlots(fd, path));
  // Its blocks are there from now on: a write needs no room on the disk.
  if (const int error = ::posix_fallocate(fd.get(), 0, 2 * kSlotDistance);
      error != 0) {
    return ErrnoStatus(error, "making " + path);
  }
  if (::fsync(fd.get()) != 0) return ErrnoStatus(errno, "syncing " + path);
  LOCKSTEP_RETURN_IF_ERROR(SyncParent(path));
  return CommitMark(path, std::move(fd),
                    newest.written ? newest.written->slot.sequence : 0);
}

Status CommitMark::Write(const StorePoint& point, WallTime now) {
  if (point.history.size() != kHistoryDigits) {
    return Internal("{}: a history of {} characters", path_,
                    point.history.size());
  }
  Written written{};
  Slot& slot = written.slot;
  memcpy(slot.magic, kMagic, sizeof(kMagic));
  slot.sequence = sequence_ + 1;
  slot.epoch = point.epoch;
  slot.version = point.version;
  memcpy(slot.history, point.history.data(), kHistoryDigits);
  slot.crc = CrcOf(slot);
  Extension& extension = written.extension;
  extension.unix_nanos = ToUnixNanos(now);
  if (point.epoch_id.size() == kHistoryDigits) {
    memcpy(extension.epoch_id, point.epoch_id.data(), kHistoryDigits);
  }
  extension.crc = ExtensionCrcOf(written);
  const off_t at = static_cast<off_t>(slot.sequence % 2) * kSlotDistance;
  errno = 0;
  if (::pwrite(fd_.get(), &written, sizeof(written), at) !=
          static_cast<ssize_t>(sizeof(written)) ||
      ::fdatasync(fd_.get()) != 0) {
    return ErrnoStatus(errno != 0 ? errno : EIO, "writing " + path_);
  }
  sequence_ = slot.sequence;
  return OkStatus();
}

}  // namespace lockstep::server
