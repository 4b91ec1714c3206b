// The code that jobs bring, as files: one for each content, named by its
// SHA-256, written once and never changed.
//
//   DIR/sha256/ab/abcd...        the bytes
//   DIR/sha256/ab/abcd....owner  who brought them, one on a line: they count
//                                for each of them
//   DIR/incoming/N               being uploaded; removed at every start
//
// A name is no password: who knows a digest, as everybody who sees a job does,
// but has not brought the bytes, is as one for whom the package is not there.
// Who brings them becomes one of its owners.
//
// A package that was begun and not finished leaves nothing. What is needed by
// no job goes after a while: see package_sweeper.h. Thread-safe.
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

namespace lockstep {

// How a digest begins, and how the file of a package's owners ends.
inline constexpr std::string_view kDigestPrefix = "sha256:";
inline constexpr std::string_view kOwnerSuffix = ".owner";

struct PackageStoreOptions {
  // Made when it is missing; that its name is on the disk is the caller's
  // business.
  std::string dir;
  uint64_t max_bytes = uint64_t{2} << 30;         // Of one package.
  uint64_t max_owner_bytes = uint64_t{20} << 30;  // Of what one user brought.
  // What uploads leave free on the disk: records of jobs are on it too.
  uint64_t reserve_bytes = uint64_t{1} << 30;
  // Bytes left for this process where `dir` is; empty: as statvfs says.
  std::function<StatusOr<uint64_t>()> free_bytes;
  // Digests that live jobs need. Where a user's quota is short, what is not
  // among them goes at once; empty: nothing does. Called without a lock.
  std::function<std::set<std::string>()> needed;
};

// A package counts for at least so many bytes: each has its files and its
// place in memory.
inline constexpr uint64_t kMinPackageCharge = 64 << 10;
// What was asked for so recently stays even where a quota is short: packages
// of one job come one after the other, and then the job.
inline constexpr Duration kPackageGrace = std::chrono::minutes(5);

// Who asks.
struct PackageUser {
  std::string name;
  // May use what others brought.
  bool admin = false;
};

struct PackageStats {
  uint64_t packages = 0;
  uint64_t bytes = 0;
  // Since the start: stored; there already; broken off or wrong; over a limit.
  uint64_t stored = 0;
  uint64_t existed = 0;
  uint64_t failed = 0;
  uint64_t refused = 0;
  // By the sweeper.
  uint64_t removed = 0;
};

class PackageStore {
 public:
  // Takes stock of what is there, and removes what was never finished. `files`
  // and `clock` outlive it.
  static StatusOr<std::unique_ptr<PackageStore>> Open(
      FileSystem* files, PackageStoreOptions options, const Clock* clock);

  // A package being written. Not finished, it leaves nothing. Not
  // synchronised; ends before the store does.
  class Upload {
   public:
    ~Upload();
    Upload(const Upload&) = delete;
    Upload& operator=(const Upload&) = delete;
    // InvalidArgument: more than was said. ResourceExhausted: the disk is
    // nearly full.
    Status Append(std::string_view data);
    // Durable under its name. InvalidArgument: not the bytes that were said.
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
    uint64_t looked_ = 0;  // Of `written_`, when the disk was last looked at.
    bool done_ = false;
  };

  // Null: it is there already for `user`, and is kept for a while.
  // ResourceExhausted: too large, or more than `user` may have or the disk has,
  // what is being uploaded included.
  // REQUIRES: the digest is one ("sha256:" and 64 hex digits).
  StatusOr<std::unique_ptr<Upload>> Begin(const PackageUser& user,
                                          const Package& package);
  // Whether it is there for `user` with so many bytes; then it is kept for a
  // while.
  bool Keep(const PackageUser& user, const Package& package);
  struct Content {
    std::unique_ptr<ReadableFile> file;
    uint64_t bytes = 0;
  };
  // NotFound. What was opened stays readable after it was removed.
  StatusOr<Content> Read(const std::string& digest);

  // Those that nobody asked for since `time`.
  std::vector<std::string> UnusedSince(WallTime time) const;
  // Unless somebody has asked for it since `time`.
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
  // One that is there, with its owners.
  Status TakeStockOf(const std::string& path, const std::string& hex)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string PathOf(const std::string& digest) const;
  // ResourceExhausted: each for its reason.
  Status CheckSize(const Package& package);
  Status CheckQuota(const std::string& owner, const Package& package)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // With `more` bytes beside those that are announced and
  // not written, less than the reserve would be left.
  Status CheckDisk(const Package& package, uint64_t more)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What `owner` brought and no live job needs goes, or is theirs no more.
  void MakeRoom(const std::string& owner);
  void Disown(const std::string& digest, const std::string& owner,
              WallTime time);
  Status WriteOwners(const std::string& digest,
                     const std::set<std::string>& owners);
  void Erase(std::map<std::string, Entry>::iterator entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Publish(const Upload& upload);
  // So many bytes of `upload` are on the disk.
  Status Wrote(Upload* upload, uint64_t bytes);
  // `upload` is over, stored or not.
  void Release(const Upload& upload, bool stored);
  WallTime Now() const { return clock_->Now().wall; }

  FileSystem* const files_;
  const PackageStoreOptions options_;
  const Clock* const clock_;
  mutable Mutex mu_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);
  // By owner: of entries, and of what is being uploaded.
  std::map<std::string, uint64_t> owner_bytes_ ABSL_GUARDED_BY(mu_);
  // Of all uploads: announced and not written yet.
  uint64_t outstanding_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t next_upload_ ABSL_GUARDED_BY(mu_) = 1;
  PackageStats stats_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_PACKAGES_PACKAGE_STORE_H_
