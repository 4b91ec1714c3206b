#include "server/metrics/stream_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <optional>
#include <sstream>

namespace lockstep::server {
namespace {

using testing::HasSubstr;

std::string StreamsPage(const StreamMetrics& metrics) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, metrics.Collect());
  return out.str();
}

TEST(StreamMetricsTest, EveryKindIsThereFromTheStart) {
  const std::string page = StreamsPage(StreamMetrics());
  for (const char* kind : {"jobs", "logs", "workers"}) {
    EXPECT_THAT(page, HasSubstr(std::string("lockstep_watch_streams{kind=\"") +
                                kind + "\"} 0"));
    EXPECT_THAT(page,
                HasSubstr(std::string("lockstep_watch_lag_events{kind=\"") +
                          kind + "\"} 0"));
  }
}

TEST(StreamMetricsTest, TheReaderWhoIsMostBehindCounts) {
  StreamMetrics metrics;
  int64_t lag = 7;
  std::optional<StreamMetrics::Open> slow(
      std::in_place, &metrics, StreamKind::kJobs, [&] { return lag; });
  const StreamMetrics::Open fast(&metrics, StreamKind::kJobs, [] { return 1; });
  const StreamMetrics::Open log(&metrics, StreamKind::kLogs, [] { return 3; });
  std::string page = StreamsPage(metrics);
  EXPECT_THAT(page, HasSubstr("lockstep_watch_streams{kind=\"jobs\"} 2"));
  EXPECT_THAT(page, HasSubstr("lockstep_watch_lag_events{kind=\"jobs\"} 7"));
  EXPECT_THAT(page, HasSubstr("lockstep_watch_lag_events{kind=\"logs\"} 3"));
  lag = 9;
  EXPECT_THAT(StreamsPage(metrics),
              HasSubstr("lockstep_watch_lag_events{kind=\"jobs\"} 9"));
  slow.reset();
  page = StreamsPage(metrics);
  EXPECT_THAT(page, HasSubstr("lockstep_watch_streams{kind=\"jobs\"} 1"));
  EXPECT_THAT(page, HasSubstr("lockstep_watch_lag_events{kind=\"jobs\"} 1"));
}

TEST(StreamMetricsTest, NobodyNeedCount) {
  const StreamMetrics::Open open(nullptr, StreamKind::kLogs, [] { return 1; });
}

}  // namespace
}  // namespace lockstep::server
