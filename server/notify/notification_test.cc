#include "server/notify/notification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::server {
namespace {

using testing::HasSubstr;

Notification FailedJob() {
  Notification n;
  n.id = "uid-failed-1";
  n.time = FromUnixNanos(1'795'000'000'123'456'789);
  n.kind = NotificationKind::kFailed;
  n.cluster = "lab";
  n.job = "fashion";
  n.owner = "user/ann";
  n.labels = {{"team", "vision"}};
  n.reason = "RANK_EXIT";
  n.text = "rank 1 ended with exit code 1: \"no data\"";
  n.cost = "3.20 USD";
  n.command = "lockstep jobs why fashion";
  return n;
}

TEST(NotificationTest, ComesBackFromJson) {
  const Notification n = FailedJob();
  const auto back = NotificationOf(ToJson(n));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, n);
}

TEST(NotificationTest, BytesOfProgramsAreNoDanger) {
  Notification n = FailedJob();
  n.text = "\xff\xfe\x01 \"\n{job}";
  const auto back = NotificationOf(ToJson(n));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_THAT(back->text, HasSubstr("\n{job}"));
  // A placeholder within a value is text.
  EXPECT_THAT(Render("{text}", *back), HasSubstr("{job}"));
}

TEST(NotificationTest, WhatIsNoneIsRefused) {
  for (const char* text :
       {"", "[]", "{}", "{\"id\":\"a\",\"kind\":\"failed\"}",
        "{\"id\":\"a\",\"kind\":\"no\",\"unix_nanos\":1}",
        "{\"id\":\"a\",\"kind\":\"failed\",\"unix_nanos\":\"1\"}"}) {
    EXPECT_EQ(NotificationOf(text).status().code(), StatusCode::kDataLoss)
        << text;
  }
}

TEST(NotificationTest, LinesWithoutAValueAreLeftOut) {
  EXPECT_EQ(Render(kDefaultText, FailedJob()),
            "job fashion failed\nrank 1 ended with exit code 1: \"no data\"\n"
            "Owner: user/ann. Cost so far: 3.20 USD.\n"
            "lockstep jobs why fashion");
  Notification node;
  node.kind = NotificationKind::kNodeFault;
  node.node = "host-b";
  node.text = "silent for 12 s";
  EXPECT_EQ(Render(kDefaultText, node),
            "node host-b has a fault\nsilent for 12 s");
}

TEST(NotificationTest, TemplatesAreChecked) {
  EXPECT_TRUE(CheckTemplate("{job} of {user}: {text} {not closed").ok());
  const Status wrong = CheckTemplate("{job} {jbo}");
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(wrong), HasSubstr("{jbo}; known: {cluster}, {command}"));
  EXPECT_EQ(Render("{user}@x {", FailedJob()), "ann@x {");
}

TEST(NotificationTest, KindsHaveNames) {
  EXPECT_EQ(NotificationKindOf("node-fault"), NotificationKind::kNodeFault);
  EXPECT_EQ(NotificationKindOf("nothing"), std::nullopt);
  EXPECT_THAT(NotificationKindNames(), HasSubstr("started, stalled"));
  EXPECT_THAT(NotificationKindNames(), testing::Not(HasSubstr("test")));
}

}  // namespace
}  // namespace lockstep::server
