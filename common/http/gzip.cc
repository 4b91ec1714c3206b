#include "common/http/gzip.h"

#include <isa-l/igzip_lib.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace lockstep::http {
namespace {

// Shorter bodies fit into one packet anyway.
constexpr size_t kWorthIt = 512;

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && absl::ascii_isspace(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && absl::ascii_isspace(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

// "q=0", "q=0.", "q=0.000": not acceptable.
bool IsZeroWeight(std::string_view parameter) {
  if (!parameter.starts_with("q=") && !parameter.starts_with("Q=")) {
    return false;
  }
  return parameter.find_first_of("123456789") == std::string_view::npos;
}

}  // namespace

bool AcceptsGzip(std::string_view accept_encoding) {
  std::optional<bool> gzip, any;
  while (!accept_encoding.empty()) {
    const size_t comma = accept_encoding.find(',');
    const std::string_view entry = accept_encoding.substr(0, comma);
    accept_encoding.remove_prefix(
        comma == std::string_view::npos ? accept_encoding.size() : comma + 1);
    const size_t semicolon = entry.find(';');
    const std::string_view coding = Trimmed(entry.substr(0, semicolon));
    const bool allowed = semicolon == std::string_view::npos ||
                         !IsZeroWeight(Trimmed(entry.substr(semicolon + 1)));
    if (absl::EqualsIgnoreCase({coding.data(), coding.size()}, "gzip")) {
      gzip = allowed;
    } else if (coding == "*") {
      any = allowed;
    }
  }
  return gzip.value_or(any.value_or(false));
}

std::optional<std::string> Gzip(const std::string& body) {
  if (body.size() < kWorthIt ||
      body.size() > std::numeric_limits<uint32_t>::max()) {
    return std::nullopt;
  }
  std::vector<uint8_t> work(ISAL_DEF_LVL1_DEFAULT);
  // The result must be shorter than the body.
  std::string packed(body.size() - 1, '\0');
  isal_zstream stream;
  isal_deflate_stateless_init(&stream);
  stream.gzip_flag = IGZIP_GZIP;
  stream.level = 1;
  stream.level_buf = work.data();
  stream.level_buf_size = static_cast<uint32_t>(work.size());
  stream.end_of_stream = 1;
  stream.flush = NO_FLUSH;
  stream.next_in = reinterpret_cast<uint8_t*>(const_cast<char*>(body.data()));
  stream.avail_in = static_cast<uint32_t>(body.size());
  stream.next_out = reinterpret_cast<uint8_t*>(packed.data());
  stream.avail_out = static_cast<uint32_t>(packed.size());
  if (isal_deflate_stateless(&stream) != COMP_OK) return std::nullopt;
  packed.resize(stream.total_out);
  return packed;
}

}  // namespace lockstep::http
