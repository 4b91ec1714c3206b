#include "server/store/ballast.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/logging.h"
#include "common/base/random.h"

namespace lockstep::server {
namespace {

// What a start writes before it can serve: the log of the store with its index,
// the mark, and the pages of an epoch.
constexpr uint64_t kStartBytes = 1 << 20;

// What stands for `bytes` of the disk: no hole.
bool IsWhole(const std::string& path, uint64_t bytes) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 &&
         static_cast<uint64_t>(info.st_blocks) * 512 >= bytes;
}

// Where nothing can be reserved, by bytes that no file system makes smaller.
Status Write(int fd, uint64_t bytes, const std::string& path) {
  const std::string block = RandomBytes(size_t{1} << 20);
  for (uint64_t done = 0; done < bytes;) {
    const size_t length = std::min<uint64_t>(block.size(), bytes - done);
    const ssize_t wrote =
        ::pwrite(fd, block.data(), length, static_cast<off_t>(done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      return ErrnoStatus(wrote < 0 ? errno : ENOSPC, "write " + path);
    }
    done += static_cast<uint64_t>(wrote);
  }
  return OkStatus();
}

Status Reserve(const std::string& path, uint64_t bytes) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (fd.get() < 0) return ErrnoStatus(errno, "open " + path);
  int error = 0;
  do {
    error =
        ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EOPNOTSUPP || error == ENOSYS)
    return Write(fd.get(), bytes, path);
  return error == 0 ? OkStatus() : ErrnoStatus(error, "fallocate " + path);
}

}  // namespace

StatusOr<uint64_t> AvailableBytes(const std::string& dir) {
  struct statvfs use {};
  if (::statvfs(dir.c_str(), &use) != 0) {
    return ErrnoStatus(errno, "statvfs " + dir);
  }
  return uint64_t{use.f_bavail} * use.f_frsize;
}

Ballast::Ballast(BallastOptions options)
    : options_(std::move(options)), path_(JoinPath(options_.dir, kFile)) {}

Status Ballast::CheckSpace() const {
  if (!full_) return OkStatus();
  return WithReason(
      ResourceExhausted("the disk of {} is full: nothing that takes space "
                        "there is accepted until there is room; jobs can be "
                        "cancelled and deleted",
                        options_.dir),
      "DISK_FULL");
}

Status Ballast::ExplainStart(const Status& status) const {
  const auto available = options_.available(options_.dir);
  if (!available.ok() || *available >= kStartBytes) return status;
  return ResourceExhausted(
      "the disk of {0} is full: a start writes up to {1} bytes there, {2} are "
      "left, and there is no file {3} to give up; free {4} bytes (the oldest "
      "files of {0}/backups and {0}/audit.*.log can go, and what others keep "
      "on that disk) and start again: {5}",
      options_.dir, kStartBytes, *available, kFile, kStartBytes - *available,
      Message(status));
}

void Ballast::Look() {
  // Of a run before this one.
  if (held_ == 0 && !full_ && IsWhole(path_, options_.bytes)) {
    held_ = options_.bytes;
  }
  const auto available = options_.available(options_.dir);
  if (!available.ok()) {
    if (!std::exchange(told_, true)) {
      LOG_ERROR("{}", Message(available.status()));
    }
    return;
  }
  if (held_ > 0 && *available < options_.low_bytes) {
    GiveUp(*available);
  } else if (held_ == 0) {
    Take(*available);
  }
}

void Ballast::GiveUp(uint64_t available) {
  // The blocks first: some file systems need one to forget a name.
  if (::truncate(path_.c_str(), 0) != 0 || ::unlink(path_.c_str()) != 0) {
    LOG_ERROR("{}: {}", path_, Message(ErrnoStatus(errno, "remove")));
  }
  held_ = 0;
  full_ = true;
  gave_up_ = true;
  told_ = false;
  LOG_ERROR(
      "the disk of {} is full, {} bytes are left: the {} bytes of {} are given "
      "up, so that jobs can be cancelled and deleted; jobs, packages and logs "
      "are not accepted until there is room",
      options_.dir, available, options_.bytes, kFile);
}

void Ballast::Take(uint64_t available) {
  const bool was_full = full_;
  Status status = ResourceExhausted("{} bytes are left on the disk of {}",
                                    available, options_.dir);
  if (available >= options_.bytes + 2 * options_.low_bytes) {
    status = Reserve(path_, options_.bytes);
  }
  if (!status.ok()) {
    ::unlink(path_.c_str());
    // Without the file everything goes on as long as there is space. What was
    // given up is not space for new jobs.
    full_ = gave_up_ ? status.code() == StatusCode::kResourceExhausted
                     : available < options_.low_bytes * (was_full ? 2 : 1);
    if (full_ != was_full) {
      LOG_WARN(
          "{} bytes are left on the disk of {}: jobs, packages and logs "
          "are {}accepted",
          available, options_.dir, full_ ? "not " : "");
    }
    if (was_full || std::exchange(told_, true)) return;
    LOG_WARN("no {} bytes are held on the disk of {} for when it is full: {}",
             options_.bytes, options_.dir, Message(status));
    return;
  }
  held_ = options_.bytes;
  full_ = false;
  gave_up_ = false;
  told_ = false;
  if (was_full) {
    LOG_INFO("there is room on the disk of {} again: everything is accepted",
             options_.dir);
  }
}

}  // namespace lockstep::server
