// Accesses files as another user, for a daemon that runs as root. Paths that a
// job names are opened with the rights of the job's user, so the kernel checks
// that user's permissions.
#ifndef LOCKSTEP_COMMON_OS_AS_USER_H_
#define LOCKSTEP_COMMON_OS_AS_USER_H_

#include <sys/types.h>

#include <vector>

namespace lockstep {

// While it lives, the calling thread has the given file system user, group and
// groups, and lacks root's rights over files. Destroy it on the same thread.
// Not nested.
class AsUser {
 public:
  AsUser(uid_t uid, gid_t gid, const std::vector<gid_t>& groups);
  ~AsUser();
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;

  // False if the caller is not root. Then no file may be accessed.
  bool ok() const { return ok_; }

 private:
  std::vector<gid_t> groups_;
  uid_t uid_ = 0;
  gid_t gid_ = 0;
  bool regrouped_ = false;
  bool changed_ = false;
  bool ok_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_OS_AS_USER_H_
