#include "worker/rank_link/text.h"

#include "common/base/utf8.h"

namespace lockstep::worker::rank_link {

std::string CleanText(std::string_view text, size_t limit) {
  std::string clean;
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const size_t taken = length == 0 ? 1 : length;
    if (clean.size() + taken > limit) break;
    if (length == 0) {
      clean += '?';
    } else {
      clean.append(text.substr(0, length));
    }
    text.remove_prefix(taken);
  }
  return clean;
}

}  // namespace lockstep::worker::rank_link
