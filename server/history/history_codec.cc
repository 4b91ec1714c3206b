#include "server/history/history_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep::server {
namespace {

using nlohmann::json;
using Line = HistoryPlot::Line;

constexpr int kFormat = 1;
// A number of seconds since 1970 beyond the year 2200 is not a time.
constexpr int64_t kMaxNanos = int64_t{7'258'118'400} * 1'000'000'000;

void AddLine(std::string_view name, const Line& line, std::string* out) {
  if (!HasValue(line)) return;
  if (out->back() != '{') *out += ',';
  *out += json(std::string(name))
              .dump(-1, ' ', true, json::error_handler_t::replace);
  *out += ":[";
  for (const float value : line) {
    if (out->back() != '[') *out += ',';
    *out += std::isfinite(value) ? fmt::format("{:.6g}", value) : "null";
  }
  *out += ']';
}

Status Wrong(std::string_view what) {
  return InvalidArgument("{} is missing or wrong", what);
}

const json* Find(const json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

StatusOr<std::string> Text(const json& object, const std::string& key) {
  const json* const value = Find(object, key);
  if (value == nullptr || !value->is_string()) return Wrong(key);
  return value->get<std::string>();
}

StatusOr<int64_t> Number(const json& object, const std::string& key,
                         int64_t least, int64_t most) {
  const json* const value = Find(object, key);
  if (value == nullptr || !value->is_number_integer()) return Wrong(key);
  const int64_t number = value->get<int64_t>();
  if (number < least || number > most) return Wrong(key);
  return number;
}

Status ReadLine(const json& value, const std::string& name, size_t points,
                Line* line) {
  if (!value.is_array() || value.size() != points) return Wrong(name);
  line->reserve(points);
  for (const json& point : value) {
    if (!point.is_number() && !point.is_null()) return Wrong(name);
    line->push_back(point.is_null() ? kNoValue : point.get<float>());
  }
  return OkStatus();
}

Status ReadJobSeries(const json& from, HistoryPlot* plot) {
  const json* const series = Find(from, "job_series");
  if (series == nullptr || !series->is_object()) return Wrong("job_series");
  for (size_t s = 0; s < kJobSeries; ++s) {
    const std::string name(Name(static_cast<JobSeries>(s)));
    if (const json* const line = Find(*series, name)) {
      LOCKSTEP_RETURN_IF_ERROR(
          ReadLine(*line, name, plot->points, &plot->job[s]));
    } else {
      plot->job[s].assign(plot->points, kNoValue);
    }
  }
  return OkStatus();
}

Status ReadRanks(const json& from, HistoryPlot* plot) {
  const json* const ranks = Find(from, "ranks");
  if (ranks == nullptr || !ranks->is_object()) return Wrong("ranks");
  for (const auto& [key, lines] : ranks->items()) {
    if (key.empty() || key.size() > 3 ||
        key.find_first_not_of("0123456789") != std::string::npos ||
        std::stoi(key) >= kMaxStoredRanks || !lines.is_object()) {
      return Wrong("ranks");
    }
    auto& out = plot->ranks[std::stoi(key)];
    for (size_t s = 0; s < kRankSeries; ++s) {
      const std::string name(Name(static_cast<RankSeries>(s)));
      if (const json* const line = Find(lines, name)) {
        LOCKSTEP_RETURN_IF_ERROR(ReadLine(*line, name, plot->points, &out[s]));
      } else {
        out[s].assign(plot->points, kNoValue);
      }
    }
  }
  return OkStatus();
}

Status ReadPlot(const json& from, HistoryPlot* plot) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t start,
                            Number(from, "start_unix_nanos", 0, kMaxNanos));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t step,
                            Number(from, "step_nanos", 1, kMaxNanos / 1000));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const int64_t points,
      Number(from, "points", 1, static_cast<int64_t>(kMaxStoredPoints)));
  plot->start = FromUnixNanos(start);
  plot->step = Duration(step);
  plot->points = static_cast<size_t>(points);
  LOCKSTEP_RETURN_IF_ERROR(ReadJobSeries(from, plot));
  LOCKSTEP_RETURN_IF_ERROR(ReadRanks(from, plot));
  const json* const values = Find(from, "values");
  if (values == nullptr || !values->is_object() ||
      values->size() > kMaxValuesInHistory) {
    return Wrong("values");
  }
  for (const auto& [name, line] : values->items()) {
    LOCKSTEP_RETURN_IF_ERROR(
        ReadLine(line, "values", plot->points, &plot->values[name]));
  }
  const json* const checkpoints = Find(from, "checkpoints_unix_nanos");
  if (checkpoints == nullptr || !checkpoints->is_array() ||
      checkpoints->size() > kMaxCheckpointsInHistory) {
    return Wrong("checkpoints_unix_nanos");
  }
  for (const json& time : *checkpoints) {
    if (!time.is_number_integer()) return Wrong("checkpoints_unix_nanos");
    plot->checkpoints.push_back(FromUnixNanos(time.get<int64_t>()));
  }
  return OkStatus();
}

}  // namespace

std::string EncodeHistory(const StoredHistory& history) {
  const HistoryPlot& plot = history.plot;
  json head = {{"format", kFormat},
               {"job", history.job},
               {"uid", history.uid},
               {"owner", history.owner},
               {"start_unix_nanos", ToUnixNanos(plot.start)},
               {"step_nanos", plot.step.count()},
               {"points", plot.points}};
  json checkpoints = json::array();
  const size_t marks =
      std::min(plot.checkpoints.size(), kMaxCheckpointsInHistory);
  for (size_t i = plot.checkpoints.size() - marks; i < plot.checkpoints.size();
       ++i) {
    checkpoints.push_back(ToUnixNanos(plot.checkpoints[i]));
  }
  head["checkpoints_unix_nanos"] = std::move(checkpoints);
  std::string out = head.dump(-1, ' ', true, json::error_handler_t::replace);
  // The lines are most of it, so they are written without a tree.
  out.back() = ',';
  out += "\"job_series\":{";
  for (size_t s = 0; s < kJobSeries; ++s) {
    AddLine(Name(static_cast<JobSeries>(s)), plot.job[s], &out);
  }
  out += "},\"values\":{";
  for (const auto& [name, line] : plot.values) AddLine(name, line, &out);
  out += "},\"ranks\":{";
  for (const auto& [rank, lines] : plot.ranks) {
    if (rank >= kMaxStoredRanks) break;
    if (out.back() != '{') out += ',';
    out += fmt::format("\"{}\":{{", rank);
    for (size_t s = 0; s < kRankSeries; ++s) {
      AddLine(Name(static_cast<RankSeries>(s)), lines[s], &out);
    }
    out += '}';
  }
  return out + "}}\n";
}

StatusOr<StoredHistory> DecodeHistory(std::string_view text) {
  const json from = json::parse(text, nullptr, false);
  if (!from.is_object()) return InvalidArgument("it is not a JSON object");
  LOCKSTEP_RETURN_IF_ERROR(Number(from, "format", kFormat, kFormat).status());
  StoredHistory history;
  LOCKSTEP_ASSIGN_OR_RETURN(history.job, Text(from, "job"));
  LOCKSTEP_ASSIGN_OR_RETURN(history.uid, Text(from, "uid"));
  LOCKSTEP_ASSIGN_OR_RETURN(history.owner, Text(from, "owner"));
  LOCKSTEP_RETURN_IF_ERROR(ReadPlot(from, &history.plot));
  return history;
}

StoredSpan SpanOf(WallTime from, WallTime to) {
  constexpr Duration kSteps[] = {
      std::chrono::seconds(1),  std::chrono::seconds(5),
      std::chrono::seconds(15), std::chrono::seconds(30),
      std::chrono::seconds(60), std::chrono::seconds(300)};
  const Duration length = std::max<Duration>(to - from, kSteps[0]);
  // One point may be lost at each end.
  constexpr int64_t kFull = kMaxStoredPoints - 2;
  Duration step = kSteps[0];
  for (const Duration larger : kSteps) {
    if (length > step * kFull) step = larger;
  }
  while (length > step * kFull) step *= 2;
  StoredSpan span;
  span.from = WallTime(step * (from.time_since_epoch() / step));
  span.points = static_cast<size_t>(
      (from + length - span.from + step - Duration(1)) / step);
  span.to = span.from + step * static_cast<int64_t>(span.points);
  return span;
}

}  // namespace lockstep::server
