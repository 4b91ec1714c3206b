// Label values of the metrics.
#ifndef LOCKSTEP_SERVER_METRICS_METRIC_NAMES_H_
#define LOCKSTEP_SERVER_METRICS_METRIC_NAMES_H_

#include <string>
#include <string_view>

#include "common/model/job.h"

namespace lockstep::server {

// The name of the only queue.
inline constexpr char kQueue[] = "default";

// "RANK_EXIT" -> "rank_exit".
inline std::string LowerName(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_METRICS_METRIC_NAMES_H_
