// Decides how much of a job a caller may see. Pure.
//
// A job's owner and admins see all of it, and so do all callers if the site
// sets `visibility: cluster`. Others see its name and owner, its state with
// reason codes and times, its requested and allocated resources, and its
// progress. They do not see text from its owner, its program or a host:
// arguments, environment, labels, paths, messages, files. Fields not named in
// the functions here are hidden, so new fields are hidden by default
// (visibility_test.cc has the list).
#ifndef LOCKSTEP_SERVER_QUERY_VISIBILITY_H_
#define LOCKSTEP_SERVER_QUERY_VISIBILITY_H_

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/training/site.h"
#include "server/coordinator/snapshot.h"

namespace lockstep::server {

struct JobReader {
  // In the form of Job::owner. Empty for a caller who never owns a job.
  std::string name;
  // The details of all jobs.
  bool sees_all = false;

  bool Sees(std::string_view owner) const {
    return sees_all || (!name.empty() && name == owner);
  }
};

// `admin`: the caller may change every job, so all details are visible.
JobReader ReaderOf(std::string name, bool admin, Visibility visibility);

// PermissionDenied if the reader does not own `job`, whose `what` ("logs") is
// for its owner and admins. The error names the remedy.
Status CheckSees(const JobReader& reader, const JobName& job,
                 std::string_view owner, std::string_view what);

// Returns what `reader` may see. Fully visible jobs are not copied.
JobSnapshot ShownTo(const JobReader& reader, JobSnapshot snapshot);
JobProgressInfo ShownTo(const JobReader& reader, std::string_view owner,
                        const JobProgressInfo& progress);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_QUERY_VISIBILITY_H_
