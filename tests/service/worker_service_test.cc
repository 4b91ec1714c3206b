#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>

#include <future>
#include <random>

#include "common/wire/protocol_version.h"
#include "tests/service/fixture.h"

namespace lockstep::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST_F(ServiceTest, JobGoesItsWayOverTheStream) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  MustSubmit("j");
  const GangStatus status = RunOn(&daemon, "j");
  EXPECT_EQ(State("j"), v1::JOB_STATE_RUNNING);
  End(&daemon, status);
  const auto job = Get("j");
  EXPECT_EQ(job->state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job->exit_code(), 0);
  EXPECT_EQ(job->attempts_size(), 1);
}

TEST_F(ServiceTest, WelcomeTellsEpochAndPace) {
  DaemonStream daemon(Worker("a"));
  v1::WorkerMessage message;
  Registration registration;
  registration.node.name = "a";
  registration.node.incarnation = {1, 1};
  registration.node.address = "127.0.0.1";
  *message.mutable_register_() = ToProto(registration);
  ASSERT_TRUE(daemon.Write(message));
  const auto first = daemon.Read();
  ASSERT_TRUE(first && first->has_welcome());
  EXPECT_EQ(first->welcome().epoch(), 1u);
  EXPECT_EQ(first->welcome().heartbeat_interval().nanos(), 500'000'000);
  EXPECT_EQ(first->welcome().lease().seconds(), 3);
  EXPECT_EQ(first->welcome().cluster(), "test");
}

// A daemon that says none is in tests/upgrade/old_stream_test.cc.
TEST_F(ServiceTest, DaemonsOfThisProtocolAndTheOneBeforeAreTaken) {
  Registration registration;
  registration.node.name = "a";
  registration.node.incarnation = {1, 1};
  registration.node.address = "127.0.0.1";
  v1::WorkerMessage message;
  *message.mutable_register_() = ToProto(registration);
  EXPECT_EQ(message.register_().protocol(), kWorkerProtocol);
  // A field of a later program is passed over.
  message.GetReflection()->MutableUnknownFields(&message)->AddVarint(9999, 1);
  const struct {
    int32_t protocol;
    std::string upgrade;
  } kCases[] = {{kWorkerProtocol - 1, ""},
                {kWorkerProtocol, ""},
                {-1, "worker"},
                {kWorkerProtocol + 1, "coordinator"}};
  for (const auto& [protocol, upgrade] : kCases) {
    SCOPED_TRACE(protocol);
    message.mutable_register_()->set_protocol(protocol);
    DaemonStream daemon(Worker("a"));
    ASSERT_TRUE(daemon.Write(message));
    const auto first = daemon.Read();
    if (upgrade.empty()) {
      EXPECT_TRUE(first && first->has_welcome());
      continue;
    }
    EXPECT_FALSE(first);
    const Status refused = daemon.Finish();
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(refused), kProtocolVersion);
    EXPECT_THAT(Message(refused), HasSubstr("upgrade the " + upgrade));
  }
}

// It will leave: what it says is not taken in, and operators hear of it.
TEST_F(ServiceTest, ANodeThatHasObeyedALaterCoordinatorIsNoted) {
  v1::WorkerMessage message;
  Registration registration;
  registration.node.name = "a";
  registration.node.incarnation = {1, 1};
  registration.node.address = "127.0.0.1";
  *message.mutable_register_() = ToProto(registration);
  {
    DaemonStream daemon(Worker("a"), "9");
    ASSERT_TRUE(daemon.Write(message));
    const auto first = daemon.Read();
    ASSERT_TRUE(first && first->has_welcome());
    EXPECT_FALSE(daemon.Read());
    const Status refused = daemon.Finish();
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(refused), "COORDINATOR_OUTDATED");
    const CoordinatorView view = coordinator_->queries()->View({});
    EXPECT_EQ(view.refused_by,
              (std::map<NodeName, std::string>{{"a", "epoch 9"}}));
    EXPECT_THAT(view.nodes, IsEmpty());
  }
  for (const char* const said : {"1", "no number", "99999999999999999999"}) {
    DaemonStream daemon(Worker("a"), said);
    EXPECT_TRUE(daemon.Register("a")) << said;
    EXPECT_THAT(coordinator_->queries()->View({}).refused_by, IsEmpty())
        << said;
  }
}

// It could not tell from a Welcome, and would obey it.
TEST_F(ServiceTest, ANodeThatHasObeyedALaterCommitHearsNoWelcome) {
  v1::WorkerMessage message;
  Registration registration;
  registration.node.name = "a";
  registration.node.incarnation = {1, 1};
  registration.node.address = "127.0.0.1";
  registration.obeyed = coordinator_->sessions()->point();
  registration.obeyed->version += 100;
  *message.mutable_register_() = ToProto(registration);
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Write(message));
  EXPECT_FALSE(daemon.Read());
  EXPECT_EQ(ReasonOf(daemon.Finish()), "COORDINATOR_OUTDATED");
}

TEST_F(ServiceTest, FirstMessageMustRegister) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Beat(1));
  const Status status = daemon.Finish();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("register"));
}

TEST_F(ServiceTest, OnlyTheFirstMessageRegisters) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  Registration again;
  again.node.name = "a";
  again.node.incarnation = {2, 1};
  again.node.address = "127.0.0.1";
  v1::WorkerMessage message;
  *message.mutable_register_() = ToProto(again);
  ASSERT_TRUE(daemon.Write(message));
  EXPECT_EQ(daemon.Finish().code(), StatusCode::kInvalidArgument);
}

TEST_F(ServiceTest, EmptyMessagesAreRefused) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  ASSERT_TRUE(daemon.Write({}));
  EXPECT_EQ(daemon.Finish().code(), StatusCode::kInvalidArgument);
}

TEST_F(ServiceTest, NobodySpeaksForAnotherNode) {
  DaemonStream daemon(Worker("b"));
  EXPECT_FALSE(daemon.Register("a"));
  const Status status = daemon.Finish();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(status), "OTHER_NODE");
  EXPECT_FALSE(coordinator_->queries()->GetNode("a").ok());
}

TEST_F(ServiceTest, UsersAreNoWorkers) {
  DaemonStream daemon(User("root", pki::UserRole::kAdmin));
  EXPECT_FALSE(daemon.Register("root"));
  EXPECT_EQ(daemon.Finish().code(), StatusCode::kPermissionDenied);
}

// A newcomer hears nothing until it is judged.
class NewcomerServiceTest : public ServiceTest {
 protected:
  // On a thread of its own: waits for its Welcome.
  std::future<bool> Arrive(DaemonStream* later) {
    auto welcome = std::async(std::launch::async,
                              [later] { return later->Register("a", 2); });
    const MonoTime deadline = MonotonicNow() + kPatience;
    while (!coordinator_->sessions()->IsContested("a")) {
      EXPECT_LT(MonotonicNow(), deadline);
      std::this_thread::yield();
    }
    return welcome;
  }
};

TEST_F(NewcomerServiceTest, TakesOverFromAStreamThatSaysNothing) {
  DaemonStream old(Worker("a"));
  ASSERT_TRUE(old.Register("a", 1));
  DaemonStream later(Worker("a"));
  auto welcome = Arrive(&later);
  EXPECT_EQ(welcome.wait_for(std::chrono::milliseconds(0)),
            std::future_status::timeout);
  clock_.Advance(std::chrono::seconds(1));
  coordinator_->Tick();
  EXPECT_TRUE(welcome.get());
  while (old.Read()) {
  }
  const Status status = old.Finish();
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(status), "STALE_SESSION");
  DaemonStream earlier(Worker("a"));
  EXPECT_FALSE(earlier.Register("a", 1));
  EXPECT_EQ(earlier.Finish().code(), StatusCode::kAborted);
  ASSERT_TRUE(later.Beat(2));
  EXPECT_TRUE(later.Read(v1::CoordinatorMessage::kHeartbeatAck));
}

TEST_F(NewcomerServiceTest, IsRefusedBesideAStreamThatBeats) {
  DaemonStream old(Worker("a"));
  ASSERT_TRUE(old.Register("a", 1));
  DaemonStream later(Worker("a"));
  auto welcome = Arrive(&later);
  ASSERT_TRUE(old.Beat(2));
  ASSERT_TRUE(old.Read(v1::CoordinatorMessage::kHeartbeatAck));
  clock_.Advance(std::chrono::seconds(1));
  coordinator_->Tick();
  EXPECT_FALSE(welcome.get());
  const Status status = later.Finish();
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_EQ(ReasonOf(status), "CLONED_NODE");
  EXPECT_THAT(Message(status), HasSubstr("give it an empty --dir"));
  EXPECT_EQ(coordinator_->queries()->GetNode("a")->member.Shown(false),
            NodeState::kQuarantined);
  ASSERT_TRUE(old.Beat(3));
  EXPECT_TRUE(old.Read(v1::CoordinatorMessage::kHeartbeatAck));
}

TEST_F(NewcomerServiceTest, IsWelcomeAtOnceWhenTheOldStreamEnds) {
  DaemonStream old(Worker("a"));
  ASSERT_TRUE(old.Register("a", 1));
  DaemonStream later(Worker("a"));
  auto welcome = Arrive(&later);
  EXPECT_TRUE(old.Finish().ok());
  EXPECT_TRUE(welcome.get()) << "without a tick, and no time has passed";
}

TEST_F(ServiceTest, ProbeRepliesWithoutARequestAreDroppedAndBadOnesRefused) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  v1::WorkerMessage message;
  auto* const result = message.mutable_probe_reply()->add_results();
  message.mutable_probe_reply()->set_id(1);
  result->set_node("b");
  ASSERT_TRUE(daemon.Write(message));
  ASSERT_TRUE(daemon.Beat(2));
  EXPECT_TRUE(daemon.Read(v1::CoordinatorMessage::kHeartbeatAck));
  result->set_error(std::string(1000, 'x'));
  ASSERT_TRUE(daemon.Write(message));
  const Status status = daemon.Finish();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("probe_reply.results[0].error"));
}

// Through real streams: who is asked, and what follows.
TEST_F(ServiceTest, NeighboursAreAskedAboutANodeThatFellSilent) {
  DaemonStream a(Worker("a"));
  DaemonStream b(Worker("b"));
  DaemonStream c(Worker("c"));
  ASSERT_TRUE(a.Register("a", 1, {}, 4, {}, "127.0.0.2", 4001));
  MustSubmit("j");
  EXPECT_EQ(a.NextAssignment().goal, Goal::kPrepare);
  ASSERT_TRUE(b.Register("b", 1, {}, 4, {}, "127.0.0.3", 4002));
  ASSERT_TRUE(c.Register("c", 1, {}, 4, {}, "127.0.0.4", 4003));
  for (int i = 0; i < 7; ++i) {
    clock_.Advance(std::chrono::milliseconds(500));
    for (DaemonStream* daemon : {&b, &c}) {
      ASSERT_TRUE(daemon->Beat(i + 2));
      ASSERT_TRUE(daemon->Read(v1::CoordinatorMessage::kHeartbeatAck));
    }
    coordinator_->Tick();
  }
  coordinator_->Tick();
  for (DaemonStream* daemon : {&b, &c}) {
    const auto asked = daemon->Read(v1::CoordinatorMessage::kProbeRequest);
    ASSERT_TRUE(asked);
    const auto query = FromProto(asked->probe_request());
    ASSERT_TRUE(query.ok());
    ASSERT_EQ(query->targets.size(), 1u);
    EXPECT_EQ(query->targets[0], (ProbeTarget{"a", "127.0.0.2", 4001}));
    v1::WorkerMessage message;
    *message.mutable_probe_reply() =
        ToProto(ProbeAnswer{query->id, {{"a", false, "No route to host"}}});
    ASSERT_TRUE(daemon->Write(message));
    ASSERT_TRUE(daemon->Beat(50));
    ASSERT_TRUE(daemon->Read(v1::CoordinatorMessage::kHeartbeatAck));
  }
  const auto events = coordinator_->queries()->GetNode("a")->member.events;
  EXPECT_EQ(events.back().reason, Reason::kNodeUnreachable);
  EXPECT_EQ(events.back().message,
            "silent, and not reached by b (No route to host) and c (No route "
            "to host)");
}

TEST_F(ServiceTest, EndOfAStreamMakesTheNodeUnknown) {
  {
    DaemonStream daemon(Worker("a"));
    ASSERT_TRUE(daemon.Register("a"));
    EXPECT_TRUE(daemon.Finish().ok());
  }
  const MonoTime deadline = MonotonicNow() + kPatience;
  while (coordinator_->queries()->GetNode("a")->member.state !=
         NodeState::kUnknown) {
    ASSERT_LT(MonotonicNow(), deadline);
    std::this_thread::yield();
  }
}

TEST_F(ServiceTest, AWipedWorkerIsToldHowItGetsIn) {
  {
    DaemonStream daemon(Worker("a"));
    ASSERT_TRUE(daemon.Register("a", /*counter=*/7));
    EXPECT_TRUE(daemon.Finish().ok());
  }
  DaemonStream wiped(Worker("a"));
  EXPECT_FALSE(wiped.Register("a", /*counter=*/1));
  EXPECT_THAT(Message(wiped.Finish()), HasSubstr("lockstep nodes forget a"));
}

TEST_F(ServiceTest, HeartbeatsAreAnswered) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  for (uint64_t i = 1; i <= 100; ++i) ASSERT_TRUE(daemon.Beat(i));
  for (uint64_t i = 1; i <= 100; ++i) {
    const auto ack = daemon.Read(v1::CoordinatorMessage::kHeartbeatAck);
    ASSERT_TRUE(ack);
    EXPECT_EQ(ack->heartbeat_ack().sequence(), i);
  }
}

TEST_F(ServiceTest, RendezvousCrossesNodes) {
  DaemonStream a(Worker("a"));
  DaemonStream b(Worker("b"));
  ASSERT_TRUE(a.Register("a", 1, {}, 1));
  ASSERT_TRUE(b.Register("b", 1, {}, 1));
  MustSubmit("j", 2);
  EXPECT_EQ(a.NextAssignment().goal, Goal::kPrepare);
  EXPECT_EQ(b.NextAssignment().goal, Goal::kPrepare);
  v1::WorkerMessage get;
  *get.mutable_rendezvous_get() = ToRendezvousGet({"j", 1, "key", ""});
  ASSERT_TRUE(a.Write(get));
  v1::WorkerMessage put;
  const std::string value("\0\xff bytes", 8);
  *put.mutable_rendezvous_put() = ToRendezvousPut({"j", 1, "key", value});
  ASSERT_TRUE(b.Write(put));
  const auto answer = a.Read(v1::CoordinatorMessage::kRendezvousValue);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->rendezvous_value().value(), value);
}

class SmallRendezvousTest : public ServiceTest {
 protected:
  void SetUp() override {
    coordinator_options_.limits.rendezvous.of_generation = 500;
    ServiceTest::SetUp();
  }
};

// The node's other jobs are not to pay for it.
TEST_F(SmallRendezvousTest, WithoutRoomTheStreamGoesOn) {
  DaemonStream a(Worker("a"));
  ASSERT_TRUE(a.Register("a", 1, {}, 1));
  MustSubmit("j");
  EXPECT_EQ(a.NextAssignment().goal, Goal::kPrepare);
  v1::WorkerMessage put;
  *put.mutable_rendezvous_put() =
      ToRendezvousPut({"j", 1, "key", std::string(1000, 'x')});
  ASSERT_TRUE(a.Write(put));
  ASSERT_TRUE(a.Beat(77));
  for (;;) {
    const auto ack = a.Read(v1::CoordinatorMessage::kHeartbeatAck);
    ASSERT_TRUE(ack) << "the stream ended: " << a.Finish().ToString();
    if (ack->heartbeat_ack().sequence() == 77) break;
  }
}

// ---- Logs ----

class LogChunkTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    daemon_ = std::make_unique<DaemonStream>(Worker("a"));
    ASSERT_TRUE(daemon_->Register("a"));
    MustSubmit("j");
    RunOn(daemon_.get(), "j");
  }
  void TearDown() override {
    daemon_.reset();
    ServiceTest::TearDown();
  }
  LogAckInfo Send(uint64_t offset, const std::string& data, bool end = false) {
    return daemon_->SendLog({"j", "uid1", 1, 0, offset, data, end});
  }
  std::unique_ptr<DaemonStream> daemon_;
};

TEST_F(LogChunkTest, AcknowledgedBytesAreThere) {
  const LogAckInfo ack = Send(0, "hello\n");
  EXPECT_EQ(ack.job, "j");
  EXPECT_EQ(ack.generation, 1u);
  EXPECT_EQ(ack.offset, 6u);
  EXPECT_FALSE(ack.end);
  EXPECT_EQ(logs_->Read({"uid1", 1, 0}, 0, 100).value_or(""), "hello\n");
}

TEST_F(LogChunkTest, GapsAndRepeats) {
  EXPECT_EQ(Send(0, "abc").offset, 3u);
  EXPECT_EQ(Send(5, "fg").offset, 3u) << "from here again";
  EXPECT_EQ(Send(0, "abcde").offset, 5u);
  EXPECT_EQ(Send(0, "abcde").offset, 5u);
  const LogAckInfo last = Send(5, "fg", true);
  EXPECT_EQ(last.offset, 7u);
  EXPECT_TRUE(last.end);
  EXPECT_EQ(logs_->Read({"uid1", 1, 0}, 0, 100).value_or(""), "abcdefg");
}

TEST_F(LogChunkTest, ChunksOfUnknownJobsMayGo) {
  const LogAckInfo ack =
      daemon_->SendLog({"gone", "uid9", 1, 0, 100, "abc", true});
  EXPECT_EQ(ack.offset, 103u);
  EXPECT_TRUE(ack.end);
}

TEST_F(LogChunkTest, LogsOfRanksElsewhereAreRefused) {
  v1::WorkerMessage message;
  *message.mutable_log_chunk() =
      ToProto(LogPiece{"j", "uid1", 1, 5, 0, "forged", false});
  ASSERT_TRUE(daemon_->Write(message));
  EXPECT_EQ(daemon_->Finish().code(), StatusCode::kPermissionDenied);
}

// ---- Hostile input ----

TEST_F(ServiceTest, MalformedMessagesEndTheirStreamAndNothingElse) {
  const google::protobuf::LogSilencer silence;
  DaemonStream good(Worker("a"));
  ASSERT_TRUE(good.Register("a"));
  MustSubmit("j");
  const GangStatus status = RunOn(&good, "j");
  v1::WorkerMessage seed;
  *seed.mutable_gang_status() = ToProto(status);
  const std::string report = seed.SerializeAsString();
  *seed.mutable_heartbeat() =
      ToProto(NodeHeartbeat{1, {{"j", 1, status.ranks}}, {0.5, 5, {}, {}, {}}});
  const std::string beat = seed.SerializeAsString();
  *seed.mutable_log_chunk() =
      ToProto(LogPiece{"j", "uid1", 1, 0, 0, "x", false});
  const std::string log = seed.SerializeAsString();

  std::mt19937 random(9);
  const auto channel = Worker("b");
  int sent = 0;
  int refused = 0;
  while (sent < 1000) {
    // As another node: whatever it says, it has no part in the job.
    DaemonStream stream(channel);
    ASSERT_TRUE(stream.Register("b", 1 + sent));
    for (int i = 0; i < 20 && sent < 1000; ++i) {
      std::string bytes =
          std::vector<std::string>{report, beat, log}[random() % 3];
      for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      v1::WorkerMessage message;
      ++sent;
      if (!message.ParseFromString(bytes)) continue;
      if (!stream.Write(message)) break;
    }
    const Status end = stream.Finish();
    if (!end.ok()) {
      ++refused;
      EXPECT_THAT(end.code(), testing::AnyOf(StatusCode::kInvalidArgument,
                                             StatusCode::kPermissionDenied,
                                             StatusCode::kResourceExhausted))
          << end.ToString();
    }
  }
  EXPECT_GT(refused, 20);
  EXPECT_EQ(State("j"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Get("j")->generation(), 1u);
  ASSERT_TRUE(good.Beat(1));
  EXPECT_TRUE(good.Read(v1::CoordinatorMessage::kHeartbeatAck));
}

TEST_F(ServiceTest, MalformedRequestsChangeNothing) {
  const google::protobuf::LogSilencer silence;
  MustSubmit("j");
  const int64_t version = coordinator_->queries()->version();
  std::mt19937 random(10);
  const auto channel = User("ann");
  const auto stub = v1::JobService::NewStub(channel);
  const std::string good = SubmitRequest(Spec("other-job")).SerializeAsString();
  int sent = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = good;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    v1::SubmitJobRequest request;
    if (!request.ParseFromString(bytes)) continue;
    // What happens to be valid shall not count.
    request.set_validate_only(true);
    ++sent;
    const Status status = Submit(request, channel).status();
    ASSERT_THAT(status.code(),
                testing::AnyOf(StatusCode::kOk, StatusCode::kInvalidArgument))
        << status.ToString();
  }
  EXPECT_GT(sent, 100);
  EXPECT_EQ(coordinator_->queries()->version(), version);
}

}  // namespace
}  // namespace lockstep::server
