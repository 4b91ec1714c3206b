// Compression of answers.
#ifndef LOCKSTEP_COMMON_HTTP_GZIP_H_
#define LOCKSTEP_COMMON_HTTP_GZIP_H_

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Whether the value of an "Accept-Encoding" header allows gzip (RFC 9110,
// 12.5.3): "gzip" or "*" is named, and not with the weight 0.
bool AcceptsGzip(std::string_view accept_encoding);

// `body` as a gzip stream. None: it would not become shorter.
std::optional<std::string> Gzip(const std::string& body);

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_GZIP_H_
