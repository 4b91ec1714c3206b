// The site's tables as files that may change while the coordinator runs:
// machines, runtimes, images, regions; and prices. What a job was given stays
// with the job.
#ifndef LOCKSTEP_SERVER_SITE_SITE_TABLES_H_
#define LOCKSTEP_SERVER_SITE_SITE_TABLES_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/file.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/training/site.h"

namespace lockstep {

// Thread-safe.
class SiteTables {
 public:
  // The shipped tables.
  SiteTables();
  // Those of the file `path`. `files` outlives it. NotFound, InvalidArgument:
  // the file cannot be read, or is wrong: says where.
  static StatusOr<std::unique_ptr<SiteTables>> Open(FileSystem* files,
                                                    const std::string& path);
  explicit SiteTables(Site site);

  // As they are now; what was handed out does not change.
  std::shared_ptr<const Site> Get() const;
  void Set(Site site);
  // Reads the file again. After an error everything is as it was. Without a
  // file: nothing happens.
  Status Reload();

 private:
  FileSystem* files_ = nullptr;
  std::string path_;
  mutable Mutex mu_;
  std::shared_ptr<const Site> site_ ABSL_GUARDED_BY(mu_);
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_SITE_SITE_TABLES_H_
