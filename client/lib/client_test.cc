#include "client/lib/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "client/lib/fake_coordinator.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Job MakeJob(const std::string& name, v1::JobState state,
                int64_t version = 1) {
  v1::Job job;
  job.set_name(name);
  job.set_state(state);
  job.set_resource_version(version);
  return job;
}

v1::WatchJobsResponse JobMessage(v1::JobState state, int64_t version) {
  v1::WatchJobsResponse message;
  *message.mutable_job() = MakeJob("a", state, version);
  return message;
}

v1::WatchJobsResponse SyncedMessage(int64_t version) {
  v1::WatchJobsResponse message;
  message.set_synced(version);
  return message;
}

v1::LogLine Line(int64_t seconds, int32_t rank, const std::string& text) {
  v1::LogLine line;
  line.mutable_time()->set_seconds(seconds);
  line.set_rank(rank);
  line.set_attempt(1);
  line.set_text(text);
  return line;
}

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = FakeCoordinator::Start();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ClientOptions options;
    options.address = server_->address();
    options.insecure_loopback = true;
    auto client = Client::Connect(options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  std::unique_ptr<FakeCoordinator> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, SubmitMakesARequestId) {
  v1::JobSpec spec;
  spec.set_name("a");
  ASSERT_TRUE(client_->SubmitJob(spec).ok());
  ASSERT_TRUE(client_->SubmitJob(spec).ok());
  const auto submits = server_->Answers().submits;
  ASSERT_EQ(submits.size(), 2u);
  EXPECT_EQ(submits[0].request_id().size(), 36u);
  EXPECT_NE(submits[0].request_id(), submits[1].request_id());
}

TEST_F(ClientTest, ErrorsKeepCodeTextAndReason) {
  server_->Update([](FakeAnswers* a) {
    a->errors = {
        WithReason(FailedPrecondition("no node has 9 cpus"), "NEVER_FITS")};
  });
  const auto answer = client_->SubmitJob({});
  EXPECT_EQ(answer.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(answer.status()), "no node has 9 cpus");
  EXPECT_EQ(ReasonOf(answer.status()), "NEVER_FITS");
}

TEST_F(ClientTest, UnavailableForAMomentIsRetried) {
  server_->Update([](FakeAnswers* a) {
    a->jobs = {MakeJob("a", v1::JOB_STATE_RUNNING)};
    a->errors = {Unavailable("stopping"), Unavailable("stopping")};
  });
  EXPECT_TRUE(client_->GetJob("a").ok());
}

TEST_F(ClientTest, NobodyThereIsUnavailableAndNamesTheAddress) {
  const std::string address = server_->address();
  server_.reset();
  const auto answer = client_->GetJob("a");
  EXPECT_EQ(answer.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(answer.status()), HasSubstr(address));
}

TEST_F(ClientTest, ListJoinsPagesUpToTheLimit) {
  server_->Update([](FakeAnswers* a) {
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      a->jobs.push_back(MakeJob(name, v1::JOB_STATE_QUEUED));
    }
  });
  const auto all = client_->ListJobs();
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->size(), 5u);
  ListJobsOptions options;
  options.limit = 3;
  const auto some = client_->ListJobs(options);
  ASSERT_TRUE(some.ok()) << some.status();
  ASSERT_EQ(some->size(), 3u);
  EXPECT_EQ((*some)[2].name(), "c");
}

TEST_F(ClientTest, CancelCheckpointAndNodes) {
  server_->Update([](FakeAnswers* a) {
    a->jobs = {MakeJob("a", v1::JOB_STATE_RUNNING)};
    a->nodes.emplace_back().set_name("host-a");
  });
  const auto directive = client_->RequestCheckpoint("a");
  ASSERT_TRUE(directive.ok());
  EXPECT_EQ(directive->id(), 7u);
  const auto job = client_->CancelJob("a");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(client_->ListNodes()->size(), 1u);
  EXPECT_EQ(client_->GetNode("host-b").status().code(), StatusCode::kNotFound);
}

TEST_F(ClientTest, WatchGoesOnFromItsVersionAfterABreak) {
  server_->Update([](FakeAnswers* a) {
    a->watch = {JobMessage(v1::JOB_STATE_QUEUED, 3), SyncedMessage(3),
                JobMessage(v1::JOB_STATE_RUNNING, 4),
                JobMessage(v1::JOB_STATE_SUCCEEDED, 5)};
    a->breaks = 1;
    a->break_after = 3;
  });
  std::vector<int64_t> versions;
  int interruptions = 0;
  WatchOptions options;
  options.name = "a";
  options.on_interrupted = [&](const Status&) { ++interruptions; };
  const Status status = client_->WatchJobs(
      options,
      [&](const v1::WatchJobsResponse& message) {
        if (message.has_job()) {
          versions.push_back(message.job().resource_version());
        }
        return true;
      },
      nullptr);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(versions, ElementsAre(3, 4, 5));
  EXPECT_EQ(interruptions, 1);
  const auto watches = server_->Answers().watches;
  ASSERT_EQ(watches.size(), 2u);
  EXPECT_EQ(watches[1].resource_version(), 4);
}

TEST_F(ClientTest, WatchStartsAgainWhenItsVersionIsGone) {
  server_->Update([](FakeAnswers* a) {
    a->watch = {JobMessage(v1::JOB_STATE_RUNNING, 9), SyncedMessage(9)};
    a->errors = {OutOfRange("version 4 is no longer kept")};
  });
  WatchOptions options;
  options.resource_version = 4;
  int messages = 0;
  const Status status = client_->WatchJobs(
      options,
      [&](const v1::WatchJobsResponse&) {
        ++messages;
        return true;
      },
      nullptr);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(messages, 2);
  EXPECT_EQ(server_->Answers().watches.back().resource_version(), 0);
}

TEST_F(ClientTest, WatchThatFellBehindStartsAgain) {
  server_->Update([](FakeAnswers* a) {
    a->watch = {JobMessage(v1::JOB_STATE_QUEUED, 3), SyncedMessage(3),
                JobMessage(v1::JOB_STATE_SUCCEEDED, 4)};
    a->breaks = 1;
    a->break_after = 2;
    a->break_error = OutOfRange("version 3 is no longer kept");
  });
  std::vector<int64_t> versions;
  const Status status = client_->WatchJobs(
      {},
      [&](const v1::WatchJobsResponse& message) {
        versions.push_back(message.job().resource_version());
        return versions.back() != 4;
      },
      nullptr);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(versions, ElementsAre(3, 0, 3, 0, 4));
  EXPECT_EQ(server_->Answers().watches.back().resource_version(), 0);
}

TEST_F(ClientTest, WatchStopsFromAnotherThread) {
  server_->Update([](FakeAnswers* a) {
    a->watch = {SyncedMessage(1)};
    a->endless = true;
  });
  StopToken stop;
  std::thread stopper;
  const Status status = client_->WatchJobs(
      {},
      [&](const v1::WatchJobsResponse&) {
        if (!stopper.joinable()) stopper = std::thread([&] { stop.Stop(); });
        return true;
      },
      &stop);
  stopper.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
}

TEST_F(ClientTest, WatchGivesUpOnWhatDoesNotPass) {
  server_->Update([](FakeAnswers* a) { a->errors = {NotFound("no job a")}; });
  const Status status = client_->WatchJobs(
      {}, [](const v1::WatchJobsResponse&) { return true; }, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
}

// A server that stops cancels the calls that it still has.
TEST_F(ClientTest, WhatTheServerCancelsIsTriedAgain) {
  server_->Update([](FakeAnswers* a) {
    a->errors = {Cancelled("shutting down")};
    a->watch = {JobMessage(v1::JOB_STATE_SUCCEEDED, 1)};
  });
  bool seen = false;
  WatchOptions options;
  options.name = "a";
  const Status status = client_->WatchJobs(
      options,
      [&](const v1::WatchJobsResponse& message) {
        seen |= message.has_job();
        return true;
      },
      nullptr);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(seen);
  server_->Update(
      [](FakeAnswers* a) { a->errors = {Cancelled("shutting down")}; });
  EXPECT_EQ(client_->GetJob("a").status().code(), StatusCode::kUnavailable);
}

TEST_F(ClientTest, WaitGoesOnWhileTheCoordinatorIsAway) {
  server_->Update(
      [](FakeAnswers* a) { a->jobs = {MakeJob("a", v1::JOB_STATE_RUNNING)}; });
  StatusOr<v1::Job> job = NotFound("not asked yet");
  std::thread waiter([&] { job = client_->WaitJob("a", {}, nullptr); });
  // It has had an answer, then an error, then the end.
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
  while (server_->Answers().gets == 0 && MonotonicNow() < deadline) {
    std::this_thread::yield();
  }
  server_->Update([](FakeAnswers* a) {
    a->errors = {Cancelled("shutting down")};
    a->jobs = {MakeJob("a", v1::JOB_STATE_SUCCEEDED)};
  });
  waiter.join();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(ClientTest, WaitEndsInTimeWithoutAnEnd) {
  server_->Update(
      [](FakeAnswers* a) { a->jobs = {MakeJob("a", v1::JOB_STATE_RUNNING)}; });
  const auto job =
      client_->WaitJob("a", std::chrono::milliseconds(20), nullptr);
  EXPECT_EQ(job.status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(ClientTest, LogsComeOnceEachOverABreak) {
  server_->Update([](FakeAnswers* a) {
    a->lines = {Line(1, 0, "one"), Line(1, 0, "two"), Line(1, 0, "three"),
                Line(1, 1, "four"), Line(2, 0, "five")};
    a->breaks = 1;
    a->break_after = 2;
  });
  LogOptions options;
  options.name = "a";
  options.follow = true;
  std::vector<std::string> texts;
  const Status status = client_->StreamLogs(
      options,
      [&](const v1::LogLine& line) {
        texts.push_back(line.text());
        return true;
      },
      nullptr);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(texts, ElementsAre("one", "two", "three", "four", "five"));
}

TEST_F(ClientTest, LogsWithoutFollowDoNotTryAgain) {
  server_->Update([](FakeAnswers* a) {
    a->lines = {Line(1, 0, "one"), Line(2, 0, "two")};
    a->breaks = 100;
    a->break_after = 1;
  });
  LogOptions options;
  options.name = "a";
  const Status status = client_->StreamLogs(
      options, [](const v1::LogLine&) { return true; }, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

// As in a pager, where a reader pauses.
TEST_F(ClientTest, LogsGoOnWhereASlowReaderStopped) {
  server_->Update([](FakeAnswers* a) {
    a->lines = {Line(1, 0, "one"), Line(2, 0, "two"), Line(3, 0, "three")};
    a->breaks = 1;
    a->break_after = 2;
    a->break_error = ResourceExhausted("the reader was idle for 60s");
  });
  LogOptions options;
  options.name = "a";
  std::vector<std::string> texts;
  const Status status = client_->StreamLogs(
      options,
      [&](const v1::LogLine& line) {
        texts.push_back(line.text());
        return true;
      },
      nullptr);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(texts, ElementsAre("one", "two", "three"));
}

TEST(ClientConnectTest, RefusesPlainTextBeyondLoopback) {
  ClientOptions options;
  options.address = "192.0.2.1:7443";
  options.insecure_loopback = true;
  EXPECT_EQ(Client::Connect(options).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ClientConnectTest, NamesTheMissingFile) {
  ClientOptions options;
  options.address = "127.0.0.1:1";
  options.ca = "/nonexistent/ca.crt";
  options.certificate = "/nonexistent/tls.crt";
  options.key = "/nonexistent/tls.key";
  const auto client = Client::Connect(options);
  EXPECT_EQ(client.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(client.status()), HasSubstr("/nonexistent"));
}

}  // namespace
}  // namespace lockstep::cli
