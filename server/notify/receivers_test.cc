#include "server/notify/receivers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace lockstep::server {
namespace {

using testing::HasSubstr;

class ReceiversTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/lockstep-receivers-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    Write("secret", " s3cret\n");
  }
  void TearDown() override {
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir_).ok());
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = JoinPath(dir_, name);
    EXPECT_TRUE(RealFileSystem()->WriteAtomic(path, text).ok());
    return path;
  }
  StatusOr<Receivers> Load(const std::string& text) {
    return LoadReceivers(RealFileSystem(), Write("receivers.yaml", text));
  }
  std::string Wrong(const std::string& text) {
    const auto receivers = Load(text);
    EXPECT_EQ(receivers.status().code(), StatusCode::kInvalidArgument) << text;
    return Message(receivers.status());
  }

  std::string dir_;
};

TEST_F(ReceiversTest, EveryWayIsRead) {
  const auto receivers = Load(
      "url: https://lab:7480/\n"
      "receivers:\n"
      "- name: on-call\n"
      "  kinds: [failed, node-fault]\n"
      "  owners: [user/ann]\n"
      "  labels: {team: vision}\n"
      "  reasons: [STALLED]\n"
      "  webhook: {url: 'http://x/y', secret_file: " +
      JoinPath(dir_, "secret") +
      "}\n"
      "- name: chat\n"
      "  slack: {url_file: " +
      Write("url", "https://hooks/abc\n") +
      "}\n"
      "  text: '{title}'\n"
      "- name: mail\n"
      "  mail: {server: 'smtp://mail:25', from: l@x, to: ['{user}@x'],"
      " tls: required}\n"
      "- name: pager\n"
      "  command: [/bin/page, '{job}']\n");
  ASSERT_TRUE(receivers.ok()) << receivers.status();
  EXPECT_EQ(receivers->url, "https://lab:7480");
  ASSERT_EQ(receivers->all.size(), 4u);
  const Receiver& first = receivers->all[0];
  EXPECT_EQ(first.kinds.size(), 2u);
  EXPECT_EQ(std::get<WebhookReceiver>(first.way).secret, "s3cret");
  EXPECT_EQ(first.text, kDefaultText);
  EXPECT_EQ(std::get<SlackReceiver>(receivers->all[1].way).url,
            "https://hooks/abc");
  EXPECT_EQ(receivers->all[1].text, "{title}");
  EXPECT_EQ(std::get<MailReceiver>(receivers->all[2].way).tls,
            MailReceiver::Tls::kRequired);
  EXPECT_EQ(std::get<CommandReceiver>(receivers->all[3].way).argv.size(), 2u);
}

TEST_F(ReceiversTest, ASecretOfTheStandardIsDecoded) {
  const auto receivers =
      Load("receivers: [{name: a, webhook: {url: 'http://x', secret_file: " +
           Write("coded", "whsec_aGVsbG8=\n") + "}}]");
  ASSERT_TRUE(receivers.ok()) << receivers.status();
  EXPECT_EQ(std::get<WebhookReceiver>(receivers->all[0].way).secret, "hello");
  EXPECT_THAT(
      Wrong("receivers: [{name: a, webhook: {url: 'http://x', secret_file: " +
            Write("coded", "whsec_%\n") + "}}]"),
      HasSubstr("is not base64"));
}

TEST_F(ReceiversTest, ErrorsSayWhereAndWhatWouldWork) {
  EXPECT_THAT(Wrong("receivers:\n- name: a\n  webhok: {}\n"),
              HasSubstr("receivers.yaml:3: a receiver has no field webhok; "
                        "known: command, kinds"));
  EXPECT_THAT(Wrong("receivers:\n- name: a\n  kinds: [fail]\n"),
              HasSubstr(":3: there is no kind fail; known: started"));
  EXPECT_THAT(Wrong("receivers: [{name: a}]"),
              HasSubstr("needs one of webhook, slack, mail and command"));
  EXPECT_THAT(Wrong("receivers: [{name: ../a, command: [/bin/x]}]"),
              HasSubstr("needs a name of letters"));
  EXPECT_THAT(Wrong("receivers: [{name: a, command: [x]}]"),
              HasSubstr("begins with the path"));
  EXPECT_THAT(Wrong("receivers: [{name: a, command: [/x, '{jbo}']}]"),
              HasSubstr("no placeholder {jbo}"));
  EXPECT_THAT(Wrong("receivers: [{name: a, webhook: {url: 'ftp://x'}}]"),
              HasSubstr("http://... or https://"));
  EXPECT_THAT(Wrong("receivers: [{name: a, slack: {url_file: /no/file}}]"),
              HasSubstr("/no/file"));
  EXPECT_THAT(Wrong("receivers: [{name: a, mail: {server: 'smtp://m'}}]"),
              HasSubstr("needs from and to"));
  EXPECT_THAT(Wrong("receivers: [{name: a, command: [/x]}, "
                    "{name: a, command: [/x]}]"),
              HasSubstr("receiver a is there twice"));
  EXPECT_THAT(Wrong("receivers: ["), HasSubstr("receivers.yaml:1"));
  EXPECT_THAT(Wrong("url: http://x"), HasSubstr("the list receivers is"));
}

TEST_F(ReceiversTest, FiltersMustAllFit) {
  Notification n;
  n.kind = NotificationKind::kFailed;
  n.owner = "user/ann";
  n.labels = {{"team", "vision"}, {"run", "7"}};
  n.reason = "STALLED";
  Receiver receiver;
  EXPECT_TRUE(Wants(receiver, n)) << "without filters everything";
  receiver.kinds = {NotificationKind::kFailed};
  receiver.owners = {"user/ann"};
  receiver.labels = {{"team", "vision"}};
  receiver.reasons = {"STALLED"};
  EXPECT_TRUE(Wants(receiver, n));
  Notification other = n;
  other.kind = NotificationKind::kStarted;
  EXPECT_FALSE(Wants(receiver, other));
  other = n;
  other.owner = "user/bob";
  EXPECT_FALSE(Wants(receiver, other));
  other = n;
  other.labels["team"] = "speech";
  EXPECT_FALSE(Wants(receiver, other));
  other = n;
  other.reason = "RANK_EXIT";
  EXPECT_FALSE(Wants(receiver, other));
}

}  // namespace
}  // namespace lockstep::server
