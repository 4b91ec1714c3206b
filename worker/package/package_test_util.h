// What the tests of packages share.
#ifndef LOCKSTEP_WORKER_PACKAGE_PACKAGE_TEST_UTIL_H_
#define LOCKSTEP_WORKER_PACKAGE_PACKAGE_TEST_UTIL_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mutex.h"
#include "common/model/job.h"
#include "worker/package/package_source.h"

namespace lockstep::worker::package {

// A folder that goes at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const;

 private:
  std::string path_;
};

// Writes tar archives, the evil ones too.
class TarWriter {
 public:
  TarWriter& File(std::string_view name, std::string_view contents,
                  uint32_t mode = 0644);
  TarWriter& Folder(std::string_view name) { return Add('5', name, "", ""); }
  TarWriter& Link(std::string_view name, std::string_view target) {
    return Add('2', name, target, "");
  }
  TarWriter& HardLink(std::string_view name, std::string_view target) {
    return Add('1', name, target, "");
  }
  // Any type, and contents as they are.
  TarWriter& Add(char type, std::string_view name, std::string_view link,
                 std::string_view contents, uint32_t mode = 0644);
  // A pax header for the entry that follows.
  TarWriter& Pax(std::string_view key, std::string_view value);
  // With the end mark.
  std::string Done() const { return bytes_ + std::string(1024, '\0'); }
  std::string Gzipped() const;

 private:
  std::string bytes_;
};

std::string Gzip(std::string_view bytes);

Package PackageOf(std::string_view bytes, const std::string& file_name,
                  PackageFormat format = PackageFormat::kTree);

// Packages in memory; a connection that breaks or hangs when told to.
class FakePackageSource final : public PackageSource {
 public:
  // Holds what is put in under the digest of `bytes`.
  Package Put(const std::string& bytes, const std::string& file_name,
              PackageFormat format = PackageFormat::kTree);
  // Other bytes under the same digest.
  void Spoil(const Package& package, const std::string& bytes);

  Status Fetch(const std::string& digest, int64_t offset, Duration idle,
               const Take& take, Cancellation* cancel) override;

  // Read by Fetch: after that many bytes of a call it says UNAVAILABLE, or
  // hangs until cancelled or `idle` is over.
  std::atomic<int64_t> break_after{-1};
  std::atomic<int64_t> hang_after{-1};
  std::atomic<int> fetches{0};
  // Hanging right now.
  std::atomic<int> hanging{0};
  std::vector<int64_t> offsets();

 private:
  Mutex mu_;
  std::map<std::string, std::string> packages_ ABSL_GUARDED_BY(mu_);
  std::vector<int64_t> offsets_ ABSL_GUARDED_BY(mu_);
};

// Waits until `condition` holds, at most 20 s.
bool Eventually(const std::function<bool()>& condition);

}  // namespace lockstep::worker::package

#endif  // LOCKSTEP_WORKER_PACKAGE_PACKAGE_TEST_UTIL_H_
