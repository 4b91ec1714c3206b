#include "server/page/page_query.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "common/base/ascii.h"

namespace lockstep::server {
namespace {

constexpr int64_t kMaxTail = 2000;
constexpr int64_t kMaxRank = 1'000'000;
constexpr size_t kMaxText = 1000;

// Refuses unknown and repeated names.
Status CheckNames(const Parameters& parameters,
                  const std::set<std::string>& names) {
  std::set<std::string> seen;
  for (const auto& [name, value] : parameters) {
    if (!names.contains(name)) {
      return InvalidArgument("{} is not a parameter of this page, which has {}",
                             name.empty() ? "\"\"" : name.substr(0, 40),
                             fmt::join(names, ", "));
    }
    if (!seen.insert(name).second) {
      return InvalidArgument("{}: is given twice; give it once", name);
    }
    if (value.size() > kMaxText) {
      return InvalidArgument("{}: has {} bytes; at most {} are allowed", name,
                             value.size(), kMaxText);
    }
  }
  return OkStatus();
}

std::string Find(const Parameters& parameters, std::string_view name) {
  for (const auto& [key, value] : parameters) {
    if (key == name) return value;
  }
  return "";
}

StatusOr<int64_t> Number(std::string_view name, const std::string& text,
                         int64_t least, int64_t most) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end || number < least ||
      number > most) {
    return InvalidArgument("{}: must be a number from {} to {}, not \"{}\"",
                           name, least, most, text.substr(0, 40));
  }
  return number;
}

StatusOr<bool> Flag(const Parameters& parameters, std::string_view name) {
  const std::string text = Find(parameters, name);
  if (text.empty() || text == "0") return false;
  if (text == "1") return true;
  return InvalidArgument("{}: must be 0 or 1, not \"{}\"", name,
                         text.substr(0, 40));
}

StatusOr<Severity> ParseLeast(const std::string& text) {
  static constexpr std::pair<std::string_view, Severity> kNames[] = {
      {"debug", Severity::kDebug},
      {"info", Severity::kInfo},
      {"warning", Severity::kWarning},
      {"error", Severity::kError},
      {"critical", Severity::kCritical}};
  for (const auto& [name, severity] : kNames) {
    if (name.size() == text.size() &&
        std::equal(text.begin(), text.end(), name.begin(),
                   [](char a, char b) { return AsciiLower(a) == b; })) {
      return severity;
    }
  }
  return InvalidArgument(
      "severity: must be debug, info, warning, error or critical, not \"{}\"",
      text.substr(0, 40));
}

}  // namespace

StatusOr<OverviewQuery> ParseOverview(const Parameters& parameters) {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckNames(parameters, {"state", "owner", "label", "text", "sort"}));
  OverviewQuery query;
  query.state = Find(parameters, "state");
  query.owner = Find(parameters, "owner");
  query.label = Find(parameters, "label");
  query.text = Find(parameters, "text");
  query.sort = Find(parameters, "sort");
  if (std::find(kStateFilters.begin(), kStateFilters.end(), query.state) ==
      kStateFilters.end()) {
    return InvalidArgument(
        "state: must be one of {}, not \"{}\"",
        fmt::join(kStateFilters.begin() + 1, kStateFilters.end(), ", "),
        query.state.substr(0, 40));
  }
  const std::string column =
      query.sort.substr(query.sort.starts_with('-') ? 1 : 0);
  if (!query.sort.empty() && std::find(kSortColumns.begin(), kSortColumns.end(),
                                       column) == kSortColumns.end()) {
    return InvalidArgument(
        "sort: must be one of {}, or one after \"-\", not \"{}\"",
        fmt::join(kSortColumns, ", "), query.sort.substr(0, 40));
  }
  return query;
}

StatusOr<NamedSpan> ParseSpan(const Parameters& parameters) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNames(parameters, {"span"}));
  std::string name = Find(parameters, "span");
  if (name.empty()) name = "all";
  std::string names;
  for (const NamedSpan& span : kSpans) {
    if (span.name == name) return span;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", span.name);
  }
  return InvalidArgument("span: must be one of {}, not \"{}\"", names,
                         name.substr(0, 40));
}

StatusOr<std::vector<std::string>> ParseCompared(const Parameters& parameters) {
  std::vector<std::string> jobs;
  for (const auto& [name, value] : parameters) {
    if (name != "job") {
      return InvalidArgument(
          "{} is not a parameter of this page, which has job",
          name.substr(0, 40));
    }
    if (value.empty() ||
        std::find(jobs.begin(), jobs.end(), value) != jobs.end()) {
      continue;
    }
    jobs.push_back(value);
  }
  if (jobs.empty() || jobs.size() > kMaxCompared) {
    return InvalidArgument(
        "job: name one to {} jobs, as in /compare?job=a&job=b, not {}",
        kMaxCompared, jobs.size());
  }
  return jobs;
}

StatusOr<WhyQuery> ParseWhy(const Parameters& parameters) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNames(parameters, {"now", "attempt"}));
  WhyQuery query;
  LOCKSTEP_ASSIGN_OR_RETURN(query.now, Flag(parameters, "now"));
  if (const std::string text = Find(parameters, "attempt"); !text.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t number,
                              Number("attempt", text, 1, INT32_MAX));
    query.attempt = static_cast<int32_t>(number);
  }
  return query;
}

StatusOr<LogsQuery> ParseLogsQuery(const Parameters& parameters) {
  LOCKSTEP_RETURN_IF_ERROR(CheckNames(
      parameters,
      {"rank", "attempt", "severity", "grep", "filter", "tail", "follow"}));
  LogsQuery query;
  if (const std::string rank = Find(parameters, "rank"); !rank.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t number,
                              Number("rank", rank, 0, kMaxRank));
    query.rank = static_cast<int32_t>(number);
  }
  if (const std::string text = Find(parameters, "attempt"); !text.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t number,
                              Number("attempt", text, 1, INT32_MAX));
    query.attempt = static_cast<int32_t>(number);
  }
  if (const std::string text = Find(parameters, "tail"); !text.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t number,
                              Number("tail", text, 1, kMaxTail));
    query.tail = static_cast<size_t>(number);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(query.follow, Flag(parameters, "follow"));
  query.severity = Find(parameters, "severity");
  if (!query.severity.empty()) {
    LOCKSTEP_ASSIGN_OR_RETURN(query.selection.min_severity,
                              ParseLeast(query.severity));
  }
  query.selection.grep = Find(parameters, "grep");
  const auto filter = LogFilter::Make(query.selection);
  if (!filter.ok()) return Annotate(filter.status(), "grep");
  query.filter = Find(parameters, "filter");
  if (!query.filter.empty()) {
    auto parsed = LogQuery::Parse(query.filter);
    if (!parsed.ok()) return Annotate(parsed.status(), "filter");
    query.query = *std::move(parsed);
  }
  return query;
}

}  // namespace lockstep::server
