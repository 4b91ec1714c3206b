#include "client/cli/parse.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace lockstep::cli {
namespace {

constexpr size_t kMostRanks = 100'000;
constexpr double kMaxSeconds = 100.0 * 365 * 86400;

// Removes a number from the front of `text`. Returns false if there is none.
bool TakeNumber(std::string_view* text, double* value) {
  const auto [end, error] =
      std::from_chars(text->data(), text->data() + text->size(), *value,
                      std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(*value)) return false;
  text->remove_prefix(end - text->data());
  return true;
}

bool ParseWhole(std::string_view text, int32_t* value) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() &&
         *value >= 0;
}

// Returns the seconds of a unit, or 0 if it is unknown.
double UnitSeconds(std::string_view unit) {
  if (unit == "ms") return 1e-3;
  if (unit == "s") return 1;
  if (unit == "m") return 60;
  if (unit == "h") return 3600;
  if (unit == "d") return 86400;
  return 0;
}

Status BadDuration(std::string_view text) {
  return InvalidArgument("\"{}\" is not a duration such as 90s, 10m or 1h30m",
                         text);
}

}  // namespace

StatusOr<int64_t> ParseBytes(std::string_view text) {
  std::string_view rest = text;
  double value = 0;
  const bool number = TakeNumber(&rest, &value);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  double factor = 1;
  if (!rest.empty() && rest != "B") {
    const size_t power = std::string_view("KMGT").find(
        static_cast<char>(std::toupper(static_cast<unsigned char>(rest[0]))));
    const std::string_view suffix = rest.substr(1);
    factor =
        power == std::string_view::npos || (suffix != "" && suffix != "iB" &&
                                            suffix != "B" && suffix != "i")
            ? 0
            : std::pow(1024, power + 1);
  }
  if (!number || factor == 0 || value < 0 || value * factor >= 9e18) {
    return InvalidArgument("\"{}\" is not a size such as 512MiB or 2GiB", text);
  }
  return static_cast<int64_t>(value * factor);
}

StatusOr<Duration> ParseDuration(std::string_view text) {
  std::string_view rest = text;
  double seconds = 0;
  if (rest.empty()) return BadDuration(text);
  while (!rest.empty()) {
    double value = 0;
    if (!TakeNumber(&rest, &value) || value < 0) return BadDuration(text);
    const size_t size = std::min(rest.find_first_of("0123456789"), rest.size());
    const std::string_view unit = rest.substr(0, size);
    // Only a bare number may lack its unit.
    const bool plain = unit.empty() && seconds == 0 && rest.empty();
    const double factor = plain ? 1 : UnitSeconds(unit);
    if (factor == 0) return BadDuration(text);
    seconds += value * factor;
    rest.remove_prefix(size);
  }
  if (seconds > kMaxSeconds) return BadDuration(text);
  return Seconds(seconds);
}

StatusOr<std::vector<int32_t>> ParseRanks(std::string_view text) {
  const auto bad = [&] {
    return InvalidArgument("\"{}\" is not a list of ranks such as 0 or 0-3,5",
                           text);
  };
  std::set<int32_t> ranks;
  std::string_view rest = text;
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    const size_t dash = part.find('-');
    int32_t first = 0;
    int32_t last = 0;
    if (!ParseWhole(part.substr(0, dash), &first)) return bad();
    last = first;
    if (dash != std::string_view::npos &&
        !ParseWhole(part.substr(dash + 1), &last)) {
      return bad();
    }
    if (last < first || static_cast<size_t>(last - first) >= kMostRanks ||
        ranks.size() > kMostRanks) {
      return bad();
    }
    for (int32_t rank = first; rank <= last; ++rank) ranks.insert(rank);
    if (comma == rest.size()) break;
    rest.remove_prefix(comma + 1);
  }
  return std::vector<int32_t>(ranks.begin(), ranks.end());
}

StatusOr<std::pair<std::string, std::string>> ParsePair(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) {
    return InvalidArgument("\"{}\" is not NAME=VALUE", text);
  }
  return std::make_pair(std::string(text.substr(0, equals)),
                        std::string(text.substr(equals + 1)));
}

StatusOr<WallTime> ParseSince(std::string_view text, WallTime now) {
  google::protobuf::Timestamp time;
  if (google::protobuf::util::TimeUtil::FromString(std::string(text), &time)) {
    return FromUnixNanos(
        google::protobuf::util::TimeUtil::TimestampToNanoseconds(time));
  }
  const auto ago = ParseDuration(text);
  if (ago.ok()) return now - *ago;
  return InvalidArgument(
      "\"{}\" is neither a duration such as 10m nor a time such as "
      "2026-01-31T12:00:00Z",
      text);
}

}  // namespace lockstep::cli
