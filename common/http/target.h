// What a request asks for: its path and its query, decoded. Pure.
#ifndef LOCKSTEP_COMMON_HTTP_TARGET_H_
#define LOCKSTEP_COMMON_HTTP_TARGET_H_

#include <map>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace lockstep {

struct HttpTarget {
  // Percent-decoded; dots and slashes are not interpreted.
  std::string path;
  // Percent-decoded, and "+" is a space. If a name comes twice, the first.
  std::map<std::string, std::string> query;
};

// "/jobs/a%20b?x=1&y=2". InvalidArgument: it does not begin with "/", or a "%"
// is not followed by two hexadecimal digits.
StatusOr<HttpTarget> ParseHttpTarget(std::string_view target);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_TARGET_H_
