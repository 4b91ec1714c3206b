// Parses values that people type. Pure. Every error is InvalidArgument with the
// fault and a valid example.
#ifndef LOCKSTEP_CLIENT_CLI_PARSE_H_
#define LOCKSTEP_CLIENT_CLI_PARSE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep::cli {

// "512MiB", "2G", "1.5 GiB", "1000". K, M, G, T with or without "iB" or "B"
// are powers of 1024.
StatusOr<int64_t> ParseBytes(std::string_view text);

// "90s", "10m", "1h30m", "2d", "500ms"; a plain number is seconds.
StatusOr<Duration> ParseDuration(std::string_view text);

// "0-3,5": the ranks in ascending order, each once. At most 100,000.
StatusOr<std::vector<int32_t>> ParseRanks(std::string_view text);

// "NAME=value", split at the first "=".
StatusOr<std::pair<std::string, std::string>> ParsePair(std::string_view text);

// "10m" (ago) or RFC 3339 "2026-01-31T12:00:00Z".
StatusOr<WallTime> ParseSince(std::string_view text, WallTime now);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_PARSE_H_
