// Client's calls about training jobs and their packages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "client/lib/client.h"
#include "client/lib/fake_coordinator.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class UploadTest : public testing::Test {
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
    package_.set_digest("sha256:ab");
    package_.set_file_name("trainer.tar.gz");
    package_.set_format(v1::PACKAGE_FORMAT_TREE);
    bytes_.resize((5 << 20) / 2);
    for (size_t i = 0; i < bytes_.size(); ++i) {
      bytes_[i] = static_cast<char>(i * 7 % 251);
    }
    package_.set_bytes(static_cast<int64_t>(bytes_.size()));
  }

  PackageReader Reader() const {
    return
        [this](uint64_t offset, char* buffer, size_t size) -> StatusOr<size_t> {
          const size_t got = std::min(size, bytes_.size() - offset);
          memcpy(buffer, bytes_.data() + offset, got);
          return got;
        };
  }

  std::string bytes_;
  v1::Package package_;
  std::unique_ptr<FakeCoordinator> server_;
  std::unique_ptr<Client> client_;
};

TEST_F(UploadTest, SendsAllBytesAndTellsHowFarItIs) {
  std::vector<uint64_t> told;
  UploadOptions options;
  options.on_progress = [&](uint64_t bytes) { told.push_back(bytes); };
  const auto existed =
      client_->UploadPackage(package_, Reader(), options, nullptr);
  ASSERT_TRUE(existed.ok()) << existed.status();
  EXPECT_FALSE(*existed);
  EXPECT_EQ(server_->Answers().packages.at("sha256:ab"), bytes_);
  EXPECT_THAT(told, ElementsAre(0, 1 << 20, 2 << 20, bytes_.size()));
}

TEST_F(UploadTest, SendsNothingThatIsThereAlready) {
  server_->Update([](FakeAnswers* a) { a->packages["sha256:ab"] = "x"; });
  const auto existed = client_->UploadPackage(package_, Reader(), {}, nullptr);
  ASSERT_TRUE(existed.ok()) << existed.status();
  EXPECT_TRUE(*existed);
  EXPECT_EQ(server_->Answers().packages.at("sha256:ab"), "x");
}

TEST_F(UploadTest, StartsAgainAfterABreak) {
  server_->Update([](FakeAnswers* a) { a->upload_breaks = 1; });
  const auto existed = client_->UploadPackage(package_, Reader(), {}, nullptr);
  ASSERT_TRUE(existed.ok()) << existed.status();
  EXPECT_EQ(server_->Answers().packages.at("sha256:ab"), bytes_);
}

TEST_F(UploadTest, AnEmptyPackageIsOne) {
  bytes_.clear();
  package_.set_bytes(0);
  ASSERT_TRUE(client_->UploadPackage(package_, Reader(), {}, nullptr).ok());
  EXPECT_EQ(server_->Answers().packages.count("sha256:ab"), 1u);
}

TEST_F(UploadTest, AFileThatShrinksIsToldAndNotStored) {
  package_.set_bytes(static_cast<int64_t>(bytes_.size()) + 1);
  const auto existed = client_->UploadPackage(package_, Reader(), {}, nullptr);
  EXPECT_EQ(existed.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(existed.status()), HasSubstr("changed meanwhile"));
  EXPECT_TRUE(server_->Answers().packages.empty());
}

TEST_F(UploadTest, ARefusalIsNotTriedAgain) {
  server_->Update([](FakeAnswers* a) {
    a->errors = {ResourceExhausted("larger than 1 KiB")};
  });
  const auto existed = client_->UploadPackage(package_, Reader(), {}, nullptr);
  EXPECT_EQ(existed.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(server_->Answers().uploads.empty());
}

TEST_F(UploadTest, StopsInTheMiddle) {
  server_->Update([](FakeAnswers* a) { a->stalls_uploads = true; });
  StopToken stop;
  Status status;
  std::thread uploader([&] {
    status = client_->UploadPackage(package_, Reader(), {}, &stop).status();
  });
  const MonoTime deadline = MonotonicNow() + std::chrono::seconds(20);
  while (server_->Answers().uploads.empty() && MonotonicNow() < deadline) {
    std::this_thread::yield();
  }
  stop.Stop();
  uploader.join();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(server_->Answers().packages.empty());
}

TEST_F(UploadTest, ACoordinatorThatTakesNothingIsNotWaitedForForEver) {
  server_->Update([](FakeAnswers* a) { a->stalls_uploads = true; });
  UploadOptions options;
  options.stall = std::chrono::milliseconds(50);
  options.patience = std::chrono::milliseconds(1);
  const auto existed =
      client_->UploadPackage(package_, Reader(), options, nullptr);
  EXPECT_EQ(existed.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(existed.status()), HasSubstr("stalled"));
}

TEST_F(UploadTest, WhereNobodyListensItGivesUpLikeOtherCalls) {
  server_.reset();
  const MonoTime start = MonotonicNow();
  const auto existed = client_->UploadPackage(package_, Reader(), {}, nullptr);
  EXPECT_EQ(existed.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(existed.status()),
              HasSubstr("cannot reach the coordinator at 127.0.0.1:"));
  EXPECT_LT(MonotonicNow() - start, std::chrono::seconds(30));
}

TEST_F(UploadTest, SubmitsATrainingJobWithItsPackages) {
  v1::TrainingJob training;
  training.set_job_id("vision_1");
  server_->Update([](FakeAnswers* a) {
    a->training_answer.add_notes("trainingInput.region: is not used");
  });
  const auto answer = client_->SubmitTraining(training, {package_});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->job().name(), "vision_1");
  EXPECT_THAT(answer->notes(),
              ElementsAre("trainingInput.region: is not used"));
  const FakeAnswers answers = server_->Answers();
  ASSERT_EQ(answers.submits.size(), 1u);
  EXPECT_FALSE(answers.submits[0].request_id().empty());
  EXPECT_EQ(answers.submits[0].packages(0).digest(), "sha256:ab");
  EXPECT_EQ(client_->SubmitTraining(training, {}).status().code(),
            StatusCode::kAlreadyExists);
}

TEST_F(UploadTest, UpdatesLabelsAndFiltersLists) {
  v1::TrainingJob training;
  training.set_job_id("a");
  ASSERT_TRUE(client_->SubmitTraining(training, {}).ok());
  UpdateJobOptions update;
  update.labels = {{"team", "vision"}};
  const auto job = client_->UpdateJob("a", update);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec().labels().at("team"), "vision");
  EXPECT_EQ(client_->UpdateJob("b", update).status().code(),
            StatusCode::kNotFound);
  ListJobsOptions list;
  list.filter = "labels.team=vision";
  ASSERT_TRUE(client_->ListJobs(list).ok());
  EXPECT_EQ(server_->Answers().lists.at(0).filter(), "labels.team=vision");
}

TEST_F(UploadTest, HandsLogFiltersOn) {
  LogOptions options;
  options.name = "a";
  options.tasks = {"worker-replica-1"};
  options.grep = "loss";
  options.min_severity = v1::SEVERITY_ERROR;
  options.include_events = true;
  options.until = FromUnixNanos(5'000'000'000);
  ASSERT_TRUE(client_
                  ->StreamLogs(
                      options, [](const v1::LogLine&) { return true; }, nullptr)
                  .ok());
  const v1::StreamLogsRequest request = server_->Answers().log_requests.at(0);
  EXPECT_THAT(request.tasks(), ElementsAre("worker-replica-1"));
  EXPECT_EQ(request.grep(), "loss");
  EXPECT_EQ(request.min_severity(), v1::SEVERITY_ERROR);
  EXPECT_TRUE(request.include_events());
  EXPECT_EQ(request.until().seconds(), 5);
}

}  // namespace
}  // namespace lockstep::cli
