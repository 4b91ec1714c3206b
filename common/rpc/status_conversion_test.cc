#include "common/rpc/status_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace lockstep {
namespace {

TEST(StatusConversionTest, EveryCodeSurvives) {
  for (int code = 0; code <= 16; ++code) {
    const Status status(static_cast<StatusCode>(code), code == 0 ? "" : "why");
    const grpc::Status there = ToGrpc(status);
    EXPECT_EQ(there.error_code(), code);
    EXPECT_EQ(FromGrpc(there), status);
  }
  EXPECT_EQ(FromGrpc(grpc::Status(static_cast<grpc::StatusCode>(20), "x")),
            Error(StatusCode::kUnknown, "x"));
}

TEST(StatusConversionTest, TheReasonSurvives) {
  const Status status =
      WithReason(FailedPrecondition("no node has 9 GPUs"), "NEVER_FITS");
  const Status back = FromGrpc(ToGrpc(status));
  EXPECT_EQ(back, status);
  EXPECT_EQ(ReasonOf(back), "NEVER_FITS");
  EXPECT_EQ(ReasonOf(FromGrpc(ToGrpc(NotFound("x")))), "");
}

// What a client that knows nothing of lockstep sees.
TEST(StatusConversionTest, DetailsAreThoseOfGoogleRpc) {
  google::rpc::Status status;
  ASSERT_TRUE(status.ParseFromString(
      ToGrpc(WithReason(NotFound("gone"), "NO_JOB")).error_details()));
  EXPECT_EQ(status.code(), 5);
  EXPECT_EQ(status.message(), "gone");
  ASSERT_EQ(status.details_size(), 1);
  EXPECT_EQ(status.details(0).type_url(),
            "type.googleapis.com/google.rpc.ErrorInfo");
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(status.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "NO_JOB");
  EXPECT_EQ(info.domain(), "lockstep");
}

TEST(StatusConversionTest, DetailsThatAreNotOursAreLeftOut) {
  google::rpc::ErrorInfo info;
  info.set_reason("QUOTA");
  info.set_domain("elsewhere");
  google::rpc::Status status;
  status.add_details()->PackFrom(info);
  for (const std::string& details :
       {std::string("\xff\xff\xff"), std::string(1000, '\0'),
        status.SerializeAsString()}) {
    const Status got =
        FromGrpc(grpc::Status(grpc::StatusCode::ABORTED, "text", details));
    EXPECT_EQ(got, Aborted("text"));
    EXPECT_EQ(ReasonOf(got), "");
  }
}

TEST(StatusConversionTest, TextIsBoundedAndUtf8) {
  const struct {
    std::string text;
    std::string want;
  } cases[] = {
      {"gr\xc3\xbc\xc3\x9f dich \xf0\x9f\x98\x80",
       "gr\xc3\xbc\xc3\x9f dich \xf0\x9f\x98\x80"},
      {"a\xff\xc3", "a??"},
      {"\xc0\x80", "??"},
      {"\xed\xa0\x80", "???"},
      {"\xf4\x90\x80\x80", "????"},
      {std::string(3000, 'x'), std::string(2048, 'x') + "..."},
      {std::string(2047, 'x') + "\xc3\xbc", std::string(2047, 'x') + "..."},
  };
  for (const auto& c : cases) {
    const grpc::Status got =
        ToGrpc(WithReason(Status(StatusCode::kInternal, c.text), "R"));
    EXPECT_EQ(got.error_message(), c.want);
    EXPECT_EQ(ReasonOf(FromGrpc(got)), "R");
  }
}

}  // namespace
}  // namespace lockstep
