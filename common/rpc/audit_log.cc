#include "common/rpc/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/fd.h"
#include "common/base/logging.h"
#include "common/base/mutex.h"

namespace lockstep {
namespace {

// As in the daemon's log: a caller chooses the length of names.
constexpr size_t kMaxField = 128;
constexpr size_t kMaxAuditMessage = 512;

std::string Cut(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

// The file's owner writes, its group reads.
constexpr mode_t kMode = 0640;

}  // namespace

std::string AuditJson(const AuditRecord& record, WallTime now) {
  nlohmann::ordered_json line;
  line["time"] = FormatWallTime(now);
  line["caller"] = record.who.empty() ? "unknown" : record.who;
  if (!record.from.empty()) line["address"] = Cut(record.from, kMaxField);
  line["method"] = Cut(record.method, kMaxField);
  if (!record.target.empty()) line["target"] = Cut(record.target, kMaxField);
  line["code"] = record.answer.ok() ? "OK" : CodeName(record.answer.code());
  line["refused"] = IsRefusal(record.answer);
  if (record.count != 1) line["count"] = record.count;
  if (!record.answer.ok()) {
    line["message"] =
        Cut(std::string(Message(record.answer)), kMaxAuditMessage);
  }
  // ASCII only, so that no terminal or log shipper interprets a byte.
  return line.dump(-1, ' ', /*ensure_ascii=*/true,
                   nlohmann::json::error_handler_t::replace);
}

// The open file. It stays open until another file is open, so a record is lost
// only if the kernel rejects it.
struct AuditLog::Sink {
  explicit Sink(const AuditLogOptions& o) : options(o) {}

  // Returns NAME.1.EXT for NAME.EXT.
  std::string NameOf(size_t number) const {
    const std::string& path = options.path;
    if (number == 0) return path;
    const size_t slash = path.rfind('/');
    const size_t begin = slash == path.npos ? 0 : slash + 1;
    const size_t dot = path.rfind('.');
    if (dot == path.npos || dot <= begin) {
      return fmt::format("{}.{}", path, number);
    }
    return fmt::format("{}.{}{}", path.substr(0, dot), number,
                       path.substr(dot));
  }

  Status Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    Fd opened(::open(options.path.c_str(),
                     O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kMode));
    if (!opened) return ErrnoStatus(errno, "opening " + options.path);
    struct stat info = {};
    if (::fstat(opened.get(), &info) != 0) {
      return ErrnoStatus(errno, "looking at " + options.path);
    }
    regular = S_ISREG(info.st_mode);
    size = static_cast<size_t>(std::max<off_t>(0, info.st_size));
    // With the umask's mode it is still an audit log.
    if (regular) (void)::fchmod(opened.get(), kMode);
    file = std::move(opened);
    return OkStatus();
  }

  // Checks that a file can be created in its directory, as rotation requires.
  Status CheckDirectory() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (!regular) return OkStatus();
    const std::string probe = options.path + ".check";
    const Fd made(::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kMode));
    if (!made) return ErrnoStatus(errno, "making " + probe);
    (void)::unlink(probe.c_str());
    return OkStatus();
  }

  Status Rotate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    // If the last attempt moved the file but could not create the next one,
    // only the second step is left.
    if (::access(options.path.c_str(), F_OK) == 0) {
      for (size_t i = std::max<size_t>(1, options.keep); i > 0; --i) {
        const std::string from = NameOf(i - 1);
        if (::access(from.c_str(), F_OK) != 0) continue;
        if (::rename(from.c_str(), NameOf(i).c_str()) != 0) {
          return ErrnoStatus(errno, "renaming " + from);
        }
      }
    }
    return Open();
  }

  Status Write(std::string_view line) {
    MutexLock lock(&mu);
    const MonoTime now = MonotonicNow();
    if (regular && size > 0 && size + line.size() > options.max_bytes &&
        now >= next_rotation) {
      next_rotation = {};
      if (const Status status = Rotate(); !status.ok()) {
        next_rotation = now + options.retry;
        LOG_ERROR(
            "the audit log {} exceeds {} bytes because it cannot be "
            "rotated: {}",
            options.path, options.max_bytes, Message(status));
      }
    }
    for (size_t done = 0; done < line.size();) {
      const ssize_t n =
          ::write(file.get(), line.data() + done, line.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        const int error = n < 0 ? errno : EIO;
        // A record must not begin inside another one's line.
        if (regular && done > 0) {
          (void)!::ftruncate(file.get(), static_cast<off_t>(size));
        }
        return ErrnoStatus(error, "writing");
      }
      done += static_cast<size_t>(n);
    }
    size += line.size();
    return OkStatus();
  }

  const AuditLogOptions options;
  Mutex mu;
  Fd file ABSL_GUARDED_BY(mu);
  // It is not a device or a pipe, so it can be rotated.
  bool regular ABSL_GUARDED_BY(mu) = false;
  size_t size ABSL_GUARDED_BY(mu) = 0;
  MonoTime next_rotation ABSL_GUARDED_BY(mu);
};

StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(AuditLogOptions options) {
  auto sink = std::make_unique<Sink>(options);
  {
    MutexLock lock(&sink->mu);
    Status status = sink->Open();
    if (status.ok()) status = sink->CheckDirectory();
    if (!status.ok()) {
      return FailedPrecondition("the audit log {} cannot be opened: {}",
                                options.path, Message(status));
    }
  }
  return std::unique_ptr<AuditLog>(
      new AuditLog(std::move(options.path), std::move(sink)));
}

AuditLog::AuditLog(std::string path, std::unique_ptr<Sink> sink)
    : path_(std::move(path)), sink_(std::move(sink)) {}

AuditLog::~AuditLog() = default;

void AuditLog::Write(const AuditRecord& record, WallTime now) {
  const Status status = sink_->Write(AuditJson(record, now) + "\n");
  if (status.ok()) return;
  LOG_ERROR("the audit log {} cannot be written ({}): {}", path_,
            Message(status), AuditLine(record));
}

}  // namespace lockstep
