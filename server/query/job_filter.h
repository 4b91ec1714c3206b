// The filter of job lists in gcloud's language (`gcloud topic filters`), as in
// AI Platform's list.
//
//   jobId:rnn* AND state:(FAILED OR CANCELLED)
//   NOT labels.team:* AND createTime>=-P1D
//   (owner=user/ann OR labels.team=vision) startTime<2026-01-31T12:00:00Z
//
// AND, OR and NOT (or "-") combine terms. Mixing AND and OR requires brackets,
// because gcloud's tools differ in precedence. Adjacent terms are joined by
// AND.
//   =  !=         equality of texts; times and numbers compare by value
//   :             equality, or a prefix: rnn*
//   :*  =*        the value exists
//   <  <=  >  >=  times (RFC 3339, a date, or -P1DT2H: ago) and numbers
//   ~  !~         a regular expression (RE2) matches
// A missing value equals nothing and is neither less nor greater than any
// value. `state` accepts AI Platform's states and lockstep's. Pure.
#ifndef LOCKSTEP_SERVER_QUERY_JOB_FILTER_H_
#define LOCKSTEP_SERVER_QUERY_JOB_FILTER_H_

#include <optional>
#include <string_view>

#include "common/base/status.h"
#include "common/filter/filter.h"
#include "common/training/states.h"
#include "server/core/job.h"

namespace lockstep::server {

// Returns the job's state as AI Platform's interface shows it.
TrainingState TrainingStateOf(const Job& job);

class JobFilter {
 public:
  // An empty text selects everything. InvalidArgument: "filter: column 9: ...".
  static StatusOr<JobFilter> Parse(std::string_view text);

  // `details_hidden`: the caller may not see the job's details (visibility.h).
  // Then terms about hidden fields are undecided, and a job matches only if
  // they make no difference, so the result reveals nothing about them.
  bool Matches(const Job& job, WallTime now, bool details_hidden = false) const;
  bool empty() const { return !root_; }

 private:
  std::optional<FilterNode> root_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_QUERY_JOB_FILTER_H_
