// The site's tables: machines, runtimes, images, regions, and prices. Their
// files may change while the coordinator runs. Jobs keep the values from their
// submission.
#ifndef LOCKSTEP_SERVER_SITE_SITE_TABLES_H_
#define LOCKSTEP_SERVER_SITE_SITE_TABLES_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/training/site.h"

namespace lockstep::server {

// Thread-safe.
class SiteTables {
 public:
  // The shipped tables.
  SiteTables();
  // Reads the file `path`. `files` outlives this object. NotFound,
  // InvalidArgument with the position if the file is unreadable or wrong.
  static StatusOr<std::unique_ptr<SiteTables>> Open(FileSystem* files,
                                                    const std::string& path);
  explicit SiteTables(Site site);

  // Returns the current tables. Returned values never change.
  std::shared_ptr<const Site> Get() const;
  void Set(Site site);
  // Reads the file again. An error changes nothing. No effect without a file.
  Status Reload();

 private:
  FileSystem* files_ = nullptr;
  std::string path_;
  mutable Mutex mu_;
  std::shared_ptr<const Site> site_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_SITE_SITE_TABLES_H_
