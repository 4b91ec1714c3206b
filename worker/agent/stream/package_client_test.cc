// Over real gRPC, with a server that breaks off and one that says nothing.
#include "worker/agent/stream/package_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "lockstep/v1/package.grpc.pb.h"
#include "worker/package/package_test_util.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using testing::HasSubstr;

class FakePackages final : public v1::PackageService::Service {
 public:
  grpc::Status FetchPackage(
      grpc::ServerContext* context, const v1::FetchPackageRequest* request,
      grpc::ServerWriter<v1::FetchPackageResponse>* writer) override {
    if (request->digest() != "sha256:known") {
      return grpc::Status(grpc::NOT_FOUND, "there is no such package");
    }
    for (auto at = static_cast<size_t>(request->offset()); at < bytes.size();
         at += 4) {
      v1::FetchPackageResponse piece;
      piece.set_data(bytes.substr(at, 4));
      writer->Write(piece);
      if (breaks) return grpc::Status(grpc::ABORTED, "stopping");
      ++waiting;
      while (hangs && !context->IsCancelled()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      --waiting;
      if (context->IsCancelled()) return grpc::Status::CANCELLED;
    }
    return grpc::Status::OK;
  }

  const std::string bytes = "0123456789abcdef";
  std::atomic<bool> breaks{false};
  std::atomic<bool> hangs{false};
  std::atomic<int> waiting{0};
};

class PackageClientTest : public testing::Test {
 protected:
  void SetUp() override {
    RpcServerOptions options;
    options.address = "127.0.0.1:0";
    options.insecure_loopback = true;
    auto server = RpcServer::Start(options, {&packages_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ChannelOptions channel_options;
    channel_options.target = server_->address();
    channel_options.insecure_loopback = true;
    auto channel = MakeChannel(channel_options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    source_ = MakeGrpcPackageSource(*channel);
  }
  void TearDown() override {
    source_.reset();
    if (server_ != nullptr) server_->Shutdown(Duration{});
  }
  Status Fetch(const std::string& digest, int64_t offset, Duration idle = 20s) {
    return source_->Fetch(
        digest, offset, idle,
        [this](std::string_view bytes) {
          got_ += bytes;
          return take_;
        },
        &cancel_);
  }

  FakePackages packages_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<package::PackageSource> source_;
  package::Cancellation cancel_;
  std::string got_;
  Status take_;
};

TEST_F(PackageClientTest, BytesComeFromTheOffsetOn) {
  ASSERT_EQ(Fetch("sha256:known", 6), OkStatus());
  EXPECT_EQ(got_, packages_.bytes.substr(6));
  EXPECT_EQ(Fetch("sha256:known", 16), OkStatus());
}

TEST_F(PackageClientTest, WhatIsNotThereIsNotFoundAndABreakIsToGoOn) {
  EXPECT_EQ(Fetch("sha256:none", 0).code(), StatusCode::kNotFound);
  packages_.breaks = true;
  const Status broken = Fetch("sha256:known", 0);
  EXPECT_EQ(broken.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(broken), HasSubstr("stopping"));
  EXPECT_EQ(got_, "0123");
  packages_.breaks = false;
  server_->Shutdown(Duration{});
  EXPECT_EQ(Fetch("sha256:known", 4).code(), StatusCode::kUnavailable);
}

TEST_F(PackageClientTest, ATakerThatFailsEndsIt) {
  take_ = ResourceExhausted("the disk is full");
  EXPECT_EQ(Fetch("sha256:known", 0), take_);
  EXPECT_EQ(got_, "0123");
}

TEST_F(PackageClientTest, AServerThatSaysNothingIsLeft) {
  packages_.hangs = true;
  EXPECT_EQ(Fetch("sha256:known", 0, 50ms).code(),
            StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(package::Eventually([&] { return packages_.waiting == 0; }));
  std::thread thread([&] {
    EXPECT_TRUE(package::Eventually([&] { return packages_.waiting == 1; }));
    cancel_.Cancel();
  });
  EXPECT_EQ(Fetch("sha256:known", 0).code(), StatusCode::kCancelled);
  thread.join();
}

}  // namespace
}  // namespace lockstep::worker::agent
