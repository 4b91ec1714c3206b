// Filters of logs as people write them.
#include "client/cli/log_query.h"

#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(log_query)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace cli;
  const std::string text(fuzz::View(data, size));
  (void)ParseSeverity(text);
  const auto query = LogQuery::Parse(text);
  if (!query.ok()) {
    fuzz::Require(query.status().code() == StatusCode::kInvalidArgument &&
                      !query.status().message().empty(),
                  "a refusal says what is wrong");
    return 0;
  }
  v1::LogLine line;
  line.mutable_time()->set_seconds(1'795'262'400);
  line.set_rank(1);
  line.set_attempt(2);
  line.set_stream("stderr");
  line.set_text(text);
  line.set_severity(v1::SEVERITY_ERROR);
  line.set_task("worker-replica-0");
  LogOptions options;
  (void)query->Narrow("job", &options);
  if (!query->Matches("job", line)) return 0;
  // What the coordinator is asked for must not leave it out.
  fuzz::Require(line.severity() >= options.min_severity,
                "a line that matches is not too good");
  const WallTime time = FromUnixNanos(1'795'262'400'000'000'000);
  fuzz::Require(!options.since || *options.since <= time, "nor too old");
  fuzz::Require(!options.until || *options.until >= time, "nor too new");
  fuzz::Require(options.attempt == 0 || options.attempt == 2,
                "nor of another attempt");
  bool wanted = options.tasks.empty();
  for (const std::string& task : options.tasks) {
    wanted = wanted || task == line.task();
  }
  fuzz::Require(wanted, "nor of another task");
  return 0;
}
