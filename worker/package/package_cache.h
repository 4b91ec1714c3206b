// The packages that are on this node: DIR/sha256-HEX, one file each.
//
// Concurrent requests for a package share one fetch. A package stays while a
// lease on it exists. Beyond the limit, packages without a lease are removed,
// the least recently used first. A file of an earlier daemon is checked by its
// digest before its first use, so nothing here needs to be synced to disk. Safe
// from any thread.
#ifndef LOCKSTEP_WORKER_PACKAGE_PACKAGE_CACHE_H_
#define LOCKSTEP_WORKER_PACKAGE_PACKAGE_CACHE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/model/job.h"
#include "worker/package/cancellation.h"
#include "worker/package/package_source.h"

namespace lockstep::worker::package {

struct PackageCacheOptions {
  std::string dir;
  uint64_t limit_bytes = uint64_t{20} << 30;
  // Limit for a fetch that receives no byte.
  Duration idle = std::chrono::seconds(60);
  // Limit for a whole fetch.
  Duration most = std::chrono::minutes(30);
  // Wait after an interrupted connection; doubles up to 2 s.
  Duration backoff = std::chrono::milliseconds(100);
};

class PackageCache {
 public:
  // Keeps a package in the cache. Must end before the cache does.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)),
          digest_(std::move(other.digest_)),
          path_(std::move(other.path_)) {}
    Lease& operator=(Lease&& other) noexcept {
      if (this != &other) {
        Release();
        cache_ = std::exchange(other.cache_, nullptr);
        digest_ = std::move(other.digest_);
        path_ = std::move(other.path_);
      }
      return *this;
    }
    ~Lease() { Release(); }
    // A file that only the daemon's user can reach.
    const std::string& path() const { return path_; }

   private:
    friend class PackageCache;
    Lease(PackageCache* cache, std::string digest, std::string path)
        : cache_(cache), digest_(std::move(digest)), path_(std::move(path)) {}
    void Release() {
      if (cache_ != nullptr) cache_->Release(digest_);
      cache_ = nullptr;
    }

    PackageCache* cache_ = nullptr;
    std::string digest_;
    std::string path_;
  };

  // Called with the number of bytes received so far.
  using Progress = std::function<void(int64_t bytes)>;

  // Finds the packages of an earlier daemon. `source` is borrowed.
  static StatusOr<std::unique_ptr<PackageCache>> Open(
      PackageCacheOptions options, PackageSource* source);

  // Waits until the package is here. Calls `progress` from time to time on this
  // thread. Errors, each a sentence:
  //   InvalidArgument    `package` is invalid
  //   NotFound           the coordinator does not have the package
  //   DataLoss           the received or stored bytes do not match the digest
  //   and
  //                      the size
  //   DeadlineExceeded   no bytes arrived for `idle`, or it took too long
  //   ResourceExhausted  the disk is full
  //   Cancelled          nothing is left, unless another caller wants it too
  StatusOr<Lease> Get(const Package& package, const Progress& progress,
                      Cancellation* cancel) ABSL_LOCKS_EXCLUDED(mu_);

  // Total size of complete packages.
  uint64_t bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    uint64_t bytes = 0;  // Size of the file, if present.
    int users = 0;       // Leases, and those who wait for it.
    bool present = false;
    bool checked = false;
    bool busy = false;  // A caller fetches or checks it.
    WallTime last_used{};
    int64_t arrived = 0;
  };

  PackageCache(PackageCacheOptions options, PackageSource* source)
      : options_(std::move(options)), source_(source) {}
  Status Find();
  std::string PathOf(const std::string& digest) const;
  void Release(const std::string& digest) ABSL_LOCKS_EXCLUDED(mu_);
  void Sweep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fetches the file unless it is here. Sets `*checked` if it exists and
  // matches its digest.
  Status Fetch(const Package& package, const Progress& progress,
               Cancellation* cancel, bool* checked) ABSL_LOCKS_EXCLUDED(mu_);
  // Records the state of the file afterwards.
  void Note(const std::string& digest, bool checked) ABSL_LOCKS_EXCLUDED(mu_);

  const PackageCacheOptions options_;
  PackageSource* const source_;
  mutable Mutex mu_;
  CondVar changed_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mu_);  // By digest.
};

}  // namespace lockstep::worker::package

#endif  // LOCKSTEP_WORKER_PACKAGE_PACKAGE_CACHE_H_
