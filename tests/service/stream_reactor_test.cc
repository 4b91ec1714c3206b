// What drives a stream, where others wake it at odd moments.
#include "server/stream/stream_reactor.h"

#include <gmock/gmock.h>

#include <future>

#include "tests/service/fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;

// Sends one message, and ends.
class OneMessage final : public StreamSource<v1::WatchJobsResponse> {
 public:
  StreamStep Next(v1::WatchJobsResponse* message) override {
    if (std::exchange(sent_, true)) return StreamStep::End(OkStatus());
    message->set_bookmark(7);
    return StreamStep::Send();
  }

 private:
  bool sent_ = false;
};

// Its streams are woken while their sources are being made, as by a turn that
// comes then.
class EarlyService final : public v1::JobService::CallbackService {
 public:
  explicit EarlyService(CallPools* pools) : pools_(pools) {}
  grpc::ServerWriteReactor<v1::WatchJobsResponse>* WatchJobs(
      grpc::CallbackServerContext* context,
      const v1::WatchJobsRequest* /*request*/) override {
    return StartCall<StreamReactor<v1::WatchJobsResponse>>(
        context, pools_, [&](StreamPeer* peer) {
          peer->Wake();
          // The pool has one thread besides this one: what the wake has posted
          // comes first.
          std::promise<void> passed;
          pools_->streams(CallRoleOf(CallerOf(*context)))
              ->Post("another", [&passed] { passed.set_value(); });
          passed.get_future().wait();
          return std::make_unique<OneMessage>();
        });
  }

 private:
  CallPools* const pools_;
};

class StreamReactorTest : public ServiceTest {};

TEST_F(StreamReactorTest, AWakeBeforeTheSourceIsMadeWaitsForIt) {
  CallPoolOptions pool_options;
  pool_options.stream_threads = {2, 2, 2};
  CallPools pools(pool_options);
  EarlyService service(&pools);
  RpcServerOptions options = server_options_;
  options.address = "127.0.0.1:0";
  options.pools = &pools;
  options.credentials = CredentialsOf(pki::CoordinatorIdentity("test", "main"));
  const auto server = RpcServer::Start(options, {&service});
  ASSERT_TRUE(server.ok()) << Message(server.status());
  ChannelOptions channel_options;
  channel_options.target = (*server)->address();
  channel_options.credentials =
      CredentialsOf(UserIdentity("test", pki::UserRole::kViewer, "bob"));
  const auto channel = MakeChannel(channel_options);
  ASSERT_TRUE(channel.ok()) << Message(channel.status());
  const auto stub = v1::JobService::NewStub(*channel);
  const auto context = Context();
  const auto reader = stub->WatchJobs(context.get(), v1::WatchJobsRequest());
  v1::WatchJobsResponse message;
  ASSERT_TRUE(reader->Read(&message)) << Message(FromGrpc(reader->Finish()));
  EXPECT_EQ(message.bookmark(), 7);
  EXPECT_FALSE(reader->Read(&message));
  const Status end = FromGrpc(reader->Finish());
  EXPECT_TRUE(end.ok()) << Message(end);
  (*server)->Shutdown(1s);
}

}  // namespace
}  // namespace lockstep::server
