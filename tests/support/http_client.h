// The least client of a daemon's HTTP port: one request, one connection.
#ifndef LOCKSTEP_TESTS_SUPPORT_HTTP_CLIENT_H_
#define LOCKSTEP_TESTS_SUPPORT_HTTP_CLIENT_H_

#include <string>

#include "common/base/status.h"

namespace lockstep {

struct HttpReply {
  // 200.
  int status = 0;
  // Status line and headers.
  std::string head;
  // As sent: maybe compressed.
  std::string body;
};

// GET `path` of `address`, "127.0.0.1:7480", in plain text. `headers` is empty
// or lines that end with "\r\n". Unavailable: no whole answer in 30 s.
StatusOr<HttpReply> HttpGet(const std::string& address, const std::string& path,
                            const std::string& headers = "");

// "Authorization: Bearer TOKEN\r\n" with what the file has; empty where `file`
// is, which says that no token is asked for.
std::string BearerHeader(const std::string& file);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SUPPORT_HTTP_CLIENT_H_
