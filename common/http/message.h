// The request and the answer of an HTTP handler.
#ifndef LOCKSTEP_COMMON_HTTP_MESSAGE_H_
#define LOCKSTEP_COMMON_HTTP_MESSAGE_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::http {

// A request's head, as it was sent.
struct HttpHead {
  std::string method;
  std::string target;
  // Headers; empty if absent.
  std::string host;
  std::string authorization;
  std::string cookie;
  std::string accept_encoding;
  bool has_range = false;
  // The client showed a TLS certificate that the client CA signed.
  bool certified = false;
};

struct HttpRequest {
  // Decoded.
  std::string path;
  // Decoded. A repeated name keeps its first value.
  std::map<std::string, std::string> query;
  // The "Host" header as sent, or empty.
  std::string host;
  // All of the query in its order, with repeated names.
  std::vector<std::pair<std::string, std::string>> parameters = {};
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  // Added to the headers that every answer has.
  std::map<std::string, std::string> headers = {};
};

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_MESSAGE_H_
