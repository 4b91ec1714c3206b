#include "worker/package/package_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "common/base/hex.h"
#include "common/base/logging.h"
#include "common/base/sha256.h"
#include "worker/package/byte_source.h"

namespace lockstep::worker::package {
namespace {

constexpr std::string_view kDigestPrefix = "sha256:";
constexpr std::string_view kFilePrefix = "sha256-";
constexpr std::string_view kPart = ".part";
constexpr size_t kHexDigits = 64;
constexpr Duration kMostBackoff = std::chrono::seconds(2);
// Poll interval of a waiter for another caller's fetch.
constexpr Duration kLook = std::chrono::milliseconds(100);

bool IsDigest(std::string_view digest) {
  return digest.starts_with(kDigestPrefix) &&
         IsHex(digest.substr(kDigestPrefix.size()), kHexDigits);
}

std::string DigestOf(const Sha256Stream& hash) {
  return std::string(kDigestPrefix) + ToHex(hash.Digest());
}

StatusOr<std::string> DigestOfFile(const std::string& path,
                                   Cancellation* cancel) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto bytes, OpenByteSource(path));
  Sha256Stream hash;
  std::string buffer(1 << 20, '\0');
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(cancel->Check());
    LOCKSTEP_ASSIGN_OR_RETURN(const size_t count,
                              bytes->Read(buffer.data(), buffer.size()));
    if (count == 0) return DigestOf(hash);
    hash.Add({buffer.data(), count});
  }
}

// The job's claims about a package may be wrong.
Status CheckSize(const Package& package, uint64_t bytes) {
  if (bytes == static_cast<uint64_t>(package.bytes)) return OkStatus();
  return DataLoss("package {} has {} bytes, not {}", package.digest, bytes,
                  package.bytes);
}

// One download: from the first byte to the file that is right.
class Download {
 public:
  Download(const Package& package, std::string part,
           const PackageCacheOptions& options, PackageSource* source,
           std::function<void(int64_t)> progress, Cancellation* cancel)
      : package_(package),
        part_(std::move(part)),
        options_(options),
        source_(source),
        progress_(std::move(progress)),
        cancel_(cancel) {}

  Status Run() {
    LOCKSTEP_ASSIGN_OR_RETURN(file_, RealFileSystem()->Create(part_, 0644));
    begin_ = last_byte_ = MonotonicNow();
    for (Duration backoff = options_.backoff;;) {
      const int64_t before = arrived_;
      const Status status = source_->Fetch(
          package_.digest, arrived_, options_.idle,
          [this](std::string_view bytes) { return Take(bytes); }, cancel_);
      LOCKSTEP_RETURN_IF_ERROR(cancel_->Check());
      if (status.ok()) break;
      if (status.code() != StatusCode::kUnavailable) return status;
      if (arrived_ > before) backoff = options_.backoff;
      if (MonotonicNow() - last_byte_ >= options_.idle) {
        return DeadlineExceeded("received no bytes for {}: {}",
                                FormatDuration(options_.idle), Message(status));
      }
      if (!cancel_->SleepFor(backoff)) return cancel_->Check();
      backoff = std::min(backoff * 2, kMostBackoff);
    }
    LOCKSTEP_RETURN_IF_ERROR(file_->Close());
    if (arrived_ != package_.bytes) {
      return DataLoss("received only {} of {} bytes", arrived_, package_.bytes);
    }
    if (DigestOf(hash_) != package_.digest) {
      return DataLoss("wrong digest: received {} instead of {}",
                      DigestOf(hash_), package_.digest);
    }
    return OkStatus();
  }

 private:
  Status Take(std::string_view bytes) {
    if (static_cast<int64_t>(bytes.size()) > package_.bytes - arrived_) {
      return DataLoss("received more than its {} bytes", package_.bytes);
    }
    const MonoTime now = MonotonicNow();
    if (now - begin_ > options_.most) {
      return DeadlineExceeded("received {} of {} bytes in {}", arrived_,
                              package_.bytes, FormatDuration(options_.most));
    }
    LOCKSTEP_RETURN_IF_ERROR(file_->Append(bytes));
    hash_.Add(bytes);
    arrived_ += static_cast<int64_t>(bytes.size());
    last_byte_ = now;
    progress_(arrived_);
    return cancel_->Check();
  }

  const Package& package_;
  const std::string part_;
  const PackageCacheOptions& options_;
  PackageSource* const source_;
  const std::function<void(int64_t)> progress_;
  Cancellation* const cancel_;
  std::unique_ptr<WritableFile> file_;
  Sha256Stream hash_;
  int64_t arrived_ = 0;
  MonoTime begin_;
  MonoTime last_byte_;
};

}  // namespace

StatusOr<std::unique_ptr<PackageCache>> PackageCache::Open(
    PackageCacheOptions options, PackageSource* source) {
  std::unique_ptr<PackageCache> cache(
      new PackageCache(std::move(options), source));
  LOCKSTEP_RETURN_IF_ERROR(cache->Find());
  return cache;
}

Status PackageCache::Find() {
  FileSystem* const files = RealFileSystem();
  // Packages of jobs are private on this host.
  LOCKSTEP_RETURN_IF_ERROR(files->MakeDirs(options_.dir, 0700));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto names, files->List(options_.dir));
  MutexLock lock(&mu_);
  for (const std::string& name : names) {
    const std::string path = JoinPath(options_.dir, name);
    const std::string_view hex = std::string_view(name).substr(
        std::min(name.size(), kFilePrefix.size()));
    const auto info = files->Stat(path);
    if (!name.starts_with(kFilePrefix) || !IsHex(hex, kHexDigits) ||
        !info.ok() || info->is_directory) {
      // A fetch that was broken off, or nothing of ours.
      if (name.ends_with(kPart)) (void)files->Remove(path);
      continue;
    }
    Entry& entry = entries_[std::string(kDigestPrefix).append(hex)];
    entry.bytes = info->size;
    entry.present = true;
    entry.last_used = FromUnixNanos(info->mtime_unix_nanos);
  }
  Sweep();
  return OkStatus();
}

std::string PackageCache::PathOf(const std::string& digest) const {
  return JoinPath(
      options_.dir,
      std::string(kFilePrefix).append(digest.substr(kDigestPrefix.size())));
}

uint64_t PackageCache::bytes() const {
  MutexLock lock(&mu_);
  uint64_t total = 0;
  for (const auto& [digest, entry] : entries_) {
    if (entry.present) total += entry.bytes;
  }
  return total;
}

void PackageCache::Release(const std::string& digest) {
  MutexLock lock(&mu_);
  const auto it = entries_.find(digest);
  if (it == entries_.end()) return;
  --it->second.users;
  if (it->second.users == 0 && !it->second.present) {
    entries_.erase(it);
  } else {
    Sweep();
  }
}

void PackageCache::Sweep() {
  uint64_t total = 0;
  for (const auto& [digest, entry] : entries_) {
    if (entry.present) total += entry.bytes;
  }
  while (total > options_.limit_bytes) {
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (it->second.users > 0 || !it->second.present) continue;
      if (oldest == entries_.end() ||
          it->second.last_used < oldest->second.last_used) {
        oldest = it;
      }
    }
    if (oldest == entries_.end()) return;
    const std::string path = PathOf(oldest->first);
    if (const Status gone = RealFileSystem()->Remove(path); !gone.ok()) {
      LOG_WARN("package cache: {}", Message(gone));
    }
    total -= oldest->second.bytes;
    entries_.erase(oldest);
  }
}

StatusOr<PackageCache::Lease> PackageCache::Get(const Package& package,
                                                const Progress& progress,
                                                Cancellation* cancel) {
  if (!IsDigest(package.digest) || package.bytes <= 0) {
    return InvalidArgument("package {} has no digest or size",
                           package.file_name);
  }
  const std::string& digest = package.digest;
  {
    MutexLock lock(&mu_);
    ++entries_[digest].users;  // Keeps it from Sweep.
  }
  Lease lease(this, digest, PathOf(digest));
  for (;;) {
    int64_t arrived = 0;
    {
      MutexLock lock(&mu_);
      Entry& entry = entries_[digest];
      if (entry.present && entry.checked) {
        LOCKSTEP_RETURN_IF_ERROR(CheckSize(package, entry.bytes));
        const Time now = SystemClock().Now();
        entry.last_used = now.wall;
        // For the next daemon.
        (void)utimensat(AT_FDCWD, lease.path().c_str(), nullptr, 0);
        return lease;
      }
      if (!entry.busy) {
        entry.busy = true;
        break;
      }
      changed_.WaitFor(&mu_, kLook);
      arrived = entry.arrived;
    }
    LOCKSTEP_RETURN_IF_ERROR(cancel->Check());
    if (progress) progress(arrived);
  }
  bool checked = false;
  const Status fetched = Fetch(package, progress, cancel, &checked);
  Note(digest, checked);
  LOCKSTEP_RETURN_IF_ERROR(fetched);
  return lease;
}

void PackageCache::Note(const std::string& digest, bool checked) {
  // A cancelled check leaves the entry unchanged.
  const auto info = RealFileSystem()->Stat(PathOf(digest));
  MutexLock lock(&mu_);
  Entry& entry = entries_[digest];
  entry.busy = false;
  entry.arrived = 0;
  entry.present = info.ok();
  entry.checked = info.ok() && checked;
  entry.bytes = info.ok() ? info->size : 0;
  entry.last_used = SystemClock().Now().wall;
  if (entry.present) Sweep();
  changed_.NotifyAll();
}

Status PackageCache::Fetch(const Package& package, const Progress& progress,
                           Cancellation* cancel, bool* checked) {
  FileSystem* const files = RealFileSystem();
  const std::string path = PathOf(package.digest);
  if (files->Exists(path)) {
    const auto digest = DigestOfFile(path, cancel);
    if (digest.ok() && *digest == package.digest) {
      *checked = true;
      LOCKSTEP_ASSIGN_OR_RETURN(const FileInfo info, files->Stat(path));
      return CheckSize(package, info.size);
    }
    LOCKSTEP_RETURN_IF_ERROR(cancel->Check());
    LOG_WARN("package cache: {} is damaged, fetching it again", path);
    LOCKSTEP_RETURN_IF_ERROR(files->Remove(path));
  }
  if (source_ == nullptr) {
    return FailedPrecondition("this node has no package source");
  }
  const std::string part = path + std::string(kPart);
  Download download(
      package, part, options_, source_,
      [&](int64_t arrived) {
        {
          MutexLock lock(&mu_);
          entries_[package.digest].arrived = arrived;
        }
        if (progress) progress(arrived);
      },
      cancel);
  Status status = download.Run();
  if (status.ok()) status = files->Rename(part, path);
  if (!status.ok()) (void)files->Remove(part);
  *checked = status.ok();
  return status;
}

}  // namespace lockstep::worker::package
