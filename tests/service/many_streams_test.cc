// Many streams at once: they hold no threads, so they keep nobody waiting.
#include <gmock/gmock.h>

#include <vector>

#include "tests/service/fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;

constexpr int kViewers = 4;
// Of each: together they would be as many threads as the server ever had.
constexpr int kStreams = 256;

template <typename Response>
struct Stream {
  std::unique_ptr<grpc::ClientContext> context = Context();
  std::unique_ptr<grpc::ClientReader<Response>> reader;

  // Reads the rest.
  Status End() {
    Response rest;
    while (reader->Read(&rest)) {
    }
    return FromGrpc(reader->Finish());
  }
};
using JobStream = Stream<v1::WatchJobsResponse>;
using LogReader = Stream<v1::StreamLogsResponse>;

class ManyStreamsTest : public ServiceTest {
 protected:
  JobStream Watch(v1::JobService::Stub* stub, const std::string& job) {
    JobStream watch;
    v1::WatchJobsRequest request;
    request.set_name(job);
    watch.reader = stub->WatchJobs(watch.context.get(), request);
    return watch;
  }
  // Whether the server has sent the job as it is: it waits for news now.
  static bool IsSynced(JobStream* watch) {
    v1::WatchJobsResponse event;
    while (watch->reader->Read(&event)) {
      if (event.event_case() == v1::WatchJobsResponse::kSynced) return true;
    }
    return false;
  }
  double OpenStreams(const std::string& kind) {
    for (const auto& family : streams_.Collect()) {
      if (family.name != "lockstep_watch_streams") continue;
      for (const auto& metric : family.metric) {
        if (metric.label[0].value == kind) return metric.gauge.value;
      }
    }
    return -1;
  }
};

TEST_F(ManyStreamsTest, WatchesOfFourViewersKeepNobodyWaiting) {
  MustSubmit("j");
  std::vector<std::unique_ptr<v1::JobService::Stub>> stubs;
  std::vector<JobStream> watches;
  for (int i = 0; i < kViewers; ++i) {
    stubs.push_back(v1::JobService::NewStub(
        User("viewer" + std::to_string(i), pki::UserRole::kViewer)));
    for (int k = 0; k < kStreams; ++k) {
      watches.push_back(Watch(stubs.back().get(), "j"));
    }
  }
  for (JobStream& watch : watches) ASSERT_TRUE(IsSynced(&watch));
  EXPECT_EQ(OpenStreams("jobs"), kViewers * kStreams);
  // Another viewer, and one of the four.
  EXPECT_EQ(Get("j")->name(), "j");
  v1::GetJobRequest request;
  request.set_name("j");
  EXPECT_TRUE(Answer<v1::Job>([&](auto* context, auto* job) {
                return stubs[0]->GetJob(context, request, job);
              }).ok());
  MustSubmit("another");
  // An admin, whose change all of them see.
  const auto cancelled = Cancel("j", "c", User("root", pki::UserRole::kAdmin));
  EXPECT_TRUE(cancelled.ok()) << Message(cancelled.status());
  for (JobStream& watch : watches) {
    const Status end = watch.End();
    EXPECT_TRUE(end.ok()) << Message(end);
  }
}

TEST_F(ManyStreamsTest, TheServerEndsWithThousandsOfThemOpen) {
  MustSubmit("j");
  const auto stub =
      v1::JobService::NewStub(User("root", pki::UserRole::kAdmin));
  std::vector<JobStream> watches;
  std::vector<LogReader> followers;
  for (int i = 0; i < 2 * kStreams; ++i) watches.push_back(Watch(&*stub, "j"));
  v1::StreamLogsRequest request;
  request.set_name("j");
  request.set_follow(true);
  for (int i = 0; i < kStreams; ++i) {
    LogReader& reader = followers.emplace_back();
    reader.reader = stub->StreamLogs(reader.context.get(), request);
  }
  for (JobStream& watch : watches) ASSERT_TRUE(IsSynced(&watch));
  const MonoTime deadline = MonotonicNow() + kPatience;
  while (OpenStreams("logs") < kStreams && MonotonicNow() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(OpenStreams("logs"), kStreams);
  server_->Shutdown(1s);
  EXPECT_EQ(OpenStreams("jobs"), 0);
  EXPECT_EQ(OpenStreams("logs"), 0);
  for (JobStream& watch : watches) EXPECT_FALSE(watch.End().ok());
  for (LogReader& reader : followers) {
    // One that the server never took up would be tried again elsewhere.
    reader.context->TryCancel();
    EXPECT_FALSE(reader.End().ok());
  }
}

TEST_F(ManyStreamsTest, AReaderThatFallsBehindIsToldSo) {
  // Who sees all of a job: what others are sent is small, and goes through.
  const auto stub =
      v1::JobService::NewStub(User("root", pki::UserRole::kAdmin));
  JobStream slow = Watch(&*stub, "");
  ASSERT_TRUE(IsSynced(&slow));
  // Far more than is kept for watchers, or fits between here and the server.
  const int64_t version = coordinator_->queries()->version();
  for (int64_t i = 1; i <= 1000; ++i) {
    auto job = std::make_shared<Job>();
    job->spec.name = "large";
    job->spec.comment = std::string(256 << 10, 'x');
    job->resource_version = version + i;
    hub_->Publish(version + i, {std::move(job)});
  }
  EXPECT_EQ(ReasonOf(slow.End()), "VERSION_TOO_OLD");
}

}  // namespace
}  // namespace lockstep::server
