// Sessions in ranks: who may open them, and how the calls of a client and of a
// node become one.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "common/wire/session_wire.h"
#include "tests/service/fixture.h"

namespace lockstep::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The client's call.
class ClientCall {
 public:
  explicit ClientCall(const std::shared_ptr<grpc::Channel>& channel)
      : stub_(v1::JobService::NewStub(channel)), context_(Context()) {
    stream_ = stub_->OpenSession(context_.get());
  }
  ClientCall(const std::shared_ptr<grpc::Channel>& channel,
             const std::string& job, int32_t rank = 0)
      : ClientCall(channel) {
    v1::SessionInput open;
    open.mutable_open()->set_name(job);
    open.mutable_open()->set_rank(rank);
    open.mutable_open()->mutable_command()->add_argv("id");
    Write(open);
  }
  ~ClientCall() {
    if (!finished_) (void)Finish();
  }
  bool Write(const v1::SessionInput& input) { return stream_->Write(input); }
  bool Send(const std::string& data) {
    v1::SessionInput input;
    input.set_data(data);
    return Write(input);
  }
  std::optional<v1::SessionOutput> Read() {
    v1::SessionOutput output;
    if (!stream_->Read(&output)) return std::nullopt;
    return output;
  }
  void Cancel() { context_->TryCancel(); }
  // After the last message.
  Status Finish() {
    finished_ = true;
    v1::SessionOutput output;
    while (stream_->Read(&output)) {
    }
    return FromGrpc(stream_->Finish());
  }

 private:
  const std::unique_ptr<v1::JobService::Stub> stub_;
  const std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionInput, v1::SessionOutput>>
      stream_;
  bool finished_ = false;
};

// The node's call.
class NodeCall {
 public:
  NodeCall(const std::shared_ptr<grpc::Channel>& channel, uint64_t id)
      : stub_(v1::WorkerService::NewStub(channel)), context_(Context()) {
    stream_ = stub_->ServeSession(context_.get());
    v1::SessionOutput accept;
    accept.set_accept(id);
    Write(accept);
  }
  ~NodeCall() {
    context_->TryCancel();
    if (!finished_) (void)Finish();
  }
  bool Write(const v1::SessionOutput& output) { return stream_->Write(output); }
  bool Send(const std::string& data) {
    v1::SessionOutput output;
    output.set_data(data);
    return Write(output);
  }
  bool End(int code) {
    v1::SessionOutput output;
    output.mutable_end()->set_exit_code(code);
    return Write(output);
  }
  std::optional<v1::SessionInput> Read() {
    v1::SessionInput input;
    if (!stream_->Read(&input)) return std::nullopt;
    return input;
  }
  Status Finish() {
    finished_ = true;
    v1::SessionInput input;
    while (stream_->Read(&input)) {
    }
    return FromGrpc(stream_->Finish());
  }

 private:
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  const std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionOutput, v1::SessionInput>>
      stream_;
  bool finished_ = false;
};

class SessionServiceTest : public ServiceTest {
 protected:
  // A daemon of node a on which the job "j" of ann runs.
  std::unique_ptr<DaemonStream> Running() {
    auto daemon = std::make_unique<DaemonStream>(Worker("a"));
    EXPECT_TRUE(daemon->Register("a"));
    MustSubmit("j");
    RunOn(daemon.get(), "j");
    return daemon;
  }
  static SessionOrder Order(DaemonStream* daemon) {
    const auto message = daemon->Read(v1::CoordinatorMessage::kOpenSession);
    EXPECT_TRUE(message.has_value());
    if (!message) return {};
    const auto order = FromProto(message->open_session());
    EXPECT_TRUE(order.ok()) << order.status();
    return order.ok() ? *order : SessionOrder();
  }
  // Why ann, or another one, gets no session.
  Status Refusal(const std::string& job, int32_t rank = 0,
                 const std::shared_ptr<grpc::Channel>& channel = nullptr) {
    return ClientCall(channel == nullptr ? User("ann") : channel, job, rank)
        .Finish();
  }
  uint64_t Ended(SessionResult result) const {
    return sessions_->Counts().ended[static_cast<size_t>(SessionKind::kCommand)]
                                    [static_cast<size_t>(result)];
  }
};

TEST_F(SessionServiceTest, TheTwoCallsAreOne) {
  const auto daemon = Running();
  ClientCall client(User("ann"), "j");
  const SessionOrder order = Order(daemon.get());
  EXPECT_EQ(order.request.name, "j");
  EXPECT_EQ(order.generation, 1u);
  EXPECT_THAT(order.request.command->argv, ElementsAre("id"));
  NodeCall node(Worker("a"), order.id);
  v1::SessionOutput started;
  started.mutable_started()->set_node("a");
  node.Write(started);
  auto output = client.Read();
  ASSERT_TRUE(output && output->has_started());
  EXPECT_EQ(output->started().node(), "a");
  for (int i = 0; i < 10; ++i) {
    const std::string text = "line " + std::to_string(i);
    ASSERT_TRUE(client.Send(text));
    const auto input = node.Read();
    ASSERT_TRUE(input && input->has_data());
    EXPECT_EQ(input->data(), text);
    ASSERT_TRUE(node.Send(text + "!"));
    output = client.Read();
    ASSERT_TRUE(output && output->has_data());
    EXPECT_EQ(output->data(), text + "!");
  }
  node.End(7);
  output = client.Read();
  ASSERT_TRUE(output && output->has_end());
  EXPECT_EQ(output->end().exit_code(), 7);
  EXPECT_TRUE(client.Finish().ok());
  EXPECT_TRUE(node.Finish().ok());
  EXPECT_EQ(Ended(SessionResult::kEnded), 1u);
  // The owner sees it in the job's history.
  const auto job = Get("j");
  ASSERT_TRUE(job.ok());
  const auto& last = job->events(job->events_size() - 1);
  EXPECT_EQ(last.reason(), v1::REASON_SESSION);
  EXPECT_EQ(last.message(), "user/ann ran `id` in rank 0");
}

TEST_F(SessionServiceTest, OnlyThoseWhoMayCancelTheJobEnterIt) {
  const auto daemon = Running();
  const Status stranger = Refusal("j", 0, User("bob"));
  EXPECT_EQ(stranger.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(stranger), HasSubstr("belongs to user/ann"));
  EXPECT_EQ(Refusal("j", 0, User("ann", pki::UserRole::kViewer)).code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(Ended(SessionResult::kRefused), 1u);  // The other saw no handler.
  ClientCall admin(User("adam", pki::UserRole::kAdmin), "j");
  NodeCall node(Worker("a"), Order(daemon.get()).id);
  node.End(0);
  EXPECT_TRUE(admin.Finish().ok());
}

TEST_F(SessionServiceTest, WhatCannotBeOpenedIsRefusedInASentence) {
  EXPECT_EQ(Refusal("none").code(), StatusCode::kNotFound);
  MustSubmit("j");
  const Status waits = Refusal("j");
  EXPECT_EQ(waits.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(waits), HasSubstr("QUEUED"));
  {
    DaemonStream daemon(Worker("a"));
    ASSERT_TRUE(daemon.Register("a"));
    RunOn(&daemon, "j");
    EXPECT_EQ(Refusal("j", 7).code(), StatusCode::kNotFound);
    ClientCall hasty(User("ann"));
    hasty.Send("before it opens");
    EXPECT_EQ(hasty.Finish().code(), StatusCode::kInvalidArgument);
    (void)daemon.Finish();
  }
  const Status silent = Refusal("j");
  EXPECT_EQ(silent.code(), StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(silent), "NODE_SILENT");
}

TEST_F(SessionServiceTest, ANodeServesItsOwnSessionsOnly) {
  const auto daemon = Running();
  ClientCall client(User("ann"), "j");
  const SessionOrder order = Order(daemon.get());
  EXPECT_EQ(NodeCall(Worker("b"), order.id).Finish().code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(NodeCall(Worker("a"), order.id + 1).Finish().code(),
            StatusCode::kNotFound);
  NodeCall node(Worker("a"), order.id);
  // Once only.
  EXPECT_EQ(NodeCall(Worker("a"), order.id).Finish().code(),
            StatusCode::kNotFound);
  node.End(0);
  EXPECT_TRUE(client.Finish().ok());
}

TEST_F(SessionServiceTest, EachEndsWithTheOther) {
  const auto daemon = Running();
  {
    ClientCall client(User("ann"), "j");
    NodeCall node(Worker("a"), Order(daemon.get()).id);
    ASSERT_TRUE(node.Send("x"));
    ASSERT_TRUE(client.Read().has_value());
    client.Cancel();
    EXPECT_FALSE(node.Read().has_value());
    EXPECT_EQ(node.Finish().code(), StatusCode::kCancelled);
  }
  {
    ClientCall client(User("ann"), "j");
    {
      NodeCall node(Worker("a"), Order(daemon.get()).id);
      ASSERT_TRUE(node.Send("x"));
      ASSERT_TRUE(client.Read().has_value());
    }
    const Status broken = client.Finish();
    EXPECT_EQ(broken.code(), StatusCode::kUnavailable);
    EXPECT_EQ(ReasonOf(broken), "NODE_SILENT");
  }
  {
    // A client that sends what is not allowed.
    ClientCall client(User("ann"), "j");
    NodeCall node(Worker("a"), Order(daemon.get()).id);
    v1::SessionInput wrong;
    wrong.set_signal(11);
    client.Write(wrong);
    EXPECT_EQ(client.Finish().code(), StatusCode::kInvalidArgument);
    EXPECT_FALSE(node.Read().has_value());
  }
  const auto open = sessions_->Counts().open;
  EXPECT_EQ(open[static_cast<size_t>(SessionKind::kCommand)], 0);
}

TEST_F(SessionServiceTest, ASlowReaderHoldsTheWriter) {
  const auto daemon = Running();
  ClientCall client(User("ann"), "j");
  NodeCall node(Worker("a"), Order(daemon.get()).id);
  constexpr int kMessages = 3000;
  // Sockets and gRPC's windows of the two connections, in messages: 64 MiB. A
  // window grows to 16 MiB on a fast line.
  constexpr int kMostOnTheWay = 1024;
  std::atomic<int> written = 0;
  std::thread writer([&] {
    const std::string piece(kMaxSessionData, 'x');
    for (int i = 0; i < kMessages && node.Send(piece); ++i) ++written;
    node.End(0);
  });
  int most = 0;
  for (int taken = 0; taken < kMessages; ++taken) {
    const auto output = client.Read();
    ASSERT_TRUE(output && output->has_data());
    most = std::max(most, written - taken);
  }
  EXPECT_LE(most, kMostOnTheWay);
  EXPECT_TRUE(client.Finish().ok());
  writer.join();
}

class LateNodeTest : public SessionServiceTest {
 protected:
  void SetUp() override {
    session_options_.patience = std::chrono::milliseconds(50);
    session_policy_ = SessionPolicy::kOn;
    SessionServiceTest::SetUp();
  }
};

TEST_F(LateNodeTest, ANodeThatDoesNotAnswerIsSaid) {
  const auto daemon = Running();
  const Status late = Refusal("j");
  EXPECT_EQ(late.code(), StatusCode::kUnavailable);
  EXPECT_THAT(Message(late),
              HasSubstr("did not open the session within 50 ms"));
  // Its call comes too late.
  EXPECT_EQ(NodeCall(Worker("a"), Order(daemon.get()).id).Finish().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(Ended(SessionResult::kBroken), 1u);
}

class AdminsOnlyTest : public SessionServiceTest {
 protected:
  void SetUp() override {
    session_policy_ = SessionPolicy::kAdmins;
    SessionServiceTest::SetUp();
  }
};

TEST_F(AdminsOnlyTest, TheSiteMayKeepOwnersOut) {
  const auto daemon = Running();
  const Status owner = Refusal("j");
  EXPECT_EQ(owner.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(owner), "SESSIONS_OFF");
  ClientCall admin(User("adam", pki::UserRole::kAdmin), "j");
  NodeCall node(Worker("a"), Order(daemon.get()).id);
  node.End(0);
  EXPECT_TRUE(admin.Finish().ok());
}

class SessionsOffTest : public SessionServiceTest {
 protected:
  void SetUp() override {
    session_policy_ = SessionPolicy::kOff;
    SessionServiceTest::SetUp();
  }
};

TEST_F(SessionsOffTest, TheSiteMayHaveNone) {
  const auto daemon = Running();
  EXPECT_EQ(ReasonOf(Refusal("j", 0, User("adam", pki::UserRole::kAdmin))),
            "SESSIONS_OFF");
}

}  // namespace
}  // namespace lockstep::server
