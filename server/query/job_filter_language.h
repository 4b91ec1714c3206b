// The fields and error sentences of job_filter.h. Pure.
#ifndef LOCKSTEP_SERVER_QUERY_JOB_FILTER_LANGUAGE_H_
#define LOCKSTEP_SERVER_QUERY_JOB_FILTER_LANGUAGE_H_

#include "common/base/status.h"
#include "common/filter/filter.h"

namespace lockstep::server {

namespace job_field {
enum : int {
  // Texts.
  kJobId,
  kState,
  kLabel,
  kOwner,
  kKind,
  kPool,
  kRegion,
  // Numbers and times.
  kPriority,
  kCreateTime,
  kStartTime,
  kEndTime,
};
inline bool IsNumber(int field) { return field >= kPriority; }
}  // namespace job_field

const FilterLanguage& JobFilterLanguage();

// Completes `term` from its text. REQUIRES: its field takes its operator.
// InvalidArgument: "\"x\" is not a time such as ...".
Status ReadJobFilterValue(const std::string& name, FilterTerm* term);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_QUERY_JOB_FILTER_LANGUAGE_H_
