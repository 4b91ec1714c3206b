#include "common/wire/session_wire.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace lockstep {
namespace {

SessionRequest CommandRequest() {
  SessionRequest request;
  request.name = "mnist";
  request.rank = 3;
  request.command = CommandSession{{"bash", "-l"}, WindowSize{24, 80}, "xterm"};
  return request;
}

// The complaint about CommandRequest() after `change`.
std::string Complaint(const std::function<void(v1::SessionRequest*)>& change) {
  v1::SessionRequest message = ToProto(CommandRequest());
  change(&message);
  return Message(FromProto(message).status());
}

TEST(SessionWire, RequestsComeBackAsTheyWere) {
  SessionRequest port = CommandRequest();
  port.command.reset();
  port.port = PortSession{6006};
  SessionRequest profile = CommandRequest();
  profile.command.reset();
  profile.profile =
      ProfileSession{ProfileFormat::kSpeedscope, 5, 100, true, true};
  for (const SessionRequest& request : {CommandRequest(), port, profile}) {
    const auto back = FromProto(ToProto(request));
    ASSERT_TRUE(back.ok()) << Message(back.status());
    EXPECT_EQ(*back, request);
    const SessionOrder order{7, 2, request};
    const auto ordered = FromProto(ToProto(order));
    ASSERT_TRUE(ordered.ok()) << Message(ordered.status());
    EXPECT_EQ(*ordered, order);
  }
}

TEST(SessionWire, WhatIsWrongIsNamed) {
  EXPECT_EQ(Complaint([](v1::SessionRequest* m) { m->clear_command(); }),
            "open: must have one of command, port and profile");
  EXPECT_EQ(
      Complaint([](v1::SessionRequest* m) { m->mutable_port()->set_port(80); }),
      "open: must have one of command, port and profile");
  EXPECT_EQ(Complaint([](v1::SessionRequest* m) {
              m->clear_command();
              m->mutable_port()->set_port(65536);
            }),
            "open.port.port: must be 1 to 65535, not 65536");
  EXPECT_EQ(Complaint([](v1::SessionRequest* m) {
              m->mutable_command()->clear_argv();
            }),
            "open.command.argv: must name a program");
  EXPECT_EQ(Complaint([](v1::SessionRequest* m) {
              m->mutable_command()->add_argv(std::string(20 << 10, 'x'));
              m->mutable_command()->add_argv(std::string(20 << 10, 'x'));
            }),
            "open.command.argv: has more than 32 KiB in all");
  EXPECT_NE(Complaint([](v1::SessionRequest* m) { m->set_rank(-1); }), "");
  EXPECT_NE(Complaint([](v1::SessionRequest* m) { m->set_name("No Name"); }),
            "");
}

TEST(SessionWire, InputIsBounded) {
  v1::SessionInput input;
  EXPECT_FALSE(CheckInput(input).ok());
  input.mutable_open();
  EXPECT_FALSE(CheckInput(input).ok());
  input.set_data(std::string(kMaxSessionData, 'x'));
  EXPECT_TRUE(CheckInput(input).ok());
  input.mutable_data()->push_back('x');
  EXPECT_EQ(Message(CheckInput(input)),
            "data: has 65537 bytes; at most 65536 are allowed");
  input.set_signal(2);
  EXPECT_TRUE(CheckInput(input).ok());
  input.set_signal(11);
  EXPECT_FALSE(CheckInput(input).ok());
  input.mutable_size()->set_rows(-1);
  EXPECT_FALSE(CheckInput(input).ok());
}

TEST(SessionWire, DescriptionsArePrintableAndShort) {
  SessionRequest request = CommandRequest();
  EXPECT_EQ(Describe(request), "`bash -l`");
  request.command->argv = {"sh", "-c", "echo \n\x1b[31m"};
  EXPECT_EQ(Describe(request), "`sh -c 'echo ??[31m'`");
  request.command->argv = {"x", std::string(5000, 'y')};
  EXPECT_LE(Describe(request).size(), 200u);
  request.command.reset();
  request.port = PortSession{6006};
  EXPECT_EQ(Describe(request), "port 6006");
}

}  // namespace
}  // namespace lockstep
