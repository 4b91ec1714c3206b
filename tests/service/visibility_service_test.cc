// What the owner of a job, an admin and others are shown of it.
#include <gmock/gmock.h>

#include "server/log_stream/log_stream.h"
#include "tests/service/fixture.h"

namespace lockstep::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr char kSecret[] = "s3cret";

// "quiet" is of ann, with the secret in all that she and her program wrote.
class VisibilityServiceTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    daemon_ = std::make_unique<DaemonStream>(Worker("a"));
    ASSERT_TRUE(daemon_->Register("a"));
    v1::JobSpec spec = Spec("quiet");
    spec.add_argv(kSecret);
    (*spec.mutable_environment())["TOKEN"] = kSecret;
    (*spec.mutable_labels())["team"] = kSecret;
    spec.set_comment(kSecret);
    ASSERT_TRUE(Submit(SubmitRequest(spec)).ok());
    status_ = RunOn(daemon_.get(), "quiet");
  }
  void TearDown() override {
    daemon_.reset();
    ServiceTest::TearDown();
  }
  // Its rank fails with a message.
  void Fail() {
    RankStatus& rank = status_.ranks.at(0);
    rank.state = RankState::kExited;
    rank.exit.emplace();
    rank.exit->value = 3;
    rank.exit->message = kSecret;
    rank.exit->end_time = clock_.Now().wall;
    ASSERT_TRUE(daemon_->Report(status_));
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (coordinator_->queries()->GetJob("quiet")->job->failing ==
               std::nullopt &&
           !IsFinal(coordinator_->queries()->GetJob("quiet")->job->state)) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      coordinator_->Tick();
    }
  }
  void OpenToAll() {
    Site site = site_;
    site.visibility = Visibility::kCluster;
    tables_->Set(site);
  }
  v1::Job GetAs(const std::shared_ptr<grpc::Channel>& channel) {
    const auto stub = v1::JobService::NewStub(channel);
    v1::GetJobRequest request;
    request.set_name("quiet");
    const auto job = Answer<v1::Job>([&](auto* context, auto* response) {
      return stub->GetJob(context, request, response);
    });
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : v1::Job();
  }
  std::vector<v1::Job> ListAs(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& filter = "") {
    const auto stub = v1::JobService::NewStub(channel);
    v1::ListJobsRequest request;
    request.set_filter(filter);
    const auto list =
        Answer<v1::ListJobsResponse>([&](auto* context, auto* response) {
          return stub->ListJobs(context, request, response);
        });
    EXPECT_TRUE(list.ok()) << list.status();
    if (!list.ok()) return {};
    return {list->jobs().begin(), list->jobs().end()};
  }
  // All until the snapshot is complete.
  std::string WatchAs(const std::shared_ptr<grpc::Channel>& channel,
                      const std::string& name) {
    const auto stub = v1::JobService::NewStub(channel);
    const auto context = Context();
    v1::WatchJobsRequest request;
    request.set_name(name);
    const auto reader = stub->WatchJobs(context.get(), request);
    v1::WatchJobsResponse event;
    std::string seen;
    while (reader->Read(&event) && !event.has_synced()) {
      seen += event.DebugString();
    }
    context->TryCancel();
    while (reader->Read(&event)) {
    }
    reader->Finish();
    return seen;
  }
  Status LogsAs(const std::shared_ptr<grpc::Channel>& channel) {
    const auto stub = v1::JobService::NewStub(channel);
    const auto context = Context();
    v1::StreamLogsRequest request;
    request.set_name("quiet");
    request.set_include_events(true);
    const auto reader = stub->StreamLogs(context.get(), request);
    v1::StreamLogsResponse response;
    int lines = 0;
    while (reader->Read(&response)) lines += response.lines_size();
    const Status status = FromGrpc(reader->Finish());
    EXPECT_EQ(lines > 0, status.ok());
    return status;
  }

  std::unique_ptr<DaemonStream> daemon_;
  GangStatus status_;
};

TEST_F(VisibilityServiceTest, OthersSeeThatAndNotWhat) {
  Fail();
  const auto ann = User("ann");
  const auto adam = User("adam", pki::UserRole::kAdmin);
  for (const auto& channel : {ann, adam}) {
    const v1::Job job = GetAs(channel);
    EXPECT_FALSE(job.details_hidden());
    EXPECT_EQ(job.spec().environment().at("TOKEN"), kSecret);
    EXPECT_THAT(job.DebugString(),
                HasSubstr(std::string("message: \"") + kSecret));
    EXPECT_THAT(WatchAs(channel, "quiet"), HasSubstr(kSecret));
    EXPECT_THAT(WatchAs(channel, ""), HasSubstr(kSecret));
    EXPECT_EQ(ListAs(channel).at(0).spec().comment(), kSecret);
    EXPECT_TRUE(LogsAs(channel).ok());
  }
  const auto bob = User("bob");
  const auto viewer = User("vera", pki::UserRole::kViewer);
  for (const auto& channel : {bob, viewer}) {
    const v1::Job job = GetAs(channel);
    EXPECT_TRUE(job.details_hidden());
    EXPECT_THAT(job.DebugString(), Not(HasSubstr(kSecret)));
    EXPECT_EQ(job.owner(), "user/ann");
    EXPECT_EQ(job.tasks(0).node(), "a");
    EXPECT_EQ(job.tasks(0).ranks(0).exit().code(), 3);
    EXPECT_GT(job.events_size(), 0);
    for (const char* name : {"quiet", ""}) {
      EXPECT_THAT(WatchAs(channel, name),
                  AllOf(HasSubstr("name: \"quiet\""), Not(HasSubstr(kSecret)),
                        HasSubstr("details_hidden: true")));
    }
    const auto listed = ListAs(channel);
    ASSERT_EQ(listed.size(), 1u);
    EXPECT_THAT(listed[0].DebugString(), Not(HasSubstr(kSecret)));
    EXPECT_TRUE(listed[0].details_hidden());
    const Status logs = LogsAs(channel);
    EXPECT_EQ(logs.code(), StatusCode::kPermissionDenied);
    EXPECT_EQ(ReasonOf(logs), "DETAILS_HIDDEN");
    EXPECT_THAT(Message(logs),
                AllOf(HasSubstr("user/ann"), HasSubstr("visibility: cluster")));
  }
  // A site may open them.
  OpenToAll();
  for (const auto& channel : {bob, viewer}) {
    EXPECT_EQ(GetAs(channel).DebugString(), GetAs(ann).DebugString());
    EXPECT_THAT(WatchAs(channel, ""), HasSubstr(kSecret));
    EXPECT_EQ(ListAs(channel).at(0).spec().comment(), kSecret);
    EXPECT_TRUE(LogsAs(channel).ok());
  }
}

// A watch that goes on: changes and progress.
// A reader whose request was taken before the job came to be, or while the name
// was another job's.
TEST_F(VisibilityServiceTest, AReaderOfANameThatAnotherTakesSeesNothing) {
  struct Peer final : StreamPeer {
    void Wake() override {}
    bool IsCancelled() const override { return false; }
    void Cancel() override {}
  } peer;
  v1::StreamLogsRequest request;
  request.set_name("next");
  request.set_follow(true);
  request.set_include_events(true);
  const auto reader_of = [](const std::string& name) {
    return ReaderOf(name, /*admin=*/false, Visibility::kOwner);
  };
  LogStream bob(coordinator_->queries(), hub_.get(), logs_.get(), nullptr,
                reader_of("user/bob"), request, &peer);
  LogStream ann(coordinator_->queries(), hub_.get(), logs_.get(), nullptr,
                reader_of("user/ann"), request, &peer);
  MustSubmit("next");
  v1::StreamLogsResponse message;
  const StreamStep step = bob.Next(&message);
  EXPECT_EQ(step.kind, StreamStep::Kind::kEnd);
  EXPECT_EQ(step.status.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(step.status), "DETAILS_HIDDEN");
  EXPECT_EQ(message.lines_size(), 0);
  EXPECT_EQ(ann.Next(&message).kind, StreamStep::Kind::kSend);
  EXPECT_GT(message.lines_size(), 0);
}

TEST_F(VisibilityServiceTest, WhatChangesIsHiddenToo) {
  const auto stub = v1::JobService::NewStub(User("bob"));
  const auto context = Context();
  v1::WatchJobsRequest request;
  request.set_resource_version(coordinator_->queries()->version());
  const auto reader = stub->WatchJobs(context.get(), request);
  GangProgress progress{"quiet", status_.generation, {status_.ranks[0]}};
  progress.ranks[0].progress.step = 2;
  progress.ranks[0].progress.committed_step = 1;
  progress.ranks[0].progress.loss = 0.25;
  progress.ranks[0].progress.values = {{kSecret, 1}};
  clock_.Advance(std::chrono::seconds(1));
  ASSERT_TRUE(daemon_->Beat(2, {progress}));
  // Once that is acknowledged, the next tick tells of it.
  ASSERT_TRUE(daemon_->Read(v1::CoordinatorMessage::kHeartbeatAck));
  coordinator_->Tick();
  v1::WatchJobsResponse event;
  bool progressed = false;
  while (!progressed) {
    ASSERT_TRUE(reader->Read(&event));
    progressed =
        event.has_progress() && event.progress().chief().committed_step() == 1;
    if (!progressed) continue;
    EXPECT_EQ(event.progress().chief().loss(), 0);
    EXPECT_THAT(event.DebugString(), Not(HasSubstr(kSecret)));
  }
  Fail();
  bool failed = false;
  while (!failed) {
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_THAT(event.DebugString(), Not(HasSubstr(kSecret)));
    failed = event.has_job() && event.job().events_size() > 0 &&
             event.job().tasks_size() > 0 &&
             event.job().tasks(0).ranks(0).exit().code() == 3;
  }
  EXPECT_TRUE(event.job().details_hidden());
  context->TryCancel();
  while (reader->Read(&event)) {
  }
  reader->Finish();
}

// A list is no oracle: whatever a label of another's job is, the answer to a
// filter that names it is the same.
TEST_F(VisibilityServiceTest, AFilterFindsNothingByWhatIsHidden) {
  v1::JobSpec own = Spec("bobs");
  (*own.mutable_labels())["team"] = kSecret;
  ASSERT_TRUE(Submit(SubmitRequest(own), User("bob")).ok());
  const auto names = [&](const std::string& user, const std::string& filter) {
    std::vector<std::string> out;
    for (const v1::Job& job : ListAs(User(user), filter)) {
      out.push_back(job.name());
    }
    return out;
  };
  for (const std::string filter :
       {"labels.team=s3cret", "labels.team:s*", "labels.team~^s",
        "labels.team:*", "NOT labels.team=x", "labels.team!=x"}) {
    EXPECT_THAT(names("bob", filter), ElementsAre("bobs")) << filter;
    EXPECT_THAT(names("ann", filter), ElementsAre("quiet")) << filter;
    EXPECT_THAT(names("eve", filter), IsEmpty()) << filter;
  }
  EXPECT_THAT(names("eve", "owner=user/ann"), ElementsAre("quiet"));
  OpenToAll();
  EXPECT_THAT(names("eve", "labels.team=s3cret"), ElementsAre("bobs", "quiet"));
}

}  // namespace
}  // namespace lockstep::server
