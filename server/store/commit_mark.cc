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

namespace lockstep {
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

uint32_t CrcOf(const Slot& slot) {
  return MaskCrc32c(Crc32c(std::string_view(
      reinterpret_cast<const char*>(&slot), offsetof(Slot, crc))));
}

struct Newest {
  // There is a file with bytes in it.
  bool present = false;
  // The newer of the readable slots.
  std::optional<Slot> slot;
};

StatusOr<Newest> ReadSlots(const Fd& fd, const std::string& path) {
  Newest newest;
  for (int i = 0; i < 2; ++i) {
    Slot slot{};
    const ssize_t size =
        ::pread(fd.get(), &slot, sizeof(slot), i * kSlotDistance);
    if (size < 0) return ErrnoStatus(errno, "reading " + path);
    if (size > 0) newest.present = true;
    if (size != sizeof(slot) ||
        memcmp(slot.magic, kMagic, sizeof(kMagic)) != 0 ||
        slot.crc != CrcOf(slot)) {
      continue;
    }
    if (!newest.slot || newest.slot->sequence < slot.sequence) {
      newest.slot = slot;
    }
  }
  return newest;
}

}  // namespace

std::string Describe(const StorePoint& point) {
  return fmt::format("version {} of epoch {}", point.version, point.epoch);
}

StatusOr<std::optional<StorePoint>> CommitMark::Read(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return std::optional<StorePoint>();
  if (!fd) return ErrnoStatus(errno, "opening " + path);
  LOCKSTEP_ASSIGN_OR_RETURN(const Newest newest, ReadSlots(fd, path));
  if (!newest.slot)
    return DataLoss("{}: neither of its slots can be read", path);
  const Slot& slot = *newest.slot;
  return std::optional<StorePoint>(StorePoint{
      std::string(slot.history, kHistoryDigits), slot.epoch, slot.version});
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
                    newest.slot ? newest.slot->sequence : 0);
}

Status CommitMark::Write(const StorePoint& point) {
  if (point.history.size() != kHistoryDigits) {
    return Internal("{}: a history of {} characters", path_,
                    point.history.size());
  }
  Slot slot{};
  memcpy(slot.magic, kMagic, sizeof(kMagic));
  slot.sequence = sequence_ + 1;
  slot.epoch = point.epoch;
  slot.version = point.version;
  memcpy(slot.history, point.history.data(), kHistoryDigits);
  slot.crc = CrcOf(slot);
  const off_t at = static_cast<off_t>(slot.sequence % 2) * kSlotDistance;
  errno = 0;
  if (::pwrite(fd_.get(), &slot, sizeof(slot), at) !=
          static_cast<ssize_t>(sizeof(slot)) ||
      ::fdatasync(fd_.get()) != 0) {
    return ErrnoStatus(errno != 0 ? errno : EIO, "writing " + path_);
  }
  sequence_ = slot.sequence;
  return OkStatus();
}

}  // namespace lockstep
