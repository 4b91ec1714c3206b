// Which jobs a list shows: the filter of AI Platform's list, in gcloud's
// language (`gcloud topic filters`).
//
//   jobId:rnn* AND state:(FAILED OR CANCELLED)
//   NOT labels.team:* AND createTime>=-P1D
//   (owner=user/ann OR labels.team=vision) startTime<2026-01-31T12:00:00Z
//
// Terms are joined by AND, OR and NOT (or "-"), in brackets where AND and OR
// meet: gcloud's tools do not agree on which of them binds closer. Terms side
// by side are joined by AND.
//   =  !=         the text as it is; of times and numbers their value
//   :             the same, or its beginning: rnn*
//   :*  =*        there is one
//   <  <=  >  >=  times (RFC 3339, a date, or -P1DT2H: ago) and numbers
//   ~  !~         a regular expression (RE2) matches in it
// What is not there equals nothing, and is less and more than nothing. `state`
// knows AI Platform's states and lockstep's own. Pure.
#ifndef LOCKSTEP_SERVER_QUERY_JOB_FILTER_H_
#define LOCKSTEP_SERVER_QUERY_JOB_FILTER_H_

#include <optional>
#include <string_view>

#include "common/base/status.h"
#include "common/filter/filter.h"
#include "common/training/states.h"
#include "server/core/job.h"

namespace lockstep {

// What users of AI Platform's interface see of the job's state.
TrainingState TrainingStateOf(const Job& job);

class JobFilter {
 public:
  // Of an empty text: everything. InvalidArgument: "filter: column 9: ...".
  static StatusOr<JobFilter> Parse(std::string_view text);

  // `details_hidden`: from who asks (visibility.h). Then whether a term about a
  // hidden field holds is not known, and a job matches only where that makes no
  // difference: nothing is learned of the field.
  bool Matches(const Job& job, WallTime now, bool details_hidden = false) const;
  bool empty() const { return !root_; }

 private:
  std::optional<FilterNode> root_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_QUERY_JOB_FILTER_H_
