// Test users, one of each role and a second viewer.
#ifndef LOCKSTEP_SERVER_STREAM_USERS_TEST_UTIL_H_
#define LOCKSTEP_SERVER_STREAM_USERS_TEST_UTIL_H_

#include "common/pki/identity.h"

namespace lockstep::server {

inline const pki::Identity kAnn =
    UserIdentity("test", pki::UserRole::kSubmitter, "ann");
inline const pki::Identity kBob =
    UserIdentity("test", pki::UserRole::kViewer, "bob");
inline const pki::Identity kCid =
    UserIdentity("test", pki::UserRole::kViewer, "cid");
inline const pki::Identity kRoot =
    UserIdentity("test", pki::UserRole::kAdmin, "root");

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STREAM_USERS_TEST_UTIL_H_
