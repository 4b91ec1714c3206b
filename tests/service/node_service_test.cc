// Nodes as they are listed, operations on them, deletion of jobs, and leaving,
// as clients see them.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "common/base/fd.h"
#include "tests/service/fixture.h"

namespace lockstep::server {
namespace {

using pki::UserRole;

using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;

class NodeServiceTest : public ServiceTest {
 protected:
  std::shared_ptr<grpc::Channel> Root() {
    return User("root", UserRole::kAdmin);
  }
  StatusOr<v1::Node> Drain(const v1::DrainNodeRequest& request,
                           std::shared_ptr<grpc::Channel> channel = nullptr) {
    const auto stub = v1::ClusterService::NewStub(channel ? channel : Root());
    return Answer<v1::Node>([&](auto* context, auto* response) {
      return stub->DrainNode(context, request, response);
    });
  }
  StatusOr<v1::Node> Undrain(const v1::UndrainNodeRequest& request,
                             std::shared_ptr<grpc::Channel> channel = nullptr) {
    const auto stub = v1::ClusterService::NewStub(channel ? channel : Root());
    return Answer<v1::Node>([&](auto* context, auto* response) {
      return stub->UndrainNode(context, request, response);
    });
  }
  StatusOr<v1::Node> Approve(const v1::ApproveNodeRequest& request,
                             std::shared_ptr<grpc::Channel> channel = nullptr) {
    const auto stub = v1::ClusterService::NewStub(channel ? channel : Root());
    return Answer<v1::Node>([&](auto* context, auto* response) {
      return stub->ApproveNode(context, request, response);
    });
  }
  StatusOr<v1::ForgetNodeResponse> Forget(
      const v1::ForgetNodeRequest& request,
      std::shared_ptr<grpc::Channel> channel = nullptr) {
    const auto stub = v1::ClusterService::NewStub(channel ? channel : Root());
    return Answer<v1::ForgetNodeResponse>([&](auto* context, auto* response) {
      return stub->ForgetNode(context, request, response);
    });
  }
  StatusOr<v1::DeleteJobResponse> Delete(
      const std::string& name, const std::string& id,
      std::shared_ptr<grpc::Channel> channel = nullptr) {
    const auto stub = v1::JobService::NewStub(channel ? channel : User("ann"));
    v1::DeleteJobRequest request;
    request.set_name(name);
    request.set_request_id(id);
    return Answer<v1::DeleteJobResponse>([&](auto* context, auto* response) {
      return stub->DeleteJob(context, request, response);
    });
  }
  StatusOr<v1::Node> GetNode(const std::string& name) {
    const auto stub =
        v1::ClusterService::NewStub(User("viv", UserRole::kViewer));
    v1::GetNodeRequest request;
    request.set_name(name);
    return Answer<v1::Node>([&](auto* context, auto* response) {
      return stub->GetNode(context, request, response);
    });
  }
  static v1::DrainNodeRequest DrainRequest(const std::string& node) {
    v1::DrainNodeRequest request;
    request.set_request_id("d1");
    request.set_name(node);
    request.set_reason("new kernel");
    request.mutable_grace()->set_seconds(30);
    return request;
  }
  // Without a process: it registers and stays as long as `daemon` does.
  void AwaitNode(const std::string& name, v1::NodeState state) {
    const MonoTime deadline = MonotonicNow() + kPatience;
    for (;;) {
      const auto node = GetNode(name);
      ASSERT_TRUE(node.ok()) << Message(node.status());
      if (node->state() == state) return;
      ASSERT_LT(MonotonicNow(), deadline) << v1::NodeState_Name(node->state());
    }
  }
};

TEST_F(NodeServiceTest, DrainIsShownAndRepeatable) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  const auto drained = Drain(DrainRequest("a"));
  ASSERT_TRUE(drained.ok()) << Message(drained.status());
  EXPECT_EQ(drained->state(), v1::NODE_STATE_DRAINED);
  EXPECT_EQ(drained->drain().requester(), "user/root");
  EXPECT_EQ(drained->drain().reason(), "new kernel");
  EXPECT_EQ(drained->drain().deadline().seconds(),
            drained->drain().time().seconds() + 30);
  EXPECT_THAT(drained->message(), HasSubstr("drained by user/root"));
  EXPECT_EQ(drained->events().rbegin()->reason(), v1::REASON_NODE_DRAIN);

  v1::UndrainNodeRequest undrain;
  undrain.set_request_id("u1");
  undrain.set_name("a");
  const auto ready = Undrain(undrain);
  ASSERT_TRUE(ready.ok()) << Message(ready.status());
  EXPECT_EQ(ready->state(), v1::NODE_STATE_READY);
  EXPECT_FALSE(ready->has_drain());
  const auto again = Drain(DrainRequest("a"));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->SerializeAsString(), drained->SerializeAsString())
      << "the first answer";
  EXPECT_EQ(GetNode("a")->state(), v1::NODE_STATE_READY) << "and no effect";
  v1::DrainNodeRequest other = DrainRequest("a");
  other.set_reason("something else");
  EXPECT_EQ(ReasonOf(Drain(other).status()), "REQUEST_ID_REUSED");
}

TEST_F(NodeServiceTest, WhatANodeGrewByIsShownAndApproved) {
  {
    DaemonStream daemon(Worker("a"));
    ASSERT_TRUE(daemon.Register("a"));
  }
  AwaitNode("a", v1::NODE_STATE_UNKNOWN);
  DaemonStream larger(Worker("a"));
  ASSERT_TRUE(larger.Register("a", 2, {}, /*cpus=*/64));
  const auto waits = GetNode("a");
  ASSERT_TRUE(waits.ok());
  EXPECT_EQ(waits->capacity().cpus(), 4);
  EXPECT_EQ(waits->offered().cpus(), 64);
  EXPECT_EQ(waits->events().rbegin()->reason(), v1::REASON_NODE_GREW);

  v1::ApproveNodeRequest request;
  request.set_request_id("a1");
  request.set_name("a");
  EXPECT_EQ(Approve(request, User("ann")).status().code(),
            StatusCode::kPermissionDenied);
  const auto approved = Approve(request);
  ASSERT_TRUE(approved.ok()) << Message(approved.status());
  EXPECT_EQ(approved->capacity().cpus(), 64);
  EXPECT_FALSE(approved->has_offered());
  EXPECT_EQ(approved->events().rbegin()->reason(), v1::REASON_NODE_APPROVED);
  EXPECT_THAT(approved->events().rbegin()->message(), HasSubstr("user/root"));
  EXPECT_EQ(Approve(request)->SerializeAsString(),
            approved->SerializeAsString());
  request.set_name("other");
  EXPECT_EQ(ReasonOf(Approve(request).status()), "REQUEST_ID_REUSED");
  request.set_request_id("a2");
  EXPECT_EQ(ReasonOf(Approve(request).status()), "NO_SUCH_NODE");
}

TEST_F(NodeServiceTest, NodesAreTheAdmins) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  v1::UndrainNodeRequest undrain;
  undrain.set_request_id("u");
  undrain.set_name("a");
  v1::ForgetNodeRequest forget;
  forget.set_request_id("f");
  forget.set_name("a");
  for (const auto& channel :
       {User("viv", UserRole::kViewer), User("ann"), Worker("a")}) {
    EXPECT_EQ(Drain(DrainRequest("a"), channel).status().code(),
              StatusCode::kPermissionDenied);
    EXPECT_EQ(Undrain(undrain, channel).status().code(),
              StatusCode::kPermissionDenied);
    EXPECT_EQ(Forget(forget, channel).status().code(),
              StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(GetNode("a")->state(), v1::NODE_STATE_READY);
}

TEST_F(NodeServiceTest, GpusThatGetNoWorkAreSaidAndLifted) {
  DaemonStream daemon(Worker("a"));
  Registration registration;
  registration.node.name = "a";
  registration.node.incarnation = {1, 7};
  registration.node.boot_id = "boot";
  registration.node.address = "127.0.0.1";
  registration.node.http_address = "127.0.0.1:1";
  registration.node.capacity = {4, int64_t{8} << 30, 2, ""};
  registration.node.gpus = {{0, "GPU-0", "T4", int64_t{16} << 30},
                            {1, "GPU-1", "T4", int64_t{16} << 30}};
  HeldProcess process;
  process.pid = 4711;
  process.user = "ann";
  process.state = "D";
  GpuReclaim reclaim;
  reclaim.index = 1;
  reclaim.processes = {process};
  registration.reclaims = {reclaim};
  v1::WorkerMessage message;
  *message.mutable_register_() = ToProto(registration);
  ASSERT_TRUE(daemon.Write(message));
  ASSERT_TRUE(daemon.Read(v1::CoordinatorMessage::kWelcome));
  NodeHeartbeat beat;
  beat.sequence = 1;
  beat.readings.gpus.resize(2);
  beat.readings.gpus[1].index = 1;
  for (GpuUsage& gpu : beat.readings.gpus) gpu.utilization = 0;
  beat.readings.gpu_errors = {{0, 79}};
  beat.readings.reclaims = {reclaim};
  beat.readings.stuck_processes = {process};
  *message.mutable_heartbeat() = ToProto(beat);
  ASSERT_TRUE(daemon.Write(message));
  ASSERT_TRUE(daemon.Read(v1::CoordinatorMessage::kHeartbeatAck));
  const v1::Node node = *GetNode("a");
  EXPECT_EQ(node.gpus(0).state(), v1::GPU_STATE_WITHHELD);
  EXPECT_THAT(node.gpus(0).fault(), HasSubstr("Xid 79"));
  EXPECT_EQ(node.gpus(1).state(), v1::GPU_STATE_RECLAIM);
  EXPECT_EQ(node.gpus(1).reclaim().processes(0).pid(), 4711);
  EXPECT_EQ(node.stuck_processes(0).user(), "ann");
  v1::UndrainNodeRequest lift;
  lift.set_request_id("l1");
  lift.set_name("a");
  lift.add_gpus(7);
  EXPECT_EQ(Undrain(lift).status().code(), StatusCode::kInvalidArgument);
  lift.set_gpus(0, 0);
  lift.set_request_id("l2");
  EXPECT_EQ(Undrain(lift)->gpus(0).state(), v1::GPU_STATE_OK);
}

TEST_F(NodeServiceTest, AnOperatorHasAGpuChecked) {
  DaemonStream daemon(Worker("a"));
  Registration registration;
  registration.node.name = "a";
  registration.node.incarnation = {1, 7};
  registration.node.boot_id = "boot";
  registration.node.address = "127.0.0.1";
  registration.node.http_address = "127.0.0.1:1";
  registration.node.capacity = {4, int64_t{8} << 30, 2, ""};
  registration.node.gpus = {{0, "GPU-0", "T4", int64_t{16} << 30},
                            {1, "GPU-1", "T4", int64_t{16} << 30}};
  registration.node.checks_gpus = true;
  v1::WorkerMessage message;
  *message.mutable_register_() = ToProto(registration);
  ASSERT_TRUE(daemon.Write(message));
  ASSERT_TRUE(daemon.Read(v1::CoordinatorMessage::kWelcome));
  const auto check = [&](std::vector<int32_t> gpus, const std::string& id,
                         std::shared_ptr<grpc::Channel> channel) {
    const auto stub = v1::ClusterService::NewStub(channel);
    v1::CheckNodeRequest request;
    request.set_request_id(id);
    request.set_name("a");
    request.mutable_gpus()->Add(gpus.begin(), gpus.end());
    return Answer<v1::CheckNodeResponse>([&](auto* context, auto* response) {
      return stub->CheckNode(context, request, response);
    });
  };
  EXPECT_EQ(check({}, "c1", User("ann")).status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(check({2}, "c2", Root()).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(check({}, "", Root()).status().code(),
            StatusCode::kInvalidArgument);
  std::thread serves([&] {
    const auto asked = daemon.Read(v1::CoordinatorMessage::kGpuCheckRequest);
    ASSERT_TRUE(asked.has_value());
    const v1::GpuCheckRequest& order = asked->gpu_check_request();
    EXPECT_THAT(order.gpus(), ElementsAre(1));
    EXPECT_EQ(order.partner(), 0);
    EXPECT_EQ(GetNode("a")->gpus(1).state(), v1::GPU_STATE_CHECKING);
    v1::WorkerMessage reply;
    v1::GpuCheckReply* const said = reply.mutable_gpu_check_reply();
    said->set_id(order.id());
    v1::GpuCheck* const found = said->add_checks();
    found->set_index(1);
    v1::GpuCheckPart* const part = found->add_parts();
    part->set_name("memory");
    part->set_failure("3 wrong words, the first at byte 4096");
    daemon.Write(reply);
  });
  const auto checks = check({1}, "c3", Root());
  serves.join();
  ASSERT_TRUE(checks.ok()) << checks.status();
  ASSERT_EQ(checks->checks_size(), 1);
  EXPECT_EQ(checks->checks(0).uuid(), "GPU-1");
  EXPECT_THAT(checks->checks(0).failure(), HasSubstr("3 wrong words"));
  const v1::Node node = *GetNode("a");
  EXPECT_EQ(node.gpus(1).state(), v1::GPU_STATE_WITHHELD);
  EXPECT_THAT(node.gpus(1).fault(), HasSubstr("failed a check: memory: 3"));
  ASSERT_EQ(node.gpu_checks_size(), 1);
  EXPECT_EQ(node.gpu_checks(0).parts_size(), 1);
}

TEST_F(NodeServiceTest, FieldsAreChecked) {
  struct Case {
    const char* field;
    std::function<void(v1::DrainNodeRequest*)> change;
  };
  const std::vector<Case> cases = {
      {"name", [](auto* r) { r->set_name("../a"); }},
      {"name", [](auto* r) { r->clear_name(); }},
      {"request_id", [](auto* r) { r->clear_request_id(); }},
      {"request_id", [](auto* r) { r->set_request_id(std::string(65, 'x')); }},
      {"reason", [](auto* r) { r->set_reason(std::string(1025, 'x')); }},
      {"reason", [](auto* r) { r->set_reason("bell\x07"); }},
      {"grace", [](auto* r) { r->mutable_grace()->set_seconds(-1); }},
      {"grace", [](auto* r) { r->mutable_grace()->set_seconds(8 * 86400); }},
      {"grace", [](auto* r) { r->mutable_grace()->set_nanos(-5); }},
  };
  for (const Case& c : cases) {
    v1::DrainNodeRequest request = DrainRequest("a");
    c.change(&request);
    const Status status = Drain(request).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.field;
    EXPECT_THAT(Message(status), HasSubstr(c.field));
  }
  EXPECT_EQ(Drain(DrainRequest("a")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(coordinator_->queries()->version(), 0) << "nothing was stored";
}

TEST_F(NodeServiceTest, OnlyASilentNodeIsForgotten) {
  MustSubmit("j");
  auto daemon = std::make_unique<DaemonStream>(Worker("a"));
  ASSERT_TRUE(daemon->Register("a"));
  RunOn(daemon.get(), "j");
  v1::ForgetNodeRequest forget;
  forget.set_request_id("f1");
  forget.set_name("a");
  EXPECT_EQ(ReasonOf(Forget(forget).status()), "NODE_CONNECTED");
  daemon.reset();
  AwaitNode("a", v1::NODE_STATE_UNKNOWN);
  const auto answer = Forget(forget);
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_THAT(answer->jobs(), ElementsAre("j"));
  EXPECT_EQ(GetNode("a").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Forget(forget)->jobs(), ElementsAre("j")) << "a repeat";
  forget.set_request_id("f2");
  EXPECT_EQ(ReasonOf(Forget(forget).status()), "NO_SUCH_NODE");
  EXPECT_EQ(Get("j")->attempts(0).end_cause().reason(),
            v1::REASON_NODE_FORGOTTEN);
}

// ---- DeleteJob ----

TEST_F(NodeServiceTest, DeletedJobAndItsLogsAreGone) {
  MustSubmit("j");
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  const GangStatus status = RunOn(&daemon, "j");
  EXPECT_EQ(ReasonOf(Delete("j", "x1").status()), "NOT_ENDED");
  LogPiece piece;
  piece.job = "j";
  piece.job_uid = status.job_uid;
  piece.generation = status.generation;
  piece.data = "2026-01-01T00:00:00Z stdout F hello\n";
  EXPECT_EQ(daemon.SendLog(piece).offset, piece.data.size());
  End(&daemon, status);
  EXPECT_EQ(Delete("j", "x2", User("bob")).status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(Delete("j", "x3", User("viv", UserRole::kViewer)).status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(Delete("j", "").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Delete("", "x").status().code(), StatusCode::kInvalidArgument);
  const std::string logs = JoinPath(dir_, "logs/" + status.job_uid);
  EXPECT_TRUE(RealFileSystem()->Exists(logs));
  ASSERT_TRUE(Delete("j", "x4").ok());
  EXPECT_TRUE(Delete("j", "x4").ok()) << "a repeat";
  EXPECT_EQ(ReasonOf(Delete("j", "x5").status()), "JOB_DELETED");
  EXPECT_EQ(Get("j").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(Submit(SubmitRequest(Spec("j"))).status()), "JOB_EXISTS");
  const MonoTime deadline = MonotonicNow() + kPatience;
  while (RealFileSystem()->Exists(logs) && MonotonicNow() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(RealFileSystem()->Exists(logs));
}

TEST_F(NodeServiceTest, AdminsDeleteOthersJobsAndWatchersAreTold) {
  MustSubmit("j");
  ASSERT_TRUE(Cancel("j", "c").ok());
  const auto context = Context();
  const auto stub = v1::JobService::NewStub(User("viv", UserRole::kViewer));
  const auto watch = stub->WatchJobs(context.get(), {});
  v1::WatchJobsResponse event;
  while (watch->Read(&event) && !event.has_synced()) {
  }
  ASSERT_TRUE(Delete("j", "x", Root()).ok());
  while (watch->Read(&event) &&
         event.event_case() != v1::WatchJobsResponse::kDeleted) {
  }
  EXPECT_EQ(event.deleted(), "j");
  context->TryCancel();
  while (watch->Read(&event)) {
  }
  (void)watch->Finish();
}

// ---- Leaving ----

Fd ConnectTo(int port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                      sizeof(address)),
            0);
  return fd;
}

// As the program does it on SIGTERM: within 10 s, whoever holds on.
TEST_F(NodeServiceTest, LeavesWhateverIsOpen) {
  MustSubmit("j");
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  // One that never says a word, and one that began a handshake.
  const Fd silent = ConnectTo(server_->port());
  const Fd half = ConnectTo(server_->port());
  const char hello[] = "\x16\x03\x01\x02\x00";
  ASSERT_EQ(::send(half.get(), hello, 5, MSG_NOSIGNAL), 5);
  const auto viewer = v1::JobService::NewStub(User("viv", UserRole::kViewer));
  const auto watch_context = Context();
  const auto watch = viewer->WatchJobs(watch_context.get(), {});
  v1::WatchJobsResponse event;
  while (watch->Read(&event) && !event.has_synced()) {
  }
  v1::StreamLogsRequest follow;
  follow.set_name("j");
  follow.set_follow(true);
  const auto logs_context = Context();
  const auto lines = viewer->StreamLogs(logs_context.get(), follow);

  const MonoTime began = MonotonicNow();
  hub_->Close();
  logs_->Close();
  server_->SetServing(false);
  coordinator_->sessions()->CloseStreams();
  server_->Shutdown(std::chrono::milliseconds(500));
  EXPECT_LT(MonotonicNow() - began, 10s);
  EXPECT_EQ(daemon.Finish().code(), StatusCode::kUnavailable)
      << "try again, keep everything";
  while (watch->Read(&event)) {
  }
  EXPECT_FALSE(watch->Finish().ok());
  v1::StreamLogsResponse line;
  while (lines->Read(&line)) {
  }
  (void)lines->Finish();
}

TEST_F(ServiceTest, NodesAreListedByName) {
  DaemonStream b(Worker("b"));
  DaemonStream a(Worker("a"));
  ASSERT_TRUE(b.Register("b"));
  ASSERT_TRUE(a.Register("a"));
  MustSubmit("j");
  const auto stub = v1::ClusterService::NewStub(User("viv", UserRole::kViewer));
  v1::ListNodesRequest request;
  request.set_page_size(1);
  const auto list = [&] {
    return Answer<v1::ListNodesResponse>([&](auto* context, auto* response) {
      return stub->ListNodes(context, request, response);
    });
  };
  auto page = list();
  ASSERT_TRUE(page.ok()) << Message(page.status());
  ASSERT_EQ(page->nodes_size(), 1);
  EXPECT_EQ(page->nodes(0).name(), "a");
  EXPECT_EQ(page->nodes(0).state(), v1::NODE_STATE_READY);
  EXPECT_EQ(page->nodes(0).capacity().cpus(), 4);
  EXPECT_EQ(page->nodes(0).allocated().cpus(), 1);
  EXPECT_THAT(page->nodes(0).jobs(), ElementsAre("j"));
  request.set_page_token(page->next_page_token());
  page = list();
  EXPECT_EQ(page->nodes(0).name(), "b");
  EXPECT_EQ(page->next_page_token(), "");
  request.set_page_token("x");
  EXPECT_EQ(list().status().code(), StatusCode::kInvalidArgument);

  v1::GetNodeRequest get;
  get.set_name("b");
  const auto node = Answer<v1::Node>([&](auto* context, auto* response) {
    return stub->GetNode(context, get, response);
  });
  ASSERT_TRUE(node.ok());
  EXPECT_EQ(node->hostname(), "b.example");
  get.set_name("zz");
  const Status status = Answer<v1::Node>([&](auto* context, auto* response) {
                          return stub->GetNode(context, get, response);
                        }).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(status), "NO_SUCH_NODE");
}

}  // namespace
}  // namespace lockstep::server
