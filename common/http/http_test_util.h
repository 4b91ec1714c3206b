// A client of HttpServer that sees every byte. For tests.
#ifndef LOCKSTEP_COMMON_HTTP_HTTP_TEST_UTIL_H_
#define LOCKSTEP_COMMON_HTTP_HTTP_TEST_UTIL_H_

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/escaping.h"
#include "common/base/fd.h"

namespace lockstep::http {

// Its reads give up after ten seconds.
inline Fd ConnectTo(int port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit = {10, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)),
            0);
  return fd;
}

inline std::string ReadAll(int fd) {
  std::string all;
  char buffer[4096];
  for (ssize_t n; (n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
    all.append(buffer, static_cast<size_t>(n));
  }
  return all;
}

// The whole answer to `request`, head and body.
inline std::string Exchange(int port, const std::string& request) {
  const Fd fd = ConnectTo(port);
  EXPECT_EQ(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  return ReadAll(fd.get());
}

inline std::string Ask(int port, const std::string& method,
                       const std::string& target,
                       const std::string& headers = "") {
  return Exchange(port, fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n"
                                    "Connection: close\r\n{}\r\n",
                                    method, target, headers));
}

// The value of an Authorization header for "USER:PASSWORD".
inline std::string Basic(const std::string& pair) {
  std::string coded;
  absl::Base64Escape({pair.data(), pair.size()}, &coded);
  return "Basic " + coded;
}

inline std::string Body(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_HTTP_TEST_UTIL_H_
