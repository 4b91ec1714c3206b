#include "common/logs/log_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kNoon = 1'795'262'400;  // 2026-11-21 12:00:00 UTC

LogEntry Line(std::string_view text, int severity,
              std::string_view task = "worker-replica-1") {
  return {.job = "fashion",
          .task = task,
          .text = text,
          .stream = "stderr",
          .severity = severity,
          .unix_nanos = kNoon * 1'000'000'000,
          .rank = 2,
          .attempt = 1};
}

bool Matches(const std::string& query, const LogEntry& line) {
  const auto parsed = LogQuery::Parse(query);
  EXPECT_TRUE(parsed.ok()) << query << ": " << parsed.status();
  return parsed.ok() && parsed->Matches(line);
}

std::string Refusal(const std::string& query) {
  const auto parsed = LogQuery::Parse(query);
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << query;
  return Message(parsed.status());
}

TEST(LogQueryTest, WhatUsersWrite) {
  const LogEntry line = Line("Loss is NaN", 4);
  for (const char* query : {
           R"(resource.labels.task_name="worker-replica-1" severity>=ERROR)",
           R"(resource.labels.job_id="fashion" AND severity=error)",
           R"(labels."ml.googleapis.com/task_name"="worker-replica-1")",
           R"(resource.type="ml_job" severity>=ERROR)",
           R"(resource.type="cloudml_job" resource.labels.job_id="fashion")",
           R"(resource.type=("gce_instance" OR "ml_job"))",
           R"(resource.type!="gce_instance")",
           R"(textPayload:"loss")",
           R"(textPayload=~"NaN$")",
           R"(jsonPayload.message="loss is nan")",
           R"(NOT severity<WARNING)",
           R"(-textPayload:"accuracy")",
           R"("is nan")",
           R"(nan)",
           R"(timestamp>="2026-11-21T12:00:00Z" timestamp<"2026-11-22")",
           R"(timestamp>=2026-11-21T13:00:00+01:00)",
           R"(timestamp<=2026-11-21T12:00:00Z)",
           R"(severity=(INFO OR ERROR))",
           R"(textPayload:("loss" AND "nan"))",
           R"(labels.rank=2 labels.attempt<2 labels.stream="stderr")",
           // OR binds closer than AND.
           R"(severity=INFO OR severity=ERROR AND textPayload:"loss")",
           R"(textPayload:"no" OR (severity=ERROR textPayload:"nan"))",
           R"(resource.labels.task_name!="chief-replica-0")",
           R"(resource.labels.task_name=~"^worker-")",
           R"(severity>=400)",
       }) {
    EXPECT_TRUE(Matches(query, line)) << query;
    EXPECT_FALSE(Matches("NOT (" + std::string(query) + ")", line)) << query;
  }
  EXPECT_TRUE(Matches("resource.labels.task_name=\"chief-replica-0\"",
                      Line("x", 2, "master-replica-0")));
  EXPECT_TRUE(Matches(R"(textPayload:"say \"x\"")", Line("say \"x\" now", 2)));
  // No text at all.
  EXPECT_TRUE(Matches("textPayload:x", Line("\xff x", 2)));
  EXPECT_TRUE(LogQuery().Matches(line));
}

TEST(LogQueryTest, RefusesWithTheColumn) {
  EXPECT_EQ(Refusal("severity>=ERROR resource.labels.tsk_name=x"),
            "column 17: there is no field resource.labels.tsk_name; did you "
            "mean resource.labels.task_name?");
  EXPECT_THAT(Refusal("logName=x"),
              HasSubstr("column 1: there is no field logName; there are"));
  EXPECT_THAT(
      Refusal("severity>=BAD"),
      HasSubstr("column 11: \"BAD\" is not a severity; there are DEBUG"));
  EXPECT_THAT(Refusal("severity:ERROR"),
              HasSubstr("column 9: severity takes =, !=, <, <=, > and >="));
  EXPECT_THAT(Refusal("textPayload>\"x\""), HasSubstr("takes =, !=, :, =~"));
  EXPECT_THAT(Refusal("textPayload=~\"x(\""),
              HasSubstr("column 14: \"x(\" is not a valid RE2 expression"));
  EXPECT_THAT(Refusal("timestamp>yesterday"),
              HasSubstr("is not a time such as"));
  EXPECT_THAT(Refusal("labels.rank=two"), HasSubstr("is not a whole number"));
  EXPECT_THAT(Refusal("textPayload:\"x"), HasSubstr("quote is not closed"));
  EXPECT_THAT(Refusal("(severity=ERROR"), HasSubstr("\")\" is missing"));
  EXPECT_THAT(Refusal("severity=ERROR)"), HasSubstr("nothing may follow"));
  EXPECT_THAT(Refusal("severity="), HasSubstr("a value is missing"));
  EXPECT_THAT(Refusal("severity=ERROR AND"), HasSubstr("is missing"));
  EXPECT_THAT(Refusal("OR x"), HasSubstr("between two comparisons"));
  EXPECT_THAT(Refusal("severity=(A OR"), HasSubstr("is not a severity"));
  EXPECT_THAT(Refusal("textPayload:(a OR b AND c)"),
              HasSubstr("either AND or OR"));
  EXPECT_THAT(Refusal(""), HasSubstr("empty"));
  EXPECT_THAT(Refusal("  "), HasSubstr("empty"));
  EXPECT_THAT(Refusal("= x"), HasSubstr("a field or a text is missing"));
  EXPECT_THAT(Refusal(std::string(1000, '(')), HasSubstr("too deep"));
  EXPECT_THAT(Refusal(std::string(30'000, 'x')), HasSubstr("20000 bytes"));
}

struct Narrowed {
  LogBounds bounds;
  bool all = false;
};
Narrowed Narrow(const std::string& query) {
  const auto parsed = LogQuery::Parse(query);
  EXPECT_TRUE(parsed.ok()) << query << ": " << parsed.status();
  Narrowed out;
  if (parsed.ok()) out.all = parsed->Narrow("fashion", &out.bounds);
  return out;
}

TEST(LogQueryTest, TheCoordinatorDoesWhatItCan) {
  Narrowed n = Narrow(
      R"(resource.labels.task_name=("worker-replica-0" OR "ps-replica-1")
         severity>WARNING timestamp>="2026-11-21T12:00:00Z"
         timestamp<="2026-11-21T13:00:00Z" textPayload:"a.b" labels.attempt=2
         resource.labels.job_id="fashion")");
  EXPECT_TRUE(n.all);
  EXPECT_THAT(n.bounds.tasks, ElementsAre("worker-replica-0", "ps-replica-1"));
  EXPECT_EQ(n.bounds.min_severity, 4);
  EXPECT_EQ(n.bounds.since, kNoon * 1'000'000'000);
  EXPECT_EQ(n.bounds.until, (kNoon + 3600) * 1'000'000'000);
  EXPECT_EQ(n.bounds.grep, "(?i)a\\.b");
  EXPECT_EQ(n.bounds.attempt, 2);
  n = Narrow("textPayload=~\"a.b\" severity=ERROR");
  EXPECT_EQ(n.bounds.grep, "a.b");
  EXPECT_EQ(n.bounds.min_severity, 4);
  EXPECT_FALSE(n.all) << "worse ones come, too";
  // What must not be narrowed.
  for (const char* query :
       {"NOT severity>=ERROR", "severity>=ERROR OR textPayload:x",
        "NOT resource.labels.task_name=\"worker-replica-0\"",
        "resource.labels.task_name=~\"worker\"", "severity<ERROR",
        "labels.rank=1", "resource.labels.job_id=\"other\""}) {
    n = Narrow(query);
    EXPECT_FALSE(n.all) << query;
    EXPECT_THAT(n.bounds.tasks, IsEmpty()) << query;
    EXPECT_EQ(n.bounds.min_severity, 0) << query;
    EXPECT_EQ(n.bounds.grep, "") << query;
  }
  // The narrower of two.
  n = Narrow(
      "severity>=WARNING severity>=ERROR timestamp>2026-11-21 "
      "timestamp>2026-11-20");
  EXPECT_EQ(n.bounds.min_severity, 4);
  EXPECT_EQ(n.bounds.since, (kNoon - 43200) * 1'000'000'000);
}

TEST(LogQueryTest, Severities) {
  EXPECT_EQ(*ParseLogSeverity("warning"), 3);
  EXPECT_EQ(*ParseLogSeverity("NOTICE"), 2);
  EXPECT_EQ(*ParseLogSeverity("600"), 5);
  EXPECT_FALSE(ParseLogSeverity("").ok());
  EXPECT_FALSE(ParseLogSeverity("5").ok());
}

}  // namespace
}  // namespace lockstep
