// The target of a request: its path and query, decoded. Pure.
#ifndef LOCKSTEP_COMMON_HTTP_TARGET_H_
#define LOCKSTEP_COMMON_HTTP_TARGET_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace lockstep::http {

struct HttpTarget {
  // Percent-decoded. Dots and slashes are not interpreted.
  std::string path;
  // Percent-decoded; "+" is a space. A repeated name keeps its first value.
  std::map<std::string, std::string> query;
  // The same in its order, with all values of repeated names.
  std::vector<std::pair<std::string, std::string>> parameters;
};

// Parses "/jobs/a%20b?x=1&y=2". InvalidArgument if it does not begin with "/",
// or a "%" is not followed by two hexadecimal digits.
StatusOr<HttpTarget> ParseHttpTarget(std::string_view target);

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_TARGET_H_
