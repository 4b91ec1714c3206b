// Packages of code: uploads, who may use them, and what a broken one leaves.
#include <gmock/gmock.h>

#include "tests/service/training_job_fixture.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// An upload whose bytes have not all come.
class OpenUpload {
 public:
  OpenUpload(const std::shared_ptr<grpc::Channel>& channel,
             std::unique_ptr<grpc::ClientContext> context,
             const v1::Package& package)
      : stub_(v1::PackageService::NewStub(channel)),
        context_(std::move(context)),
        writer_(stub_->UploadPackage(context_.get(), &response_)) {
    *message_.mutable_package() = package;
    begun_ = writer_->Write(message_);
  }

  bool Write(const std::string& data) {
    message_.set_data(data);
    return begun_ && writer_->Write(message_);
  }
  void Cancel() { context_->TryCancel(); }
  void Done() { writer_->WritesDone(); }
  grpc::Status Finish() { return writer_->Finish(); }

 private:
  const std::unique_ptr<v1::PackageService::Stub> stub_;
  const std::unique_ptr<grpc::ClientContext> context_;
  v1::UploadPackageResponse response_;
  v1::UploadPackageRequest message_;
  const std::unique_ptr<grpc::ClientWriter<v1::UploadPackageRequest>> writer_;
  bool begun_ = false;
};

bool Eventually(const std::function<bool()>& condition) {
  const MonoTime deadline = MonotonicNow() + kPatience;
  while (!condition()) {
    if (MonotonicNow() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_F(TrainingJobTest, PackagesAreUploadedOnceAndFetchedByWorkers) {
  const std::string bytes = std::string(3'000'000, 'a') + "z";
  const v1::Package package = PackageOf(bytes);
  v1::SubmitJobRequest request = Request(Module("mnist"));
  EXPECT_THAT(Message(Submit(request).status()),
              HasSubstr("packages: are missing"));
  *request.add_packages() = package;
  const Status missing = Submit(request).status();
  EXPECT_EQ(missing.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(missing), "PACKAGE_MISSING");
  EXPECT_THAT(Message(missing), HasSubstr("trainer.tar.gz"));

  auto uploaded = Upload(
      package, {bytes.substr(0, 1'000'000), bytes.substr(1'000'000, 1'000'000),
                bytes.substr(2'000'000)});
  ASSERT_TRUE(uploaded.ok()) << Message(uploaded.status());
  EXPECT_FALSE(uploaded->existed());
  // Not a byte more is wanted the second time.
  uploaded = Upload(package, {});
  ASSERT_TRUE(uploaded.ok()) << Message(uploaded.status());
  EXPECT_TRUE(uploaded->existed());

  const auto answer = Submit(request);
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  const v1::JobSpec& spec = answer->job().spec();
  ASSERT_EQ(spec.packages_size(), 1);
  EXPECT_EQ(spec.packages(0).digest(), package.digest());
  EXPECT_EQ(spec.runtime().name(), "tf2");
  EXPECT_THAT(spec.roles(0).argv(),
              ElementsAre("/opt/tf2/bin/python3", "-m", "trainer.task"));
  EXPECT_THAT(coordinator_->queries()->NeededPackages(),
              ElementsAre(package.digest()));

  const auto fetched = Fetch(package.digest());
  ASSERT_TRUE(fetched.ok()) << Message(fetched.status());
  EXPECT_TRUE(*fetched == bytes);
  EXPECT_EQ(Fetch(package.digest(), 3'000'000).value_or(""), "z");
  EXPECT_EQ(Fetch(package.digest(), 3'000'001).value_or("x"), "");
  EXPECT_EQ(Fetch(package.digest(), 3'000'002).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(Fetch(package.digest(), -1).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(Fetch(PackageOf("other").digest()).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(Fetch("sha256:..").status().code(), StatusCode::kInvalidArgument);
}

TEST_F(TrainingJobTest, OthersCannotUseAPackageByItsDigest) {
  const v1::Package package = PackageOf("code");
  ASSERT_TRUE(Upload(package, {"code"}).ok());
  v1::SubmitJobRequest request = Request(Module("theirs"));
  *request.add_packages() = package;
  const Status missing = Submit(request, User("bob")).status();
  EXPECT_EQ(missing.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(missing), "PACKAGE_MISSING");
  EXPECT_THAT(Message(missing), HasSubstr("is not stored for user/bob"));
  // Who has the bytes may; an admin need not.
  const auto uploaded = Upload(package, {"code"}, User("bob"));
  ASSERT_TRUE(uploaded.ok()) << Message(uploaded.status());
  EXPECT_FALSE(uploaded->existed());
  EXPECT_TRUE(Submit(request, User("bob")).ok());
  EXPECT_EQ(packages_->Stats().packages, 1u);
  request = Request(Module("checked"));
  *request.add_packages() = package;
  EXPECT_TRUE(Submit(request, User("root", pki::UserRole::kAdmin)).ok());
}

TEST_F(TrainingJobTest, ASpecMayBringPackagesToo) {
  ASSERT_TRUE(Upload(PackageOf("code"), {"code"}).ok());
  v1::SubmitJobRequest request = SubmitRequest(Spec("own"));
  *request.mutable_spec()->add_packages() = PackageOf("code");
  request.mutable_spec()->mutable_runtime()->set_name("tf2");
  const auto answer = Submit(request);
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_EQ(answer->job().spec().runtime().python(), "/opt/tf2/bin/python3");
  request = SubmitRequest(Spec("other"));
  request.mutable_spec()->mutable_runtime()->set_name("tf3");
  EXPECT_THAT(Message(Submit(request).status()),
              HasSubstr("spec.runtime.name: "));
}

TEST_F(TrainingJobTest, AWrongUploadLeavesNothing) {
  const v1::Package package = PackageOf("hello");
  v1::Package nameless = package;
  nameless.set_file_name("../x");
  v1::Package large = package;
  large.set_bytes(int64_t{3} << 30);
  const struct {
    v1::Package package;
    std::vector<std::string> pieces;
    StatusCode code;
    const char* want;
  } cases[] = {
      {package, {"hellx"}, StatusCode::kInvalidArgument, "has the digest"},
      {package, {"hel"}, StatusCode::kInvalidArgument, "ended after 3 of"},
      {package, {"hello", "!"}, StatusCode::kInvalidArgument, "has more than"},
      {package,
       {std::string((1 << 20) + 1, 'x')},
       StatusCode::kInvalidArgument,
       "at most 1048576 are allowed in a message"},
      {nameless, {}, StatusCode::kInvalidArgument, "package.file_name"},
      {large, {}, StatusCode::kResourceExhausted, "at most 2048.0 MiB"},
      {{}, {}, StatusCode::kInvalidArgument, "package.digest"},
  };
  for (const auto& c : cases) {
    const auto answer = Upload(c.package, c.pieces);
    EXPECT_EQ(answer.status().code(), c.code) << answer.status();
    EXPECT_THAT(Message(answer.status()), HasSubstr(c.want));
    EXPECT_TRUE(NothingIncoming());
  }
  EXPECT_EQ(packages_->Stats().packages, 0u);
}

TEST_F(TrainingJobTest, AnUploadThatIsBrokenOffLeavesNothing) {
  OpenUpload upload(User("ann"), Context(), PackageOf("hello"));
  ASSERT_TRUE(upload.Write("hel"));
  ASSERT_TRUE(Eventually([&] { return !NothingIncoming(); }));
  upload.Cancel();
  EXPECT_FALSE(upload.Finish().ok());
  EXPECT_TRUE(Eventually([&] { return NothingIncoming(); }));
}

TEST_F(TrainingJobTest, AnUploadThatStandsStillIsEnded) {
  OpenUpload upload(User("ann"), Context(), PackageOf("hello"));
  ASSERT_TRUE(Eventually([&] { return !NothingIncoming(); }));
  package_service_->CancelIdle(MonotonicNow() + std::chrono::seconds(50));
  EXPECT_FALSE(NothingIncoming()) << "not yet";
  package_service_->CancelIdle(MonotonicNow() + std::chrono::seconds(120));
  EXPECT_FALSE(upload.Finish().ok());
  EXPECT_TRUE(Eventually([&] { return NothingIncoming(); }));
}

class BusyPackagesTest : public TrainingJobTest {
 protected:
  void SetUp() override {
    package_service_options_.uploads = {2, 1, 256,
                                        std::chrono::milliseconds(50)};
    TrainingJobTest::SetUp();
  }
};

TEST_F(BusyPackagesTest, WhoseTurnDoesNotComeIsSentAway) {
  OpenUpload upload(User("ann"), Context(), PackageOf("hello"));
  ASSERT_TRUE(Eventually([&] { return !NothingIncoming(); }));
  const Status busy = Upload(PackageOf("other"), {"other"}).status();
  EXPECT_EQ(busy.code(), StatusCode::kUnavailable) << busy;
  EXPECT_THAT(Message(busy),
              HasSubstr("uploads already in progress: 1; retry"));
  // One caller alone does not keep others out.
  EXPECT_TRUE(Upload(PackageOf("bobs"), {"bobs"}, User("bob")).ok());
  ASSERT_TRUE(upload.Write("hello"));
  upload.Done();
  EXPECT_TRUE(upload.Finish().ok());
  EXPECT_TRUE(Upload(PackageOf("other"), {"other"}).ok());
}

}  // namespace
}  // namespace lockstep::server
