#include "server/query/job_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::server {
namespace {

using ::testing::HasSubstr;
using std::chrono_literals::operator""h;

// 2026-01-31T12:00:00Z.
const WallTime kFilterNow = FromUnixNanos(1'769'860'800'000'000'000);

Job Of(const std::string& name, JobState state) {
  Job job;
  job.spec.name = name;
  job.spec.labels = {{"team", "vision"}, {"empty", ""}};
  job.owner = "user/ann";
  job.state = state;
  return job;
}

bool Matches(const std::string& filter, const Job& job,
             bool details_hidden = false) {
  const auto parsed = JobFilter::Parse(filter);
  EXPECT_TRUE(parsed.ok()) << filter << ": " << parsed.status();
  return parsed.ok() && parsed->Matches(job, kFilterNow, details_hidden);
}

TEST(JobFilterTest, Terms) {
  const Job job = Of("rnn_1", JobState::kFailed);
  for (const char* filter :
       {"", "  ", "jobId:rnn*", "jobId:rnn_1", "jobId=rnn_1", "name=rnn_1",
        "jobId:*", "jobId:rnn* AND state:FAILED", "state=failed",
        "state!=SUCCEEDED", "labels.team=vision", "labels.team:vis*",
        "labels.team:*", "labels.team!=audio", "labels.other!=x",
        "labels.empty=\"\"", "owner=user/ann", "owner:user/*",
        " jobId = \"rnn_1\"  AND  state : FAILED "}) {
    EXPECT_TRUE(Matches(filter, job)) << filter;
  }
  for (const char* filter :
       {"jobId:rnn", "jobId=rnn*", "jobId:rnn* AND state:SUCCEEDED",
        "state!=FAILED", "labels.team=v", "labels.other:*", "owner=user/bob",
        "labels.empty!=\"\"", "jobId!=rnn_1"}) {
    EXPECT_FALSE(Matches(filter, job)) << filter;
  }
}

// Whatever the labels of a job are, who may not see them gets the same list.
TEST(JobFilterTest, HiddenFieldsTellNothing) {
  std::vector<Job> jobs(3, Of("rnn_1", JobState::kFailed));
  jobs[1].spec.labels = {{"team", "audio"}};
  jobs[2].spec.labels.clear();
  for (const char* filter :
       {"labels.team=vision", "labels.team!=vision", "labels.team:*",
        "NOT labels.team:*", "NOT labels.team=vision", "labels.team~v",
        "labels.team!~v", "jobId:rnn* AND labels.team=vision",
        "jobId:x OR NOT labels.team=vision",
        "NOT (labels.team=vision AND jobId:rnn*)",
        "labels.team=vision OR labels.team!=vision"}) {
    for (const Job& job : jobs) {
      EXPECT_FALSE(Matches(filter, job, true)) << filter;
    }
  }
  // Where the rest settles it, the label does not count.
  for (const Job& job : jobs) {
    EXPECT_TRUE(Matches("jobId:rnn* OR labels.team=vision", job, true));
    EXPECT_TRUE(Matches("NOT (jobId:x AND labels.team=vision)", job, true));
    EXPECT_TRUE(Matches("owner=user/ann AND state=FAILED", job, true));
    EXPECT_TRUE(Matches("", job, true));
  }
  EXPECT_TRUE(Matches("labels.team!=vision", jobs[1]));
}

TEST(JobFilterTest, WhatIsThereWhateverItIs) {
  const Job job = Of("rnn_1", JobState::kRunning);
  for (const char* filter :
       {"labels.team:*", "labels.team=*", "labels.empty=*", "jobId:*",
        "createTime:*", "NOT labels.other:*", "NOT endTime:*",
        "labels.other!=*", "label.team:*", "NOT pool:*"}) {
    EXPECT_TRUE(Matches(filter, job)) << filter;
  }
  for (const char* filter : {"labels.other=*", "endTime:*", "startTime=*",
                             "labels.team=\"*\"", "pool=*"}) {
    EXPECT_FALSE(Matches(filter, job)) << filter;
  }
}

TEST(JobFilterTest, Logic) {
  const Job job = Of("rnn_1", JobState::kFailed);
  for (const char* filter :
       {"jobId:x OR state:FAILED", "NOT jobId:x", "NOT NOT jobId:rnn_1",
        "-jobId:x", "(jobId:rnn_1)", "((jobId:rnn*))",
        "jobId:rnn* state:FAILED", "jobId:rnn* AND NOT state:SUCCEEDED",
        "(jobId:x OR jobId:rnn_1) AND state:FAILED",
        "jobId:x OR (jobId:rnn* AND state=failed)",
        "NOT (jobId:x OR state=RUNNING)", "state:(FAILED OR CANCELLED)",
        "state=(SUCCEEDED,FAILED)", "state!=(SUCCEEDED,RUNNING)",
        "jobId:( a* OR rnn* )", "labels.team:(audio OR vis*)",
        "jobId~^r.n AND jobId!~z", "jobId~\"(_1|_2)$\"", "kind=NATIVE"}) {
    EXPECT_TRUE(Matches(filter, job)) << filter;
  }
  for (const char* filter :
       {"NOT jobId:rnn*", "jobId:x OR state:SUCCEEDED",
        "jobId:rnn* state:SUCCEEDED", "state!=(FAILED,RUNNING)",
        "(jobId:x OR jobId:rnn_1) AND state:RUNNING", "jobId~^n",
        "-(jobId:rnn_1)", "kind=program", "NOT (NOT jobId:x)"}) {
    EXPECT_FALSE(Matches(filter, job)) << filter;
  }
}

TEST(JobFilterTest, TimesAndNumbers) {
  Job job = Of("a", JobState::kFailed);
  job.create_time = kFilterNow - 3h;
  job.end_time = kFilterNow - 1h;
  job.spec.priority = 7;
  for (const char* filter :
       {"createTime>2026-01-31", "createTime<=2026-01-31T09:00:00Z",
        "createTime=2026-01-31T10:00:00+01:00", "createTime<\"2026-02-01\"",
        "createTime>=-P1D", "createTime<-pt2h", "endTime>-PT90M",
        "endTime>2026-01-31T10:59:59.5", "priority>=7 AND priority<10",
        "trainingInput.scheduling.priority=7", "createTime>-P1W2DT1S",
        "createTime!=2026-01-31", "createTime>2026-01-30T23:00:00-05:00"}) {
    EXPECT_TRUE(Matches(filter, job)) << filter;
  }
  for (const char* filter :
       {"createTime>-PT2H", "createTime<2026-01-31", "priority>7",
        "startTime<2030-01-01", "startTime>2000-01-01", "startTime:*"}) {
    EXPECT_FALSE(Matches(filter, job)) << filter;
  }
}

TEST(JobFilterTest, WhereItRuns) {
  Job job = Of("a", JobState::kQueued);
  job.spec.pool = "a100";
  EXPECT_FALSE(Matches("trainingInput.region:*", job));
  job.training.Edit().emplace().training_input.region = "us-central1";
  EXPECT_TRUE(Matches("trainingInput.region:us-* AND pool=a100", job));
}

// A state is one of AI Platform's or one of ours.
TEST(JobFilterTest, States) {
  Job job = Of("a", JobState::kPlacing);
  EXPECT_TRUE(Matches("state:QUEUED", job));
  EXPECT_TRUE(Matches("state:PLACING", job));
  job.generation = 1;
  job.state = JobState::kForming;
  EXPECT_TRUE(Matches("state:PREPARING", job));
  job.start_time = WallTime();
  EXPECT_TRUE(Matches("state:RUNNING", job));
  EXPECT_TRUE(Matches("state:FORMING", job));
  EXPECT_FALSE(Matches("state:PREPARING", job));
  job.state = JobState::kFinishing;
  job.outcome = JobState::kCancelled;
  EXPECT_TRUE(Matches("state:CANCELLING", job));
  EXPECT_TRUE(Matches("state:FINISHING", job));
  EXPECT_FALSE(Matches("state:CANCELLED", job));
}

TEST(JobFilterTest, WhatIsRefused) {
  const struct {
    std::string filter;
    const char* want;
  } cases[] = {
      {"rnn", "column 1: \"rnn\" is not a term such as jobId:rnn*"},
      {" =x", "column 2: \"=\" is not a term"},
      {"jobId", "\"jobId\" is not a term"},
      {"jobId:", "column 6: jobId: has no value"},
      {"jobId:\"\"", "jobId is never empty"},
      {"jobID:x", "column 1: there is no field jobID; did you mean jobId?"},
      {"frob=x", "there are jobId, state, createTime"},
      {"labels.=x", "there is no field labels."},
      {"state:RUNING",
       "column 7: there is no state RUNING; did you mean "
       "RUNNING?"},
      {"state:X", "there are QUEUED, PREPARING"},
      {"jobId:r*n", "a \"*\" must be at the end"},
      {"jobId:a AND", "column 12: \"the end\" is not a term"},
      {"jobId:a AND AND state=FAILED", "column 13: \"AND\" is not a term"},
      {"OR jobId:a", "column 1: \"OR\" is not a term"},
      {"jobId:a OR jobId:b AND state=FAILED",
       "column 20: AND and OR are mixed: put brackets"},
      {"jobId:a jobId:b OR state=FAILED", "column 17: AND and OR are mixed"},
      {"(jobId:a", "column 1: this bracket is not closed"},
      {"jobId:a)", "column 8: \")\" has no opening bracket"},
      {"()", "column 2: \")\" is not a term"},
      {"state:(FAILED", "column 7: this bracket is not closed"},
      {"state:(FAILED AND RUNNING)", "join values in brackets by OR"},
      {"state:()", "has no value"},
      {"NOT", "\"the end\" is not a term"},
      {"jobId=\"a", "column 7: the quote \" is not closed"},
      {"jobId<a", "column 6: jobId takes = != : ~ and !~, not <"},
      {"createTime~x", "createTime takes = != : < <= > and >=, not ~"},
      {"createTime>yesterday",
       "column 12: \"yesterday\" is not a time such as"},
      {"createTime>-P1Y", "is not a time"},
      {"createTime>-P", "is not a time"},
      {"createTime>-P99999999999999999999D", "is not a time"},
      {"createTime>-P999999999W", "is not a time"},
      {"priority>x", "\"x\" is not a whole number"},
      {"jobId~\"(\"", "is not a valid RE2 expression"},
      {std::string(25, '(') + "jobId:a" + std::string(25, ')'),
       "brackets are nested too deep"},
      {std::string(5000, 'x'), "has 5000 bytes"},
  };
  for (const auto& c : cases) {
    const auto parsed = JobFilter::Parse(c.filter);
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << c.filter;
    EXPECT_THAT(Message(parsed.status()), HasSubstr(c.want)) << c.filter;
  }
  std::string many = "jobId:a";
  for (int i = 0; i < 64; ++i) many += " AND jobId:a";
  std::string negated;
  for (int i = 0; i < 1000; ++i) negated += "NOT ";
  EXPECT_THAT(Message(JobFilter::Parse(negated + "jobId:a").status()),
              HasSubstr("NOT is nested too deep"));
  EXPECT_THAT(Message(JobFilter::Parse(many).status()),
              HasSubstr("more than 64 terms"));
}

}  // namespace
}  // namespace lockstep::server
