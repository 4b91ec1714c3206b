// Jobs as clients watch them.
#include <gmock/gmock.h>

#include "server/service/job_watch.h"
#include "tests/service/fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using testing::ElementsAre;

class WatchServiceTest : public ServiceTest {
 protected:
  struct Watch {
    Watch(const std::shared_ptr<grpc::Channel>& channel,
          const std::string& name, int64_t version)
        : stub(v1::JobService::NewStub(channel)), context(Context()) {
      v1::WatchJobsRequest request;
      request.set_name(name);
      request.set_resource_version(version);
      reader = stub->WatchJobs(context.get(), request);
    }
    ~Watch() {
      context->TryCancel();
      (void)End();
    }
    // The next event but progress and bookmarks; nullopt at the end.
    std::optional<v1::WatchJobsResponse> Next() {
      v1::WatchJobsResponse event;
      while (reader->Read(&event)) {
        if (event.has_job() ||
            event.event_case() == v1::WatchJobsResponse::kSynced) {
          return event;
        }
      }
      return std::nullopt;
    }
    v1::JobState NextState() {
      const auto event = Next();
      return event && event->has_job() ? event->job().state()
                                       : v1::JOB_STATE_UNSPECIFIED;
    }
    Status End() {
      if (end) return *end;
      v1::WatchJobsResponse event;
      while (reader->Read(&event)) {
      }
      end = FromGrpc(reader->Finish());
      return *end;
    }
    std::unique_ptr<v1::JobService::Stub> stub;
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReader<v1::WatchJobsResponse>> reader;
    std::optional<Status> end;
  };
  std::unique_ptr<Watch> Start(const std::string& name, int64_t version = 0) {
    return std::make_unique<Watch>(User("viv", pki::UserRole::kViewer), name,
                                   version);
  }
};

// What waits for a slow reader are names: a job is sent as it is by then, and
// what happened to it before is not sent after that.
TEST_F(WatchServiceTest, ASlowReaderSeesTheFirstJobsAsTheyAreWhenSent) {
  struct Peer final : StreamPeer {
    void Wake() override {}
    bool IsCancelled() const override { return false; }
    void Cancel() override {}
  } peer;
  for (const char* name : {"a", "b", "c"}) MustSubmit(name);
  JobWatch watch(coordinator_->queries(), hub_.get(), nullptr,
                 ReaderOf("user/ann", false, Visibility::kOwner),
                 v1::WatchJobsRequest(), &peer);
  std::vector<std::string> seen;
  const auto next = [&] {
    v1::WatchJobsResponse message;
    if (watch.Next(&message).kind != StreamStep::Kind::kSend) return false;
    if (message.has_job()) {
      seen.push_back(message.job().name() + " " +
                     v1::JobState_Name(message.job().state()));
    } else if (!message.deleted().empty()) {
      seen.push_back(message.deleted() + " deleted");
    } else if (message.event_case() == v1::WatchJobsResponse::kSynced) {
      seen.push_back("synced");
    }
    return true;
  };
  ASSERT_TRUE(next());
  const std::string first = seen.at(0).substr(0, 1);
  const std::string cancelled = first == "c" ? "b" : "c";
  const std::string deleted = first == "a" ? "b" : "a";
  ASSERT_TRUE(Cancel(cancelled, "cancel").ok());
  ASSERT_TRUE(Cancel(deleted, "cancel-too").ok());
  const auto stub = v1::JobService::NewStub(User("ann"));
  v1::DeleteJobRequest request;
  request.set_name(deleted);
  request.set_request_id("delete");
  ASSERT_TRUE(Answer<v1::DeleteJobResponse>([&](auto* context, auto* response) {
                return stub->DeleteJob(context, request, response);
              }).ok());
  while (next()) {
  }
  // The order to cancel is a version of its own, before the job ends by it.
  std::erase(seen, deleted + " JOB_STATE_QUEUED");
  EXPECT_THAT(seen, ElementsAre(first + " JOB_STATE_QUEUED",
                                cancelled + " JOB_STATE_CANCELLED", "synced",
                                deleted + " JOB_STATE_CANCELLED",
                                deleted + " deleted"));
  EXPECT_EQ(watch.KeptBytes(), 0);
}

TEST_F(WatchServiceTest, SnapshotThenSyncedThenChangesThenTheEnd) {
  DaemonStream daemon(Worker("a"));
  MustSubmit("j");
  const auto watch = Start("j");
  EXPECT_EQ(watch->NextState(), v1::JOB_STATE_QUEUED);
  const auto synced = watch->Next();
  ASSERT_TRUE(synced);
  EXPECT_EQ(synced->synced(), coordinator_->queries()->version());
  ASSERT_TRUE(daemon.Register("a"));
  End(&daemon, RunOn(&daemon, "j"));
  std::vector<v1::JobState> states;
  int64_t version = 0;
  while (const auto event = watch->Next()) {
    ASSERT_TRUE(event->has_job());
    EXPECT_GE(event->job().resource_version(), version) << "in order";
    version = event->job().resource_version();
    if (states.empty() || states.back() != event->job().state()) {
      states.push_back(event->job().state());
    }
  }
  EXPECT_THAT(states,
              ElementsAre(v1::JOB_STATE_PREPARING, v1::JOB_STATE_RUNNING,
                          v1::JOB_STATE_FINISHING, v1::JOB_STATE_SUCCEEDED));
  EXPECT_TRUE(watch->End().ok()) << watch->End().ToString();
}

TEST_F(WatchServiceTest, WatchOfAnEndedJobEndsAtOnce) {
  MustSubmit("j");
  ASSERT_TRUE(Cancel("j", "c").ok());
  const auto watch = Start("j");
  EXPECT_EQ(watch->NextState(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(watch->End().ok());
  // One who has seen the end and comes back is not kept either.
  const auto again = Start("j", coordinator_->queries()->version());
  EXPECT_TRUE(again->End().ok());
}

TEST_F(WatchServiceTest, ResumesAfterAVersion) {
  MustSubmit("a1");
  MustSubmit("b1");
  const auto watch = Start("", 1);
  const auto event = watch->Next();
  ASSERT_TRUE(event && event->has_job());
  EXPECT_EQ(event->job().name(), "b1");
  MustSubmit("c1");
  EXPECT_EQ(watch->Next()->job().name(), "c1");
}

TEST_F(WatchServiceTest, AllJobs) {
  MustSubmit("a1");
  const auto watch = Start("");
  EXPECT_EQ(watch->Next()->job().name(), "a1");
  EXPECT_TRUE(watch->Next()->has_job() == false) << "synced";
  MustSubmit("b1");
  EXPECT_EQ(watch->Next()->job().name(), "b1");
}

TEST_F(WatchServiceTest, OpenStreamsAreCounted) {
  const auto streams = [&](const std::string& kind) {
    for (const auto& family : streams_.Collect()) {
      if (family.name != "lockstep_watch_streams") continue;
      for (const auto& metric : family.metric) {
        if (metric.label[0].value == kind) return metric.gauge.value;
      }
    }
    return -1.0;
  };
  // A stream that ended is over on the other side a moment later.
  const auto comes_to = [&](const std::string& kind, double wanted) {
    const MonoTime deadline = MonotonicNow() + kPatience;
    while (streams(kind) != wanted && MonotonicNow() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return streams(kind);
  };
  EXPECT_EQ(streams("jobs"), 0);
  EXPECT_EQ(streams("workers"), 0);
  {
    DaemonStream daemon(Worker("a"));
    ASSERT_TRUE(daemon.Register("a"));
    EXPECT_EQ(streams("workers"), 1);
    MustSubmit("j");
    const auto one = Start("j");
    const auto all = Start("");
    ASSERT_TRUE(one->Next());
    ASSERT_TRUE(all->Next());
    EXPECT_EQ(comes_to("jobs", 2), 2);
    EXPECT_EQ(streams("logs"), 0);
  }
  EXPECT_EQ(comes_to("jobs", 0), 0);
  EXPECT_EQ(comes_to("workers", 0), 0);
}

TEST_F(WatchServiceTest, RefusesVersionsItCannotServe) {
  MustSubmit("j");
  EXPECT_EQ(ReasonOf(Start("j", 1000)->End()), "VERSION_UNKNOWN");
  EXPECT_EQ(Start("j", -5)->End().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Start("ghost")->End().code(), StatusCode::kNotFound);
  EXPECT_EQ(Start("a/b")->End().code(), StatusCode::kInvalidArgument);
}

TEST_F(WatchServiceTest, CoordinatorThatLeavesSaysUnavailable) {
  MustSubmit("j");
  const auto watch = Start("j");
  EXPECT_EQ(watch->NextState(), v1::JOB_STATE_QUEUED);
  ASSERT_TRUE(watch->Next());
  hub_->Close();
  EXPECT_EQ(watch->End().code(), StatusCode::kUnavailable);
}

TEST_F(WatchServiceTest, ProgressComesBeside) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  v1::JobSpec spec = Spec("j");
  spec.set_kind(v1::JOB_KIND_NATIVE);
  ASSERT_TRUE(Submit(SubmitRequest(spec)).ok());
  GangStatus status = RunOn(&daemon, "j", true);
  const auto watch = Start("j");
  const int64_t version = coordinator_->queries()->version();
  for (int64_t step = 1; step <= 4; ++step) {
    status.ranks[0].progress.committed_step = step;
    status.ranks[0].progress.total_steps = 100;
    clock_.Advance(1s);
    ASSERT_TRUE(daemon.Beat(step, {{"j", 1, status.ranks}}));
    ASSERT_TRUE(daemon.Read(v1::CoordinatorMessage::kHeartbeatAck));
    coordinator_->Tick();
  }
  v1::WatchJobsResponse event;
  while (watch->reader->Read(&event)) {
    if (event.has_progress() && event.progress().chief().committed_step() == 4)
      break;
  }
  ASSERT_TRUE(event.has_progress());
  EXPECT_EQ(event.progress().job(), "j");
  EXPECT_NEAR(event.progress().steps_per_second(), 1, 0.01);
  EXPECT_EQ(coordinator_->queries()->version(), version) << "unversioned";
  EXPECT_EQ(Get("j")->progress().chief().committed_step(), 4);
  EXPECT_EQ(Get("j")->tasks(0).ranks(0).progress().committed_step(), 4);
}

}  // namespace
}  // namespace lockstep::server
