// An answer as sent over the wire.
#ifndef LOCKSTEP_COMMON_HTTP_ANSWER_TEXT_H_
#define LOCKSTEP_COMMON_HTTP_ANSWER_TEXT_H_

#include <string>
#include <string_view>

#include "common/http/message.h"

namespace lockstep::http {

struct AnswerText {
  // The whole head except "Connection" and the empty line.
  std::string head;
  std::string body;
};

// Compresses the body if `accept_encoding` allows it and the result is shorter.
// Control characters in header values become spaces.
AnswerText MakeAnswerText(HttpResponse response,
                          std::string_view accept_encoding);

}  // namespace lockstep::http

#endif  // LOCKSTEP_COMMON_HTTP_ANSWER_TEXT_H_
