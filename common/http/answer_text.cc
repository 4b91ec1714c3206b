#include "common/http/answer_text.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>
#include <utility>

#include "common/http/gzip.h"

namespace lockstep::http {
namespace {

std::string_view ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 303:
      return "See Other";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 416:
      return "Range Not Satisfiable";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    default:
      return status < 400 ? "OK" : "Error";
  }
}

void AddHeader(std::string_view name, std::string_view value,
               std::string* head) {
  fmt::format_to(std::back_inserter(*head), "{}: ", name);
  for (const char c : value) {
    const auto code = static_cast<unsigned char>(c);
    head->push_back(code < 0x20 || code == 0x7f ? ' ' : c);
  }
  head->append("\r\n");
}

}  // namespace

AnswerText MakeAnswerText(HttpResponse response,
                          std::string_view accept_encoding) {
  std::optional<std::string> packed;
  if (AcceptsGzip(accept_encoding)) packed = Gzip(response.body);
  AnswerText text;
  text.head = fmt::format("HTTP/1.1 {} {}\r\n", response.status,
                          ReasonOf(response.status));
  AddHeader("Content-Type", response.content_type, &text.head);
  if (packed) AddHeader("Content-Encoding", "gzip", &text.head);
  AddHeader("Vary", "Accept-Encoding", &text.head);
  text.body = packed ? *std::move(packed) : std::move(response.body);
  AddHeader("Content-Length", std::to_string(text.body.size()), &text.head);
  AddHeader("X-Content-Type-Options", "nosniff", &text.head);
  AddHeader("Cache-Control", "no-store", &text.head);
  for (const auto& [name, value] : response.headers) {
    AddHeader(name, value, &text.head);
  }
  return text;
}

}  // namespace lockstep::http
