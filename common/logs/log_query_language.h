// The fields and error sentences of log_query.h. Pure.
#ifndef LOCKSTEP_COMMON_LOGS_LOG_QUERY_LANGUAGE_H_
#define LOCKSTEP_COMMON_LOGS_LOG_QUERY_LANGUAGE_H_

#include "common/filter/filter.h"

namespace lockstep {

// A term's number is a severity, Unix nanoseconds, a rank or an attempt.
namespace log_field {
enum : int {
  // Texts. A bare text matches against the first.
  kText,
  kTask,
  kJob,
  kResource,
  kStream,
  // Numbers.
  kSeverity,
  kTime,
  kRank,
  kAttempt
};
inline bool IsText(int field) { return field <= kStream; }
}  // namespace log_field

const FilterLanguage& LogQueryLanguage();

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_LOGS_LOG_QUERY_LANGUAGE_H_
