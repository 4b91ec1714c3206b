// Looking at and making files as somebody else, for a daemon that is root: what
// a job names is opened with the rights of the job's user, so that the kernel
// says what that user may.
#ifndef LOCKSTEP_COMMON_OS_AS_USER_H_
#define LOCKSTEP_COMMON_OS_AS_USER_H_

#include <sys/types.h>

#include <vector>

namespace lockstep {

// While it lives, the file system's user, group and groups of the calling
// thread are those given, and root's rights over files are gone. Of this
// thread alone: it must be destroyed on it. Not nested.
class AsUser {
 public:
  AsUser(uid_t uid, gid_t gid, const std::vector<gid_t>& groups);
  ~AsUser();
  AsUser(const AsUser&) = delete;
  AsUser& operator=(const AsUser&) = delete;

  // False: nothing may be done; the caller is not root.
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
