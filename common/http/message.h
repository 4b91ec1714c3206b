// What a handler of an HTTP server is given, and what it answers.
#ifndef LOCKSTEP_COMMON_HTTP_MESSAGE_H_
#define LOCKSTEP_COMMON_HTTP_MESSAGE_H_

#include <map>
#include <string>

namespace lockstep {

// A request's head, as it was sent.
struct HttpHead {
  std::string method;
  std::string target;
  // Headers; empty: absent.
  std::string host;
  std::string authorization;
  std::string cookie;
  std::string accept_encoding;
  bool has_range = false;
  // By TLS, with a certificate that the client CA has signed.
  bool certified = false;
};

struct HttpRequest {
  // Decoded.
  std::string path;
  // Decoded; of a name that comes twice, the first.
  std::map<std::string, std::string> query;
  // What the client calls this server: "Host" as sent, maybe empty.
  std::string host;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // Beside those that every answer has.
  std::map<std::string, std::string> headers = {};
};

}  // namespace lockstep

#endif  // LOCKSTEP_COMMON_HTTP_MESSAGE_H_
