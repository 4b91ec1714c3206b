#include "server/packages/package_store.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <utility>

#include "common/base/fault_point.h"
#include "common/base/logging.h"

namespace lockstep::server {
namespace {

// Bytes of an upload between two disk checks.
constexpr uint64_t kLookEvery = uint64_t{64} << 20;

std::string Size(uint64_t bytes) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  if (bytes < kMiB) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / kMiB);
}

uint64_t BytesOf(const Package& package) {
  return static_cast<uint64_t>(package.bytes);
}

uint64_t ChargeOf(uint64_t bytes) { return std::max(bytes, kMinPackageCharge); }

StatusOr<uint64_t> FreeBytes(const std::string& dir) {
  struct statvfs use {};
  if (::statvfs(dir.c_str(), &use) != 0) {
    return ErrnoStatus(errno, "statvfs " + dir);
  }
  return uint64_t{use.f_bavail} * use.f_frsize;
}

}  // namespace

PackageStore::PackageStore(FileSystem* files, PackageStoreOptions options,
                           const Clock* clock)
    : files_(files), options_(std::move(options)), clock_(clock) {}

StatusOr<std::unique_ptr<PackageStore>> PackageStore::Open(
    FileSystem* files, PackageStoreOptions options, const Clock* clock) {
  if (!options.free_bytes) {
    options.free_bytes = [dir = options.dir] { return FreeBytes(dir); };
  }
  std::unique_ptr<PackageStore> store(
      new PackageStore(files, std::move(options), clock));
  LOCKSTEP_RETURN_IF_ERROR(store->TakeStock());
  return store;
}

std::string PackageStore::PathOf(const std::string& digest) const {
  const std::string hex = digest.substr(kDigestPrefix.size());
  return fmt::format("{}/sha256/{}/{}", options_.dir, hex.substr(0, 2), hex);
}

// ---- Uploads ---------------------------------------------------------------

Status PackageStore::CheckSize(const Package& package) {
  if (BytesOf(package) <= options_.max_bytes) return OkStatus();
  return WithReason(
      ResourceExhausted("package {}: has {}; at most {} are allowed: put data "
                        "where the nodes can read it, not into the package",
                        package.file_name, Size(BytesOf(package)),
                        Size(options_.max_bytes)),
      "PACKAGE_TOO_LARGE");
}

Status PackageStore::CheckQuota(const std::string& owner,
                                const Package& package) {
  const auto used = owner_bytes_.find(owner);
  const uint64_t has = used == owner_bytes_.end() ? 0 : used->second;
  const uint64_t charge = ChargeOf(BytesOf(package));
  if (charge <=
      options_.max_owner_bytes - std::min(has, options_.max_owner_bytes)) {
    return OkStatus();
  }
  return WithReason(
      ResourceExhausted(
          "package {}: {} has {} of packages already and may "
          "have {}: this one counts {}; those that no job waits "
          "for or runs with are removed when a job ends: `lockstep "
          "jobs cancel`, or retry in some minutes",
          package.file_name, owner, Size(has), Size(options_.max_owner_bytes),
          Size(charge)),
      "PACKAGE_QUOTA");
}

Status PackageStore::CheckDisk(const Package& package, uint64_t more) {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t free, options_.free_bytes());
  const uint64_t wanted = outstanding_ + more + options_.reserve_bytes;
  if (free >= wanted) return OkStatus();
  return WithReason(
      ResourceExhausted("package {}: the coordinator's disk has {} left; "
                        "{} are being uploaded and {} kept free: retry "
                        "later, or make room in {}",
                        package.file_name, Size(free),
                        Size(outstanding_ + more), Size(options_.reserve_bytes),
                        options_.dir),
      "PACKAGE_DISK_FULL");
}

StatusOr<std::unique_ptr<PackageStore::Upload>> PackageStore::Begin(
    const PackageUser& user, const Package& package) {
  const uint64_t bytes = BytesOf(package);
  bool is_short = false;
  {
    MutexLock lock(&mu_);
    is_short = !CheckQuota(user.name, package).ok();
  }
  if (is_short) MakeRoom(user.name);
  MutexLock lock(&mu_);
  const auto known = entries_.find(package.digest);
  if (known != entries_.end() && known->second.IsFor(user)) {
    if (known->second.bytes != bytes) {
      return InvalidArgument("package {}: {} has {} bytes, not the declared {}",
                             package.file_name, package.digest,
                             known->second.bytes, bytes);
    }
    known->second.last_use = Now();
    ++stats_.existed;
    return std::unique_ptr<Upload>();
  }
  Status status = CheckSize(package);
  if (status.ok()) status = CheckQuota(user.name, package);
  if (status.ok()) status = CheckDisk(package, bytes);
  if (!status.ok()) {
    ++stats_.refused;
    return status;
  }
  const std::string path =
      fmt::format("{}/incoming/{}", options_.dir, next_upload_++);
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, files_->Create(path, 0600));
  owner_bytes_[user.name] += ChargeOf(bytes);
  outstanding_ += bytes;
  return std::unique_ptr<Upload>(
      new Upload(this, package, user.name, path, std::move(file)));
}

Status PackageStore::Wrote(Upload* upload, uint64_t bytes) {
  MutexLock lock(&mu_);
  upload->written_ += bytes;
  outstanding_ -= bytes;
  if (upload->written_ - upload->looked_ < kLookEvery) return OkStatus();
  upload->looked_ = upload->written_;
  return CheckDisk(upload->package_, 0);
}

Status PackageStore::WriteOwners(const std::string& digest,
                                 const std::set<std::string>& owners) {
  return files_->WriteAtomic(PathOf(digest) + std::string(kOwnerSuffix),
                             fmt::format("{}\n", fmt::join(owners, "\n")),
                             0600);
}

Status PackageStore::Publish(const Upload& upload) {
  const std::string& digest = upload.package_.digest;
  const std::string path = PathOf(digest);
  const std::string dir = path.substr(0, path.rfind('/'));
  const uint64_t bytes = BytesOf(upload.package_);
  MutexLock lock(&mu_);
  const auto known = entries_.find(digest);
  if (known != entries_.end()) {
    // Another user or upload stored it meanwhile.
    Entry& entry = known->second;
    entry.last_use = Now();
    if (!entry.owners.contains(upload.owner_)) {
      std::set<std::string> owners = entry.owners;
      owners.insert(upload.owner_);
      LOCKSTEP_RETURN_IF_ERROR(WriteOwners(digest, owners));
      entry.owners = std::move(owners);
      owner_bytes_[upload.owner_] += ChargeOf(bytes);
    }
    return files_->Remove(upload.path_);
  }
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(dir, 0700));
  LOCKSTEP_RETURN_IF_ERROR(WriteOwners(digest, {upload.owner_}));
  LOCKSTEP_RETURN_IF_ERROR(FaultPoint("package_publish"));
  LOCKSTEP_RETURN_IF_ERROR(files_->Rename(upload.path_, path));
  LOCKSTEP_RETURN_IF_ERROR(files_->SyncDir(dir));
  LOCKSTEP_RETURN_IF_ERROR(files_->SyncDir(JoinPath(options_.dir, "sha256")));
  entries_[digest] = {bytes, {upload.owner_}, Now()};
  owner_bytes_[upload.owner_] += ChargeOf(bytes);
  stats_.bytes += bytes;
  return OkStatus();
}

void PackageStore::Release(const Upload& upload, bool stored) {
  const uint64_t bytes = BytesOf(upload.package_);
  MutexLock lock(&mu_);
  owner_bytes_[upload.owner_] -= ChargeOf(bytes);
  outstanding_ -= bytes - upload.written_;
  ++(stored ? stats_.stored : stats_.failed);
}

// ---- Use and end -----------------------------------------------------------

bool PackageStore::Keep(const PackageUser& user, const Package& package) {
  MutexLock lock(&mu_);
  const auto known = entries_.find(package.digest);
  if (known == entries_.end() || !known->second.IsFor(user) ||
      known->second.bytes != BytesOf(package)) {
    return false;
  }
  known->second.last_use = Now();
  return true;
}

StatusOr<PackageStore::Content> PackageStore::Read(const std::string& digest) {
  MutexLock lock(&mu_);
  const auto known = entries_.find(digest);
  if (known == entries_.end()) {
    return NotFound("there is no package {}", digest);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(auto file, files_->OpenRead(PathOf(digest)));
  return Content{std::move(file), known->second.bytes};
}

std::vector<std::string> PackageStore::UnusedSince(WallTime time) const {
  MutexLock lock(&mu_);
  std::vector<std::string> unused;
  for (const auto& [digest, entry] : entries_) {
    if (entry.last_use < time) unused.push_back(digest);
  }
  return unused;
}

void PackageStore::Remove(const std::string& digest, WallTime time) {
  MutexLock lock(&mu_);
  const auto known = entries_.find(digest);
  if (known == entries_.end() || known->second.last_use >= time) return;
  Erase(known);
}

void PackageStore::Erase(std::map<std::string, Entry>::iterator entry) {
  const auto& [digest, known] = *entry;
  const std::string path = PathOf(digest);
  if (const Status status = files_->Remove(path);
      !status.ok() && status.code() != StatusCode::kNotFound) {
    LOG_WARN("package {} is not removed: {}", digest, Message(status));
    return;
  }
  (void)files_->Remove(path + std::string(kOwnerSuffix));
  for (const std::string& owner : known.owners) {
    owner_bytes_[owner] -= ChargeOf(known.bytes);
  }
  stats_.bytes -= known.bytes;
  ++stats_.removed;
  entries_.erase(entry);
}

void PackageStore::MakeRoom(const std::string& owner) {
  if (!options_.needed) return;
  const WallTime limit = Now() - kPackageGrace;
  const std::vector<std::string> unused = UnusedSince(limit);
  if (unused.empty()) return;
  // After the listing, as in the sweeper.
  const std::set<std::string> needed = options_.needed();
  for (const std::string& digest : unused) {
    if (!needed.contains(digest)) Disown(digest, owner, limit);
  }
}

void PackageStore::Disown(const std::string& digest, const std::string& owner,
                          WallTime time) {
  MutexLock lock(&mu_);
  const auto known = entries_.find(digest);
  if (known == entries_.end() || known->second.last_use >= time) return;
  Entry& entry = known->second;
  if (!entry.owners.contains(owner)) return;
  if (entry.owners.size() == 1) return Erase(known);
  std::set<std::string> others = entry.owners;
  others.erase(owner);
  if (const Status status = WriteOwners(digest, others); !status.ok()) {
    LOG_WARN("package {} stays {}'s: {}", digest, owner, Message(status));
    return;
  }
  entry.owners = std::move(others);
  owner_bytes_[owner] -= ChargeOf(entry.bytes);
}

PackageStats PackageStore::Stats() const {
  MutexLock lock(&mu_);
  PackageStats stats = stats_;
  stats.packages = entries_.size();
  return stats;
}

}  // namespace lockstep::server
