// Filters of logs as people write them.
#include "common/logs/log_query.h"

#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(log_query)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string text(fuzz::View(data, size));
  (void)ParseLogSeverity(text);
  const auto query = LogQuery::Parse(text);
  if (!query.ok()) {
    fuzz::Require(query.status().code() == StatusCode::kInvalidArgument &&
                      !query.status().message().empty(),
                  "a refusal says what is wrong");
    return 0;
  }
  const LogEntry line = {.job = "job",
                         .task = "worker-replica-0",
                         .text = text,
                         .stream = "stderr",
                         .severity = 4,
                         .unix_nanos = 1'795'262'400'000'000'000,
                         .rank = 1,
                         .attempt = 2};
  LogBounds bounds;
  (void)query->Narrow("job", &bounds);
  if (!query->Matches(line)) return 0;
  // What the coordinator is asked for must not leave it out.
  fuzz::Require(line.severity >= bounds.min_severity,
                "a line that matches is not too good");
  fuzz::Require(!bounds.since || *bounds.since <= line.unix_nanos,
                "nor too old");
  fuzz::Require(!bounds.until || *bounds.until >= line.unix_nanos,
                "nor too new");
  fuzz::Require(bounds.attempt == 0 || bounds.attempt == 2,
                "nor of another attempt");
  bool wanted = bounds.tasks.empty();
  for (const std::string& task : bounds.tasks) {
    wanted = wanted || task == line.task;
  }
  fuzz::Require(wanted, "nor of another task");
  return 0;
}
