// Test users, one of each role and a second viewer.
#ifndef LOCKSTEP_SERVER_STREAM_USERS_TEST_UTIL_H_
#define LOCKSTEP_SERVER_STREAM_USERS_TEST_UTIL_H_

#include "common/pki/identity.h"

namespace lockstep {

inline const Identity kAnn = UserIdentity("test", UserRole::kSubmitter, "ann");
inline const Identity kBob = UserIdentity("test", UserRole::kViewer, "bob");
inline const Identity kCid = UserIdentity("test", UserRole::kViewer, "cid");
inline const Identity kRoot = UserIdentity("test", UserRole::kAdmin, "root");

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_STREAM_USERS_TEST_UTIL_H_
