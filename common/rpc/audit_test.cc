#include "common/rpc/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/v1/cluster.pb.h"
#include "lockstep/v1/job.pb.h"
#include "lockstep/v1/session.pb.h"

namespace lockstep {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(AuditTest, SaysWhoFromWhereWhatAndTheAnswer) {
  EXPECT_EQ(AuditLine({"user ann (submitter)", "ipv4:10.0.0.7:4", "/a.B/C",
                       "mnist", OkStatus()}),
            "audit: user ann (submitter) from ipv4:10.0.0.7:4 called /a.B/C "
            "\"mnist\": OK");
  EXPECT_EQ(AuditLine({"", "", "/a.B/C", "", Unauthenticated("no name")}),
            "audit: refused an unknown caller called /a.B/C: UNAUTHENTICATED: "
            "no name");
  EXPECT_EQ(AuditLine({"user vera (viewer)", "", "/a.B/C", "mnist",
                       PermissionDenied("no"), 12}),
            "audit: refused user vera (viewer) called /a.B/C \"mnist\" 12 "
            "times: PERMISSION_DENIED: no");
}

TEST(AuditTest, OneLineWhateverIsAskedFor) {
  const std::string line =
      AuditLine({"user ann (admin)", "", "/a\nb",
                 "x\naudit: user eve" + std::string(10 << 20, 'y'),
                 NotFound("no \r\n job")});
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  EXPECT_THAT(line, HasSubstr("\"x?audit: user eve"));
  EXPECT_THAT(line, EndsWith("NOT_FOUND: no ?? job"));
  EXPECT_LT(line.size(), 512u);
}

TEST(AuditTest, RefusalsAreToldFromFailures) {
  EXPECT_TRUE(IsRefusal(PermissionDenied("no")));
  EXPECT_TRUE(IsRefusal(Unauthenticated("no")));
  EXPECT_TRUE(IsRefusal(ResourceExhausted("no")));
  EXPECT_FALSE(IsRefusal(NotFound("no")));
  EXPECT_FALSE(IsRefusal(OkStatus()));
}

TEST(AuditTest, ARequestIsAboutItsName) {
  v1::CancelJobRequest cancel;
  cancel.set_name("mnist");
  EXPECT_EQ(AuditTarget(cancel), "mnist");
  v1::SubmitJobRequest submit;
  EXPECT_EQ(AuditTarget(submit), "");
  submit.mutable_spec()->set_name("new");
  EXPECT_EQ(AuditTarget(submit), "new");
  EXPECT_EQ(AuditTarget(v1::ListNodesRequest()), "");
  v1::SessionInput input;
  input.mutable_open()->set_name("mnist");
  input.mutable_open()->set_rank(3);
  input.mutable_open()->mutable_command()->add_argv("bash");
  input.mutable_open()->mutable_command()->add_argv("-l");
  EXPECT_EQ(AuditTarget(input), "mnist rank 3: bash -l");
  input.mutable_open()->clear_command();
  input.mutable_open()->mutable_port()->set_port(80);
  EXPECT_EQ(AuditTarget(input), "mnist rank 3: port 80");
}

}  // namespace
}  // namespace lockstep
