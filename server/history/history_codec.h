// The file of a job's history: JSON, one object. Pure.
//
//   {"format":1,"job":"train","uid":"1f..","owner":"user/ann",
//    "start_unix_nanos":..,"step_nanos":..,"points":288,
//    "job_series":{"loss":[2.31,null,..],..},"values":{"accuracy":[..]},
//    "ranks":{"0":{"cpu_cores":[..],..}},"checkpoints_unix_nanos":[..]}
//
// A series without a value is absent.
#ifndef LOCKSTEP_SERVER_HISTORY_HISTORY_CODEC_H_
#define LOCKSTEP_SERVER_HISTORY_HISTORY_CODEC_H_

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "server/history/history_plot.h"

namespace lockstep::server {

// Limits of a file. One that breaks them is not read.
inline constexpr size_t kMaxStoredPoints = 300;
inline constexpr int32_t kMaxStoredRanks = 64;
inline constexpr size_t kMaxHistoryFile = size_t{5} << 18;

struct StoredHistory {
  std::string job;
  std::string uid;
  std::string owner;
  HistoryPlot plot;
};

// Leaves out ranks from kMaxStoredRanks on.
std::string EncodeHistory(const StoredHistory& history);
// InvalidArgument: what is wrong, in a sentence.
StatusOr<StoredHistory> DecodeHistory(std::string_view text);

// The start and step of a plot of at most kMaxStoredPoints points over a job's
// life. Steps are 1 s, 5 s, 15 s, 30 s, 1, 5, 10, 20 ... minutes, and starts
// are multiples of them, so that merging an older file again changes nothing.
struct StoredSpan {
  WallTime from{};
  WallTime to{};
  size_t points = 0;
};
StoredSpan SpanOf(WallTime from, WallTime to);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_HISTORY_HISTORY_CODEC_H_
