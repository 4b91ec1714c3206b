#include "worker/agent/core/printable_text.h"

#include "worker/rank_link/text.h"

namespace lockstep::worker::agent {

std::string PrintableText(std::string_view text, size_t limit) {
  std::string out = rank_link::CleanText(text, limit);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) c = '?';
  }
  return out;
}

}  // namespace lockstep::worker::agent
