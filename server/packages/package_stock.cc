// Scans the existing packages when the store is opened.
#include <algorithm>
#include <sstream>
#include <utility>

#include "common/base/hex.h"
#include "common/base/logging.h"
#include "server/packages/package_store.h"

namespace lockstep::server {
namespace {

// The suffix of FileSystem::WriteAtomic.
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr size_t kDigits = 64;
constexpr uint64_t kMaxOwners = 16 << 20;

// A package's owner file or its unfinished version.
bool IsOwners(std::string_view name) {
  return IsHex(name.substr(0, kDigits), kDigits) &&
         (name.substr(kDigits) == kOwnerSuffix ||
          name.substr(kDigits) ==
              std::string(kOwnerSuffix) + std::string(kTemporarySuffix));
}

}  // namespace

Status PackageStore::TakeStock() {
  const std::string incoming = JoinPath(options_.dir, "incoming");
  const std::string root = JoinPath(options_.dir, "sha256");
  LOCKSTEP_RETURN_IF_ERROR(files_->RemoveAll(incoming));
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(incoming, 0700));
  LOCKSTEP_RETURN_IF_ERROR(files_->MakeDirs(root, 0700));
  // Entries are durable only after their folder is synced.
  LOCKSTEP_RETURN_IF_ERROR(files_->SyncDir(options_.dir));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto dirs, files_->List(root));
  for (const std::string& dir : dirs) {
    const std::string path = JoinPath(root, dir);
    LOCKSTEP_ASSIGN_OR_RETURN(const FileInfo info, files_->Stat(path));
    if (!IsHex(dir, 2) || !info.is_directory) {
      LOG_WARN("{} is not a package folder: ignored", path);
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(TakeStockOf(path));
  }
  return OkStatus();
}

Status PackageStore::TakeStockOf(const std::string& dir) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto names, files_->List(dir));
  const std::string beginning = dir.substr(dir.rfind('/') + 1);
  MutexLock lock(&mu_);
  for (const std::string& name : names) {
    const std::string path = JoinPath(dir, name);
    if (IsHex(name, kDigits) && name.starts_with(beginning)) {
      LOCKSTEP_RETURN_IF_ERROR(TakeStockOf(path, name));
      continue;
    }
    const bool is_left_over =
        IsOwners(name) && (name.ends_with(kTemporarySuffix) ||
                           !std::binary_search(names.begin(), names.end(),
                                               name.substr(0, kDigits)));
    if (is_left_over) {
      (void)files_->Remove(path);
    } else if (!IsOwners(name)) {
      LOG_WARN("{} is not a package: ignored", path);
    }
  }
  return OkStatus();
}

Status PackageStore::TakeStockOf(const std::string& path,
                                 const std::string& hex) {
  LOCKSTEP_ASSIGN_OR_RETURN(const FileInfo info, files_->Stat(path));
  if (info.is_directory) {
    LOG_WARN("{} is not a package: ignored", path);
    return OkStatus();
  }
  Entry entry;
  entry.bytes = info.size;
  // A client that checked for it before the restart may submit its job now.
  entry.last_use = Now();
  std::istringstream lines(
      files_->Read(path + std::string(kOwnerSuffix), kMaxOwners).value_or(""));
  for (std::string owner; std::getline(lines, owner);) {
    if (!owner.empty()) entry.owners.insert(owner);
  }
  stats_.bytes += entry.bytes;
  for (const std::string& owner : entry.owners) {
    owner_bytes_[owner] += std::max(entry.bytes, kMinPackageCharge);
  }
  entries_.emplace(std::string(kDigestPrefix) + hex, std::move(entry));
  return OkStatus();
}

}  // namespace lockstep::server
