#include "common/pki/authorisation.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::pki {
namespace {

using testing::HasSubstr;

const char kSubmit[] = "/lockstep.v1.JobService/SubmitJob";
const char kList[] = "/lockstep.v1.JobService/ListJobs";
const char kConnect[] = "/lockstep.v1.WorkerService/Connect";
const char kHealth[] = "/grpc.health.v1.Health/Check";

AuthorisationTable Table() {
  auto table = AuthorisationTable::Create();
  EXPECT_TRUE(table.ok()) << Message(table.status());
  return table.value_or(AuthorisationTable());
}

// Every method that is compiled in says who may call it.
TEST(AuthorisationTest, EveryMethodOfEveryServiceHasARule) {
  const AuthorisationTable table = Table();
  int methods = 0;
  for (const auto* service : LockstepServices()) {
    for (int i = 0; i < service->method_count(); ++i, ++methods) {
      const std::string path = fmt::format("/{}/{}", service->full_name(),
                                           service->method(i)->name());
      EXPECT_NE(table.Find(path), nullptr) << path;
    }
  }
  EXPECT_GE(LockstepServices().size(), 3u);
  EXPECT_GE(methods, 10);
  EXPECT_FALSE(table.Find(kConnect)->unary);
  EXPECT_TRUE(table.Find(kList)->unary);
}

// What changes something is never a viewer's. Nor are the files of a job, which
// are its owner's and admins'.
TEST(AuthorisationTest, ViewersOnlyRead) {
  const AuthorisationTable table = Table();
  for (const auto& [method, rule] : table.rules()) {
    const std::string name = method.substr(method.rfind('/') + 1);
    const bool reads = (name.starts_with("Get") || name.starts_with("List") ||
                        name.starts_with("Watch") || name == "StreamLogs" ||
                        method.starts_with("/grpc.")) &&
                       name != "ListFiles";
    if (rule.admits == MethodRule::Admits::kWorkers) continue;
    EXPECT_EQ(rule.role == UserRole::kViewer, reads) << method;
  }
}

TEST(AuthorisationTest, WhoMayCallWhat) {
  const Identity viewer = UserIdentity("prod", UserRole::kViewer, "v");
  const Identity submitter = UserIdentity("prod", UserRole::kSubmitter, "s");
  const Identity admin = UserIdentity("prod", UserRole::kAdmin, "a");
  const Identity worker = WorkerIdentity("prod", "w");
  const Identity coordinator = CoordinatorIdentity("prod", "main");
  const Identity stranger = UserIdentity("other", UserRole::kAdmin, "a");
  const Identity insecure = InsecureIdentity();
  const Identity nobody;
  constexpr StatusCode kOk = StatusCode::kOk;
  constexpr StatusCode kDenied = StatusCode::kPermissionDenied;
  constexpr StatusCode kWho = StatusCode::kUnauthenticated;
  const struct {
    const Identity& caller;
    StatusCode list, submit, connect, health;
  } cases[] = {
      {viewer, kOk, kDenied, kDenied, kOk},
      {submitter, kOk, kOk, kDenied, kOk},
      {admin, kOk, kOk, kDenied, kOk},
      {worker, kDenied, kDenied, kOk, kOk},
      {coordinator, kDenied, kDenied, kDenied, kOk},
      {stranger, kWho, kWho, kWho, kWho},
      {insecure, kOk, kOk, kOk, kOk},
      {nobody, kWho, kWho, kWho, kWho},
  };
  const AuthorisationTable table = Table();
  const auto code = [&](const Identity& caller, const char* method) {
    return table.Authorise(caller, "prod", method).code();
  };
  for (const auto& c : cases) {
    EXPECT_EQ(code(c.caller, kList), c.list) << Describe(c.caller);
    EXPECT_EQ(code(c.caller, kSubmit), c.submit) << Describe(c.caller);
    EXPECT_EQ(code(c.caller, kConnect), c.connect) << Describe(c.caller);
    EXPECT_EQ(code(c.caller, kHealth), c.health) << Describe(c.caller);
  }
}

TEST(AuthorisationTest, WhatIsNotListedIsClosedToAll) {
  for (const char* method :
       {"/lockstep.v1.JobService/Nothing", "/other.Service/Get", "", "/"}) {
    EXPECT_EQ(Table().Authorise(InsecureIdentity(), "prod", method).code(),
              StatusCode::kUnimplemented)
        << method;
  }
}

TEST(AuthorisationTest, AMethodWithoutARoleStopsTheServer) {
  google::protobuf::FileDescriptorProto file;
  file.set_name("forgotten.proto");
  file.set_package("test");
  file.add_message_type()->set_name("Nothing");
  auto* service = file.add_service();
  service->set_name("Forgotten");
  auto* method = service->add_method();
  method->set_name("Do");
  method->set_input_type(".test.Nothing");
  method->set_output_type(".test.Nothing");
  google::protobuf::DescriptorPool pool;
  const auto* built = pool.BuildFile(file);
  ASSERT_NE(built, nullptr);

  const Status s =
      AuthorisationTable::Create({built->FindServiceByName("Forgotten")})
          .status();
  EXPECT_EQ(s.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(s), HasSubstr("test.Forgotten.Do"));
}

}  // namespace
}  // namespace lockstep::pki
