// Files of tasks' working directories: who may have them, and how they come.
#include <gmock/gmock.h>

#include <thread>

#include "tests/service/fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""ms;
using testing::ElementsAre;
using testing::HasSubstr;

class WorkFilesServiceTest : public ServiceTest {
 protected:
  WorkFilesServiceTest() {
    files_options_.max_file_bytes = 1 << 20;
    files_options_.patience = 10'000ms;
  }
  StatusOr<v1::ListFilesResponse> List(
      const std::string& name, int32_t rank = 0,
      const std::string& user = "ann",
      pki::UserRole role = pki::UserRole::kSubmitter) {
    const auto stub = v1::JobService::NewStub(User(user, role));
    v1::ListFilesRequest request;
    request.set_name(name);
    request.set_rank(rank);
    request.set_path("logs");
    return Answer<v1::ListFilesResponse>([&](auto* context, auto* response) {
      return stub->ListFiles(context, request, response);
    });
  }
  struct File {
    int64_t size = -1;
    std::string bytes;
    Status status;
  };
  File Read(const std::string& path, const std::string& user = "ann") {
    const auto stub = v1::JobService::NewStub(User(user));
    v1::ReadFileRequest request;
    request.set_name("j");
    request.set_path(path);
    const auto context = Context();
    const auto reader = stub->ReadFile(context.get(), request);
    File file;
    v1::ReadFileResponse response;
    while (reader->Read(&response)) {
      if (file.size < 0) file.size = response.size();
      file.bytes += response.data();
    }
    file.status = FromGrpc(reader->Finish());
    return file;
  }
  // The daemon answers the next `count` questions as `bytes` of a file.
  std::thread Serve(DaemonStream* daemon, std::string bytes, int count) {
    return std::thread([=] {
      for (int i = 0; i < count; ++i) {
        const auto message = daemon->Read(v1::CoordinatorMessage::kFileRequest);
        if (!message) return;
        const auto query = FromProto(message->file_request());
        ASSERT_TRUE(query.ok()) << query.status();
        EXPECT_EQ(query->job, "j");
        EXPECT_EQ(query->job_uid, "uid1");
        EXPECT_EQ(query->type, TaskType::kWorker);
        FileAnswer answer;
        answer.id = query->id;
        if (query->range) {
          const auto at = static_cast<size_t>(query->range->offset);
          answer.size = static_cast<int64_t>(bytes.size());
          if (at < bytes.size()) {
            answer.data =
                bytes.substr(at, static_cast<size_t>(query->range->length));
          }
        } else {
          answer.entries = {{"logs/a", 3, {}, false}};
        }
        v1::WorkerMessage reply;
        *reply.mutable_file_reply() = ToProto(answer);
        daemon->Write(reply);
      }
    });
  }
};

TEST_F(WorkFilesServiceTest, AFolderAndAFileComeFromTheNode) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  MustSubmit("j");
  const GangStatus status = RunOn(&daemon, "j");
  // More than one part, and none of a full length.
  std::string bytes(600'000, 'x');
  bytes[300'000] = 'y';
  std::thread serves = Serve(&daemon, bytes, 4);
  const auto list = List("j");
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->node(), "a");
  ASSERT_EQ(list->files_size(), 1);
  EXPECT_EQ(list->files(0).path(), "logs/a");
  const File file = Read("snapshot.pt");
  EXPECT_EQ(file.status, OkStatus());
  EXPECT_EQ(file.size, 600'000);
  EXPECT_EQ(file.bytes, bytes);
  serves.join();
  // Also after the end.
  End(&daemon, status);
  serves = Serve(&daemon, "", 1);
  const File empty = Read("empty");
  EXPECT_EQ(empty.status, OkStatus());
  EXPECT_EQ(empty.size, 0);
  serves.join();
}

TEST_F(WorkFilesServiceTest, OnlyTheOwnerAndAdminsRead) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  MustSubmit("j");
  RunOn(&daemon, "j");
  const Status stranger = List("j", 0, "bob").status();
  EXPECT_EQ(stranger.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(stranger), HasSubstr("may read its files"));
  EXPECT_EQ(Read("x", "bob").status.code(), StatusCode::kPermissionDenied);
  EXPECT_EQ(List("j", 0, "ann", pki::UserRole::kViewer).status().code(),
            StatusCode::kPermissionDenied);
  std::thread serves = Serve(&daemon, "", 1);
  EXPECT_TRUE(List("j", 0, "root", pki::UserRole::kAdmin).ok());
  serves.join();
}

TEST_F(WorkFilesServiceTest, WhatCannotBeReadIsRefusedInASentence) {
  EXPECT_EQ(List("nothing").status().code(), StatusCode::kNotFound);
  MustSubmit("j");
  EXPECT_EQ(ReasonOf(List("j").status()), "NOT_STARTED");
  {
    DaemonStream daemon(Worker("a"));
    ASSERT_TRUE(daemon.Register("a"));
    RunOn(&daemon, "j");
    EXPECT_EQ(List("j", 5).status().code(), StatusCode::kNotFound);
    std::thread serves = Serve(&daemon, std::string((1 << 20) + 1, 'x'), 1);
    const File large = Read("large");
    serves.join();
    EXPECT_EQ(large.status.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(large.bytes, "");
    EXPECT_THAT(Message(large.status), HasSubstr("copy it on node a"));
  }
  EXPECT_EQ(List("j").status().code(), StatusCode::kUnavailable);
  v1::JobSpec spec = Spec("own");
  spec.set_working_directory("/srv");
  ASSERT_TRUE(Submit(SubmitRequest(spec)).ok());
  EXPECT_THAT(Message(List("own").status()), HasSubstr("/srv"));
}

TEST_F(WorkFilesServiceTest, AFileThatShrinksMeanwhileIsNoWholeFile) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  MustSubmit("j");
  RunOn(&daemon, "j");
  std::thread serves = std::thread([&] {
    Serve(&daemon, std::string(300'000, 'x'), 1).join();
    Serve(&daemon, "short", 1).join();
  });
  const File file = Read("shrinks");
  serves.join();
  EXPECT_EQ(file.status.code(), StatusCode::kAborted);
  EXPECT_THAT(Message(file.status), HasSubstr("became shorter"));
}

// A directory is kept as long as the logs of its job are.
TEST_F(WorkFilesServiceTest, NodesDropWhatIsNotKept) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  MustSubmit("j");
  End(&daemon, RunOn(&daemon, "j"));
  const auto stub = v1::JobService::NewStub(User("ann"));
  v1::DeleteJobRequest request;
  request.set_name("j");
  request.set_request_id("d");
  ASSERT_TRUE(Answer<v1::DeleteJobResponse>([&](auto* context, auto* response) {
                return stub->DeleteJob(context, request, response);
              }).ok());
  const auto drop = daemon.Read(v1::CoordinatorMessage::kDropWork);
  ASSERT_TRUE(drop);
  EXPECT_THAT(drop->drop_work().job_uids(), ElementsAre("uid1"));
}

TEST_F(WorkFilesServiceTest, ANodeThatComesBackIsToldWhatIsNotKept) {
  GangStatus kept;
  {
    DaemonStream daemon(Worker("a"));
    ASSERT_TRUE(daemon.Register("a"));
    for (const char* name : {"logless", "logged"}) {
      MustSubmit(name);
      const GangStatus status = RunOn(&daemon, name);
      if (status.job == "logged") {
        daemon.SendLog({status.job, status.job_uid, status.generation, 0, 0,
                        "2026-01-01T00:00:00Z stdout F x\n", false});
      }
      End(&daemon, status);
      kept = status;
    }
  }
  {
    DaemonStream daemon(Worker("a"));
    ASSERT_TRUE(daemon.Register("a", 2, {}, 4, {"uid1", "uid2", "strange"}));
    const auto drop = daemon.Read(v1::CoordinatorMessage::kDropWork);
    ASSERT_TRUE(drop);
    EXPECT_THAT(drop->drop_work().job_uids(), ElementsAre("strange"))
        << "logs may still be on their way";
  }
  clock_.Advance(1h);
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a", 3, {}, 4, {"uid1", "uid2"}));
  const auto drop = daemon.Read(v1::CoordinatorMessage::kDropWork);
  ASSERT_TRUE(drop);
  EXPECT_THAT(drop->drop_work().job_uids(), ElementsAre("uid1"));
}

}  // namespace
}  // namespace lockstep::server
