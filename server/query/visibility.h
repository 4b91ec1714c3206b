// Who sees how much of a job. Pure.
//
// A job's owner and admins see all of it, and everybody does where the site
// says `visibility: cluster`. Others see what it is called and whose it is, its
// state with reason codes and times, what it asks for and holds, and how far it
// is; no text that its owner, its program or a host wrote: no arguments,
// environment, labels, paths, messages or files. What the functions here do not
// name is hidden, so that a new field is until somebody has thought about it
// (visibility_test.cc has the list).
#ifndef LOCKSTEP_SERVER_QUERY_VISIBILITY_H_
#define LOCKSTEP_SERVER_QUERY_VISIBILITY_H_

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/training/site.h"
#include "server/coordinator/snapshot.h"

namespace lockstep {

struct JobReader {
  // As Job::owner has it; empty: who never is an owner.
  std::string name;
  // Of all jobs.
  bool sees_all = false;

  bool Sees(std::string_view owner) const {
    return sees_all || (!name.empty() && name == owner);
  }
};

// `admin`: it may change every job, so that nothing is hidden from it.
JobReader ReaderOf(std::string name, bool admin, Visibility visibility);

// PermissionDenied: who is not the reader owns `job`, and `what` ("logs") is
// for them and admins; says what would open it.
Status CheckSees(const JobReader& reader, const JobName& job,
                 std::string_view owner, std::string_view what);

// What `reader` is shown. Of a job that they see nothing is copied.
JobSnapshot ShownTo(const JobReader& reader, JobSnapshot snapshot);
JobProgressInfo ShownTo(const JobReader& reader, std::string_view owner,
                        const JobProgressInfo& progress);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_QUERY_VISIBILITY_H_
