#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>

#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/host_port.h"

namespace lockstep {

StatusOr<HttpReply> HttpGet(const std::string& address, const std::string& path,
                            const std::string& headers) {
  LOCKSTEP_ASSIGN_OR_RETURN(const HostPort at, ParseHostPort(address));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(at.port);
  if (::inet_pton(AF_INET, at.host.c_str(), &to.sin_addr) != 1) {
    return InvalidArgument("{} is no IPv4 address", address);
  }
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit = {30, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  const std::string request =
      fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{}\r\n",
                  path, address, headers);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0 ||
      ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
          static_cast<ssize_t>(request.size())) {
    return Unavailable("{} cannot be asked", address);
  }
  std::string all;
  char buffer[16384];
  ssize_t n;
  while ((n = ::recv(fd.get(), buffer, sizeof(buffer), 0)) > 0) {
    all.append(buffer, static_cast<size_t>(n));
  }
  const size_t end = all.find("\r\n\r\n");
  if (n != 0 || end == std::string::npos || !all.starts_with("HTTP/1.1 ")) {
    return Unavailable("{} does not answer to {}", address, path);
  }
  return HttpReply{.status = std::atoi(all.c_str() + 9),
                   .head = all.substr(0, end),
                   .body = all.substr(end + 4)};
}

std::string BearerHeader(const std::string& file) {
  if (file.empty()) return "";
  std::string token = RealFileSystem()->Read(file).value_or("");
  while (token.ends_with('\n')) token.pop_back();
  return "Authorization: Bearer " + token + "\r\n";
}

}  // namespace lockstep
