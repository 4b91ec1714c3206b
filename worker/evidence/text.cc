#include "worker/evidence/text.h"

#include "common/base/one_line.h"
#include "common/base/utf8.h"

namespace lockstep::worker::evidence {

std::string ShortText(std::string_view text, size_t most) {
  std::string line = OneLine(text.substr(0, most));
  size_t size = 0;
  while (size < line.size()) {
    const size_t next = Utf8Length(std::string_view(line).substr(size));
    if (next == 0 || size + next > most) break;
    size += next;
  }
  line.resize(size);
  return line;
}

std::string_view BaseName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace lockstep::worker::evidence
