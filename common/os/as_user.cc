#include "common/os/as_user.h"

#include <grp.h>
#include <limits.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace lockstep {
namespace {

// For this thread only. The C library's setgroups changes all threads.
bool SetGroups(const std::vector<gid_t>& groups) {
  return syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

}  // namespace

AsUser::AsUser(uid_t uid, gid_t gid, const std::vector<gid_t>& groups) {
  std::vector<gid_t> own(static_cast<size_t>(NGROUPS_MAX));
  const int size = getgroups(static_cast<int>(own.size()), own.data());
  if (size < 0) return;
  own.resize(static_cast<size_t>(size));
  groups_ = std::move(own);
  if (!SetGroups(groups)) return;
  regrouped_ = true;
  gid_ = static_cast<gid_t>(setfsgid(gid));
  // Also removes capabilities such as CAP_DAC_OVERRIDE (capabilities(7)).
  uid_ = static_cast<uid_t>(setfsuid(uid));
  changed_ = true;
  // The calls do not report failure. This one changes nothing and checks.
  ok_ = static_cast<uid_t>(setfsuid(static_cast<uid_t>(-1))) == uid &&
        static_cast<gid_t>(setfsgid(static_cast<gid_t>(-1))) == gid;
}

AsUser::~AsUser() {
  if (changed_) {
    setfsuid(uid_);
    setfsgid(gid_);
  }
  if (regrouped_) SetGroups(groups_);
}

}  // namespace lockstep
