// Compresses answers.
#ifndef LOCKSTEP_COMMON_HTTP_GZIP_H_
#define LOCKSTEP_COMMON_HTTP_GZIP_H_

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::http {

// True if the value of an "Accept-Encoding" header allows gzip (RFC 9110,
// 12.5.3): it names "gzip" or "*" with a weight other than 0.
bool AcceptsGzip(std::string_view accept_encoding);

// Returns `body` as a gzip stream, or nullopt if that is not shorter.
std::optional<std::string> Gzip(const std::string& body);

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_GZIP_H_
