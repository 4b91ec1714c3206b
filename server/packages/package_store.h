// Code packages of jobs as files, one per content, named by SHA-256 and
// immutable.
//
//   DIR/sha256/ab/abcd...        the bytes
//   DIR/sha256/ab/abcd....owner  its owners, one per line: it counts towards
//                                each owner's quota
//   DIR/incoming/N               an upload; removed at every start
//
// A digest is not a password: everybody who sees a job knows its digests. A
// user who has not uploaded the bytes cannot use the package. Uploading them
// makes the user an owner.
//
// An unfinished upload leaves nothing. Unused packages are removed after a
// while: see package_sweeper.h. Thread-safe.
#ifndef LOCKSTEP_SERVER_PACKAGES_PACKAGE_STORE_H_
#define LOCKSTEP_SERVER_PACKAGES_PACKAGE_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/base/sha256.h"
#include "common/base/status.h"
#include "common/model/job.h"

namespace lockstep::server {

// The prefix of a digest, and the suffix of an owner file.
inline constexpr std::string_view kDigestPrefix = "sha256:";
inline constexpr std::string_view kOwnerSuffix = ".owner";

struct PackageStoreOptions {
  // Created if missing; the caller must sync its parent.
  std::string dir;
  uint64_t max_bytes = uint64_t{2} << 30;         // Of one package.
  uint64_t max_owner_bytes = uint64_t{20} << 30;  // Of one user's packages.
  // Uploads leave this much disk free, because records of jobs share it.
  uint64_t reserve_bytes = uint64_t{1} << 30;
  // Returns the bytes available in `dir`. Empty to use statvfs.
  std::function<StatusOr<uint64_t>()> free_bytes;

  // Digests that unfinished jobs need. If a user's quota is short, other
  // packages are removed at once; none are if this is empty. Called without a
  // lock.
  std::function<std::set<std::string>()> needed;
};

// The minimum charge of a package, because each has files and memory.
inline constexpr uint64_t kMinPackageCharge = 64 << 10;
// A package used within this time is kept even if a quota is short: the
// packages of one job arrive one by one before the job.
inline constexpr Duration kPackageGrace = std::chrono::minutes(5);

// The calling user.
struct PackageUser {
  std::string name;
  // May use packages of other users.
  bool admin = false;
};

struct PackageStats {
  uint64_t packages = 0;
  uint64_t bytes = 0;
  // Uploads since the start: stored, already present, failed, over a limit.
  uint64_t stored = 0;
  uint64_t existed = 0;
  uint64_t failed = 0;
  uint64_t refused = 0;
  // Removed by the sweeper.
  uint64_t removed = 0;
};

class PackageStore {
 public:
  // Scans the directory and removes unfinished uploads. `files` and `clock`
  // outlive the store.
  static StatusOr<std::unique_ptr<PackageStore>> Open(
      FileSystem* files, PackageStoreOptions options, const Clock* clock);

  // A package being written. If it is not finished, it leaves nothing. Not
  // synchronised; must end before the store.
  class Upload {
   public:
    ~Upload();
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;
    // InvalidArgument if there are more bytes than declared. ResourceExhausted
    // if the disk is nearly full.
    Status Append(std::string_view data);
    // Makes it durable under its name. InvalidArgument if the bytes do not
    // match.
    Status Finish();

   private:
    friend class PackageStore;
    Upload(PackageStore* store, Package package, std::string owner,
           std::string path, std::unique_ptr<WritableFile> file);
    PackageStore* const store_;
    const Package package_;
    const std::string owner_;
    const std::string path_;
    std::unique_ptr<WritableFile> file_;
    Sha256Stream sha_;
    uint64_t written_ = 0;
    uint64_t looked_ = 0;  // `written_` at the last disk check.
    bool done_ = false;
  };

  // Returns null if the package exists for `user`; it is then kept for a while.
  // ResourceExhausted if it is too large, or exceeds the user's quota or the
  // disk space, running uploads included. REQUIRES: the digest is valid
  // ("sha256:" and 64 hex digits).
  StatusOr<std::unique_ptr<Upload>> Begin(const PackageUser& user,
                                          const Package& package);
  // True if the package exists for `user` with this size. It is then kept for a
  // while.
  bool Keep(const PackageUser& user, const Package& package);
  struct Content {
    std::unique_ptr<ReadableFile> file;
    uint64_t bytes = 0;
  };
  // NotFound. Opened content stays readable after removal.
  StatusOr<Content> Read(const std::string& digest);

  // Returns the packages not used since `time`.
  std::vector<std::string> UnusedSince(WallTime time) const;
  // Removes it unless it was used since `time`.
  void Remove(const std::string& digest, WallTime time);
  PackageStats Stats() const;

 private:
  struct Entry {
    uint64_t bytes = 0;
    std::set<std::string> owners;
    // Since the store was opened.
    WallTime last_use{};

    bool IsFor(const PackageUser& user) const {
      return user.admin || owners.contains(user.name);
    }
  };

  PackageStore(FileSystem* files, PackageStoreOptions options,
               const Clock* clock);
  Status TakeStock();
  Status TakeStockOf(const std::string& dir);
  // Scans one existing package and its owners.
  Status TakeStockOf(const std::string& path, const std::string& hex)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string PathOf(const std::string& digest) const;
  // ResourceExhausted, each for its own reason.
  Status CheckSize(const Package& package);
  Status CheckQuota(const std::string& owner, const Package& package)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Checks that the reserve stays free after `more` bytes and the declared
  // bytes not written yet.
  Status CheckDisk(const Package& package, uint64_t more)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the packages of `owner` that no unfinished job needs, or the
  // ownership.
  void MakeRoom(const std::string& owner);
  void Disown(const std::string& digest, const std::string& owner,
              WallTime time);
  Status WriteOwners(const std::string& digest,
                     const std::set<std::string>& owners);
  void Erase(std::map<std::string, Entry>::iterator entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Publish(const Upload& upload);
  // Records that `bytes` of `upload` are on the disk.
  Status Wrote(Upload* upload, uint64_t bytes);
  // Ends `upload`, stored or not.
  void Release(const Upload& upload, bool stored);
  WallTime Now() const { return clock_->Now().wall; }

  FileSystem* const files_;
  const PackageStoreOptions options_;
  const Clock* const clock_;
  mutable Mutex mu_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  // By owner: stored packages and running uploads.
  std::map<std::string, uint64_t> owner_bytes_ ABSL_GUARDED_BY(mu_);
  // Declared bytes of all uploads that are not written yet.
  uint64_t outstanding_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t next_upload_ ABSL_GUARDED_BY(mu_) = 1;
  PackageStats stats_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PACKAGES_PACKAGE_STORE_H_
