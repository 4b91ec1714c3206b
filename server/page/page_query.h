// The queries of the pages' addresses. Pure. Errors are InvalidArgument: a
// sentence that names the parameter and what would work.
#ifndef LOCKSTEP_SERVER_PAGE_PAGE_QUERY_H_
#define LOCKSTEP_SERVER_PAGE_PAGE_QUERY_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/logs/log_query.h"
#include "server/logs/log_filter.h"

namespace lockstep::server {

using Parameters = std::vector<std::pair<std::string, std::string>>;

// The times that curves may show.
struct NamedSpan {
  std::string_view name;
  std::string_view text;
  std::optional<Duration> length;
};
inline constexpr std::array<NamedSpan, 6> kSpans = {{
    {"15m", "15 minutes", std::chrono::minutes(15)},
    {"1h", "hour", std::chrono::hours(1)},
    {"6h", "6 hours", std::chrono::hours(6)},
    {"1d", "day", std::chrono::hours(24)},
    {"7d", "week", std::chrono::hours(24 * 7)},
    {"all", "all", std::nullopt},
}};

// state=running&owner=ann&label=team=vision&text=bert&sort=-gpus: each may be
// absent.
struct OverviewQuery {
  // One of kStateFilters.
  std::string state = {};
  // A part of the owner's name.
  std::string owner = {};
  // KEY or KEY=VALUE.
  std::string label = {};
  // A part of the name or the comment.
  std::string text = {};
  // A column of kSortColumns, or "-" and one: the other way round.
  std::string sort = {};
};
inline constexpr std::array<std::string_view, 12> kStateFilters = {
    "",        "active",  "ended",     "queued",    "placing", "preparing",
    "forming", "running", "finishing", "succeeded", "failed",  "cancelled"};
inline constexpr std::array<std::string_view, 6> kSortColumns = {
    "job", "owner", "state", "since", "rate", "gpus"};
StatusOr<OverviewQuery> ParseOverview(const Parameters& parameters);

// span=1h. Without one: "all".
StatusOr<NamedSpan> ParseSpan(const Parameters& parameters);

// job=a&job=b: one to five different jobs.
inline constexpr size_t kMaxCompared = 5;
StatusOr<std::vector<std::string>> ParseCompared(const Parameters& parameters);

// now=1: collect evidence of the running ranks; attempt=2: what was kept of
// ended attempt 2, not of the newest one.
struct WhyQuery {
  bool now = false;
  // 0: the newest one.
  int32_t attempt = 0;
};
StatusOr<WhyQuery> ParseWhy(const Parameters& parameters);

// rank=3&attempt=2&severity=error&grep=loss&tail=500, as the options of
// `lockstep jobs logs`; follow=1: the page is loaded again all the time.
struct LogsQuery {
  std::optional<int32_t> rank;
  // 0: the newest one.
  int32_t attempt = 0;
  size_t tail = 200;
  bool follow = false;
  std::string severity;
  LogSelection selection;
  // In the language of common/logs/log_query.h, and what it means.
  std::string filter;
  LogQuery query;
};
StatusOr<LogsQuery> ParseLogsQuery(const Parameters& parameters);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_PAGE_PAGE_QUERY_H_
