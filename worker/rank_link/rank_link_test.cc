#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "common/base/version.h"
#include "worker/rank_link/client.h"
#include "worker/rank_link/packet.h"
#include "worker/rank_link/protocol.h"
#include "worker/rank_link/server.h"
#include "worker/rank_link/testing.h"
#include "worker/rank_link/text.h"

namespace lockstep::worker::rank_link {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class RankLinkTest : public ::testing::Test {
 protected:
  RankKey Key(int rank) const { return {"mnist", 3, rank}; }
  void Expect(int rank, uint32_t recovery = 0) {
    v1::RankWelcome welcome;
    welcome.set_recovery(recovery);
    welcome.set_rank(rank);
    welcome.set_world_size(2);
    daemon_.Expect(Key(rank), "nonce-" + std::to_string(rank), welcome);
  }
  StatusOr<std::unique_ptr<RankLink>> Connect(
      int rank, RankLinkCallbacks callbacks = {}) {
    return RankLink::Connect(
        {Key(rank), daemon_.path(), "nonce-" + std::to_string(rank)},
        std::move(callbacks), In(seconds(5)));
  }
  // A connection without a client behind it.
  Fd Raw() {
    StatusOr<Fd> fd = ConnectPackets(daemon_.path());
    EXPECT_TRUE(fd.ok()) << fd.status();
    return fd.ok() ? *std::move(fd) : Fd();
  }
  static std::string Hello(const RankKey& key, const std::string& nonce) {
    v1::RankMessage message;
    message.mutable_hello()->set_job(key.job);
    message.mutable_hello()->set_generation(key.generation);
    message.mutable_hello()->set_rank(key.rank);
    message.mutable_hello()->set_nonce(nonce);
    return message.SerializeAsString();
  }
  // The next packet, or what ended the connection.
  static PacketResult Next(const Fd& fd, v1::DaemonMessage* message) {
    pollfd waited{fd.get(), POLLIN, 0};
    if (::poll(&waited, 1, 5000) != 1) return PacketResult::kWouldBlock;
    std::string packet;
    const PacketResult result = ReceivePacket(fd.get(), &packet);
    if (result == PacketResult::kDone) message->ParseFromString(packet);
    return result;
  }

  TempDir dir_;
  TestDaemon daemon_{dir_.path() + "/link"};
};

TEST_F(RankLinkTest, HelloIsAnsweredByWelcome) {
  Expect(1);
  StatusOr<std::unique_ptr<RankLink>> link = Connect(1);
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ((*link)->welcome().rank(), 1);
  EXPECT_EQ((*link)->welcome().world_size(), 2);
  EXPECT_TRUE((*link)->connected());
  daemon_.With([&](RankLinkServer* server) {
    EXPECT_EQ(server->pid(Key(1)), ::getpid());
    EXPECT_FALSE(server->connected(Key(0)));
  });
}

TEST_F(RankLinkTest, AWrongNonceIsRefused) {
  Expect(0);
  StatusOr<std::unique_ptr<RankLink>> link = RankLink::Connect(
      {Key(0), daemon_.path(), "nonce-1"}, {}, In(seconds(5)));
  EXPECT_EQ(link.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(link.status()), HasSubstr("wrong nonce"));
}

TEST_F(RankLinkTest, AProtocolThatTheDaemonDoesNotHaveIsRefused) {
  Expect(0);
  v1::RankMessage message;
  ASSERT_TRUE(message.ParseFromString(Hello(Key(0), "nonce-0")));
  message.mutable_hello()->set_protocol(kLinkProtocol + 1);
  message.mutable_hello()->set_version("9.8.7");
  const Fd fd = Raw();
  SendPacket(fd.get(), message.SerializeAsString());
  v1::DaemonMessage answer;
  ASSERT_EQ(Next(fd, &answer), PacketResult::kDone);
  const std::string why = answer.refusal().message();
  EXPECT_THAT(why, HasSubstr("lockstep 9.8.7 of this program"));
  EXPECT_THAT(why, HasSubstr(fmt::format("lockstep-worker {} of", kVersion)));
  EXPECT_THAT(why, HasSubstr("upgrade lockstep-worker to 9.8.7"));
  daemon_.With(
      [&](RankLinkServer* server) { EXPECT_FALSE(server->connected(Key(0))); });
  // The release alone says nothing, and older ranks say no protocol.
  message.mutable_hello()->clear_protocol();
  const Fd other = Raw();
  SendPacket(other.get(), message.SerializeAsString());
  ASSERT_EQ(Next(other, &answer), PacketResult::kDone);
  EXPECT_TRUE(answer.has_welcome());
}

TEST_F(RankLinkTest, ARankSaysItsProtocolAndRelease) {
  const std::string path = dir_.path() + "/listener";
  const StatusOr<Fd> listener = ListenPackets(path);
  ASSERT_TRUE(listener.ok()) << listener.status();
  Status joined = OkStatus();
  std::thread rank([&] {
    joined =
        RankLink::Connect({Key(0), path, "n"}, {}, In(seconds(30))).status();
  });
  pollfd waited{listener->get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waited, 1, 30'000), 1);
  const Fd fd(::accept(listener->get(), nullptr, nullptr));
  waited.fd = fd.get();
  EXPECT_EQ(::poll(&waited, 1, 30'000), 1);
  std::string packet;
  v1::RankMessage message;
  EXPECT_EQ(ReceivePacket(fd.get(), &packet), PacketResult::kDone);
  EXPECT_TRUE(message.ParseFromString(packet));
  EXPECT_EQ(message.hello().protocol(), kLinkProtocol);
  EXPECT_EQ(message.hello().version(), kVersion);
  v1::DaemonMessage answer;
  answer.mutable_refusal()->set_message("lockstep 9 and lockstep-worker 8");
  SendPacket(fd.get(), answer.SerializeAsString());
  rank.join();
  EXPECT_EQ(joined.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(joined), HasSubstr("lockstep 9 and lockstep-worker 8"));
}

TEST_F(RankLinkTest, AnotherGenerationIsRefused) {
  Expect(0);
  RankKey old = Key(0);
  old.generation = 2;
  StatusOr<std::unique_ptr<RankLink>> link =
      RankLink::Connect({old, daemon_.path(), "nonce-0"}, {}, In(seconds(5)));
  EXPECT_EQ(link.status().code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(link.status()), HasSubstr("job mnist g2 rank 0"));
}

TEST_F(RankLinkTest, NobodyThereIsToldByTheDeadline) {
  StatusOr<std::unique_ptr<RankLink>> link = RankLink::Connect(
      {Key(0), dir_.path() + "/none", "n"}, {}, In(milliseconds(50)));
  EXPECT_EQ(link.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(link.status()), HasSubstr("/none"));
}

TEST_F(RankLinkTest, AValueReachesTheRankThatWaitsForIt) {
  Expect(0);
  Expect(1);
  auto a = *Connect(0);
  auto b = *Connect(1);
  StatusOr<std::string> got = Unavailable("not yet");
  std::thread getter([&] { got = b->Get("addr/0", In(seconds(5))); });
  const std::string value(kMaxRendezvousValue, '\x80');
  EXPECT_TRUE(a->Put("addr/0", value).ok());
  getter.join();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(*got, value);
  EXPECT_EQ(*a->Get("addr/0", In(seconds(5))), value);
}

TEST_F(RankLinkTest, AGetThatNobodyAnswersNamesItsKey) {
  Expect(0);
  auto link = *Connect(0);
  StatusOr<std::string> got = link->Get("addr/7", In(milliseconds(30)));
  EXPECT_EQ(got.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(got.status()), HasSubstr("addr/7"));
}

TEST_F(RankLinkTest, TooLongAValueIsRefusedByTheRankItself) {
  Expect(0);
  auto link = *Connect(0);
  EXPECT_EQ(link->Put("k", std::string(kMaxRendezvousValue + 1, 'x')).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(link->Put(std::string(kMaxRendezvousKey + 1, 'k'), "").code(),
            StatusCode::kInvalidArgument);
}

TEST_F(RankLinkTest, GoComesWhenAllHaveJoined) {
  Expect(0);
  Expect(1);
  auto a = *Connect(0);
  auto b = *Connect(1);
  a->SendJoined(0, false);
  EXPECT_EQ(a->WaitForGo(In(milliseconds(30))).code(),
            StatusCode::kDeadlineExceeded);
  b->SendJoined(0, false);
  EXPECT_TRUE(a->WaitForGo(In(seconds(5))).ok());
  EXPECT_TRUE(b->WaitForGo(In(seconds(5))).ok());
}

TEST_F(RankLinkTest, AbortEndsEveryWaitAndIsToldOnce) {
  Expect(0);
  std::atomic<int> aborts = 0;
  std::string why;
  RankLinkCallbacks callbacks;
  callbacks.abort = [&](const std::string& text) {
    why = text;
    ++aborts;
  };
  auto link = *Connect(0, std::move(callbacks));
  daemon_.With([&](RankLinkServer* server) {
    EXPECT_TRUE(server->SendAbort(Key(0), "rank 1 was killed"));
    EXPECT_TRUE(server->SendAbort(Key(0), "and again"));
  });
  const Status got = link->Get("never", In(seconds(5))).status();
  EXPECT_EQ(got.code(), StatusCode::kAborted);
  EXPECT_EQ(Message(got), "rank 1 was killed");
  EXPECT_EQ(link->WaitForGo(In(seconds(5))).code(), StatusCode::kAborted);
  link.reset();
  EXPECT_EQ(aborts, 1);
  EXPECT_EQ(why, "rank 1 was killed");
}

TEST_F(RankLinkTest, DirectivesAndReportsPass) {
  Expect(0);
  std::atomic<uint32_t> directive = 0;
  RankLinkCallbacks callbacks;
  callbacks.directive = [&](const v1::RankDirective& d) { directive = d.id(); };
  auto link = *Connect(0, std::move(callbacks));
  daemon_.With([&](RankLinkServer* server) {
    server->SendDirective(Key(0), 17, v1::RankDirective::CHECKPOINT);
  });
  v1::RankReport report;
  report.set_event("hello");
  link->Report(report);
  EXPECT_TRUE(link->Flush(In(seconds(5))).ok());
  EXPECT_TRUE(daemon_.WaitFor([&] { return daemon_.reports.size() == 1; }));
  EXPECT_TRUE(daemon_.WaitFor([&] { return directive == 17; }));
}

TEST_F(RankLinkTest, WhatMattersIsSaidAgainAfterTheDaemonRestarted) {
  Expect(0);
  std::atomic<int> directives = 0;
  RankLinkCallbacks callbacks;
  callbacks.directive = [&](const v1::RankDirective&) { ++directives; };
  auto link = *Connect(0, std::move(callbacks));
  link->SendJoined(0, false);
  ASSERT_TRUE(link->WaitForGo(In(seconds(5))).ok());
  v1::RankReport report;
  report.set_checkpoint_step(120);
  report.set_checkpoint_path("/out/step-120");
  report.set_reduction_plan("the first");
  link->Report(report);
  report.Clear();
  // More than a sentence is.
  report.set_reduction_plan(std::string(24 << 10, 'p'));
  report.set_artifact_name("model");
  report.set_artifact_path("/out/model");
  link->Report(report);
  ASSERT_TRUE(daemon_.WaitFor([&] { return daemon_.reports.size() == 2; }));

  daemon_.Stop();
  daemon_.reports.clear();
  daemon_.joined.clear();
  report.Clear();
  report.set_event("said while nobody listened");
  link->Report(report);
  daemon_.Start();
  ASSERT_TRUE(daemon_.WaitFor([&] { return daemon_.reports.size() == 3; }));
  daemon_.With([&](RankLinkServer* server) {
    EXPECT_EQ(daemon_.hellos, 2);
    EXPECT_TRUE(daemon_.joined.contains(Key(0)));
    EXPECT_EQ(daemon_.reports[0].second.artifact_name(), "model");
    EXPECT_EQ(daemon_.reports[1].second.checkpoint_step(), 120);
    EXPECT_EQ(daemon_.reports[1].second.reduction_plan(),
              std::string(24 << 10, 'p'));
    EXPECT_EQ(daemon_.reports[2].second.event(), "said while nobody listened");
    server->SendDirective(Key(0), 1, v1::RankDirective::STOP);
  });
  EXPECT_TRUE(daemon_.WaitFor([&] { return directives >= 1; }));
}

TEST_F(RankLinkTest, GoAndDirectiveAreSentAgainToARankThatComesBack) {
  Expect(0);
  std::atomic<int> directives = 0;
  RankLinkCallbacks callbacks;
  callbacks.directive = [&](const v1::RankDirective&) { ++directives; };
  daemon_.With([&](RankLinkServer* server) {
    // Not connected yet: kept.
    EXPECT_TRUE(server->SendGo(Key(0)));
    EXPECT_TRUE(
        server->SendDirective(Key(0), 4, v1::RankDirective::CHECKPOINT));
    EXPECT_FALSE(server->SendGo(Key(5)));
  });
  auto link = *Connect(0, std::move(callbacks));
  EXPECT_TRUE(link->WaitForGo(In(seconds(5))).ok());
  EXPECT_TRUE(daemon_.WaitFor([&] { return directives == 1; }));
}

TEST_F(RankLinkTest, ARecoveryBeginsTheRendezvousAnew) {
  Expect(0);
  std::atomic<uint32_t> told = 0;
  RankLinkCallbacks callbacks;
  callbacks.recover = [&](const v1::RankWelcome& welcome) {
    told = welcome.recovery();
  };
  auto link = *Connect(0, std::move(callbacks));
  EXPECT_EQ(link->welcome().recovery(), 0u);
  ASSERT_TRUE(link->Put("addr/0", "old").ok());
  link->SendJoined(0, true);
  EXPECT_EQ(link->WaitForRecovery(0, In(milliseconds(20))).status().code(),
            StatusCode::kDeadlineExceeded);
  // A wait that the recovery ends.
  std::thread waiter([&] {
    EXPECT_EQ(link->Get("never", In(seconds(20))).status().code(),
              StatusCode::kAborted);
  });
  Expect(0, 2);
  waiter.join();
  EXPECT_TRUE(daemon_.WaitFor([&] { return told == 2; }));
  EXPECT_EQ(link->welcome().recovery(), 2u);
  // Until it is taken, the rank forms what no rank forms any more.
  EXPECT_EQ(link->Put("addr/0", "late").code(), StatusCode::kAborted);
  EXPECT_EQ(link->Get("addr/1", In(seconds(20))).status().code(),
            StatusCode::kAborted);
  EXPECT_EQ(*link->WaitForRecovery(0, In(seconds(5))), 2u);
  EXPECT_TRUE(link->Put("addr/0", "new").ok());
  // The same recovery does not come twice.
  EXPECT_EQ(link->WaitForRecovery(2, In(milliseconds(20))).status().code(),
            StatusCode::kDeadlineExceeded);
  daemon_.With([&](RankLinkServer* server) {
    server->SendAbort(Key(0), "that was all");
  });
  EXPECT_EQ(link->WaitForRecovery(2, In(seconds(5))).status().code(),
            StatusCode::kAborted);
}

TEST_F(RankLinkTest, TheNewestRecoveryIsJoinedAgainAfterAReconnect) {
  Expect(0);
  daemon_.With([&](RankLinkServer* server) { server->SendGo(Key(0)); });
  auto link = *Connect(0);
  v1::RankReport report;
  report.set_parked(2);
  report.add_lost_peers(1);
  link->Report(report);
  report.set_parked(1);
  report.clear_lost_peers();
  link->Report(report);
  Expect(0, 2);
  ASSERT_EQ(*link->WaitForRecovery(0, In(seconds(5))), 2u);
  ASSERT_TRUE(link->Put("plan/0", "text").ok());
  // Of an older one: not sent.
  link->SendJoined(1, true);
  ASSERT_TRUE(daemon_.WaitFor([&] { return daemon_.reports.size() >= 1; }));
  daemon_.With([&](RankLinkServer*) { daemon_.joined_as.clear(); });
  daemon_.Stop();
  daemon_.reports.clear();
  daemon_.Start();
  ASSERT_TRUE(daemon_.WaitFor([&] { return daemon_.reports.size() == 1; }));
  EXPECT_EQ(daemon_.reports[0].second.parked(), 2u);
  EXPECT_EQ(daemon_.reports[0].second.lost_peers_size(), 1);
  // What was put for the recovery is put again, whatever Go the daemon repeats.
  EXPECT_EQ(*link->Get("plan/0", In(seconds(5))), "text");
  EXPECT_TRUE(daemon_.joined_as.empty());
  link->SendJoined(2, true);
  ASSERT_TRUE(daemon_.WaitFor([&] { return daemon_.joined_as.size() == 1; }));
  daemon_.Stop();
  daemon_.joined_as.clear();
  daemon_.Start();
  ASSERT_TRUE(daemon_.WaitFor([&] { return daemon_.joined_as.size() == 1; }));
  EXPECT_EQ(daemon_.joined_as[Key(0)], std::make_pair(2u, true));
}

TEST_F(RankLinkTest, AForgottenRankIsRefusedWhenItComesBack) {
  Expect(0);
  std::atomic<int> aborts = 0;
  RankLinkCallbacks callbacks;
  callbacks.abort = [&](const std::string&) { ++aborts; };
  auto link = *Connect(0, std::move(callbacks));
  daemon_.With([&](RankLinkServer* server) { server->Forget(Key(0)); });
  EXPECT_TRUE(daemon_.WaitFor([&] { return aborts == 1; }));
  EXPECT_EQ(link->Get("k", In(seconds(5))).status().code(),
            StatusCode::kPermissionDenied);
}

TEST_F(RankLinkTest, ABadPacketEndsThatConnectionOnly) {
  Expect(0);
  auto link = *Connect(0);
  v1::DaemonMessage message;
  for (const std::string& bad : {std::string("\xff\xff\xff garbage"),
                                 std::string("\0", 1), std::string()}) {
    Fd raw = Raw();
    ASSERT_EQ(SendPacket(raw.get(), bad), PacketResult::kDone);
    EXPECT_EQ(Next(raw, &message), PacketResult::kClosed);
  }
  // Longer than allowed: not by SendPacket, which refuses.
  Fd raw = Raw();
  const std::string big(kMaxPacketBytes + 1, 'x');
  EXPECT_EQ(SendPacket(raw.get(), big), PacketResult::kOversized);
  ASSERT_EQ(::send(raw.get(), big.data(), big.size(), 0),
            static_cast<ssize_t>(big.size()));
  EXPECT_EQ(Next(raw, &message), PacketResult::kClosed);
  // Anything before Hello.
  raw = Raw();
  v1::RankMessage early;
  early.mutable_joined();
  SendPacket(raw.get(), early.SerializeAsString());
  EXPECT_EQ(Next(raw, &message), PacketResult::kClosed);

  EXPECT_TRUE(link->Put("still", "works").ok());
  EXPECT_EQ(*link->Get("still", In(seconds(5))), "works");
}

TEST_F(RankLinkTest, AMalformedPacketAfterHelloIsADisconnect) {
  Expect(0);
  Fd raw = Raw();
  SendPacket(raw.get(), Hello(Key(0), "nonce-0"));
  v1::DaemonMessage message;
  ASSERT_EQ(Next(raw, &message), PacketResult::kDone);
  EXPECT_TRUE(message.has_welcome());
  v1::RankMessage put;
  put.mutable_put()->set_key(std::string(kMaxRendezvousKey + 1, 'k'));
  SendPacket(raw.get(), put.SerializeAsString());
  EXPECT_EQ(Next(raw, &message), PacketResult::kClosed);
  EXPECT_TRUE(daemon_.WaitFor([&] { return daemon_.disconnects == 1; }));
}

TEST_F(RankLinkTest, TheNewestConnectionOfARankCounts) {
  Expect(0);
  Fd first = Raw();
  SendPacket(first.get(), Hello(Key(0), "nonce-0"));
  v1::DaemonMessage message;
  ASSERT_EQ(Next(first, &message), PacketResult::kDone);
  Fd second = Raw();
  SendPacket(second.get(), Hello(Key(0), "nonce-0"));
  ASSERT_EQ(Next(second, &message), PacketResult::kDone);
  EXPECT_TRUE(message.has_welcome());
  EXPECT_EQ(Next(first, &message), PacketResult::kClosed);
  daemon_.With([&](RankLinkServer* server) {
    EXPECT_TRUE(server->connected(Key(0)));
    EXPECT_EQ(daemon_.disconnects, 0);
  });
}

TEST_F(RankLinkTest, ARankThatDoesNotReadIsCutOff) {
  Expect(0);
  Fd raw = Raw();
  SendPacket(raw.get(), Hello(Key(0), "nonce-0"));
  v1::DaemonMessage message;
  ASSERT_EQ(Next(raw, &message), PacketResult::kDone);
  const std::string value(kMaxRendezvousValue, 'v');
  daemon_.With([&](RankLinkServer* server) {
    for (int i = 0; i < 400 && server->connected(Key(0)); ++i) {
      server->SendValue(Key(0), "k", value);
    }
    EXPECT_FALSE(server->connected(Key(0)));
    EXPECT_EQ(daemon_.disconnects, 0);  // Told by Dispatch only.
  });
  EXPECT_TRUE(daemon_.WaitFor([&] { return daemon_.disconnects == 1; }));
}

TEST_F(RankLinkTest, AnyBytesMayBeReported) {
  Expect(0);
  auto link = *Connect(0);
  v1::RankReport report;
  report.set_failure("reading /x\xff: " + std::string(kMaxPacketBytes, 'x'));
  link->Report(report);
  EXPECT_TRUE(daemon_.WaitFor([&] { return daemon_.reports.size() == 1; }));
  daemon_.With([&](RankLinkServer*) {
    EXPECT_EQ(daemon_.reports[0].second.failure().substr(0, 14),
              "reading /x?: x");
    EXPECT_EQ(daemon_.reports[0].second.failure().size(), kMaxSentence);
  });
}

TEST(CleanTextTest, KeepsCharactersWholeAndReplacesTheRest) {
  EXPECT_EQ(CleanText("Z\u00fcrich \u4e2d \U0001f600"),
            "Z\u00fcrich \u4e2d \U0001f600");
  EXPECT_EQ(CleanText("a\xc3"), "a?");
  EXPECT_EQ(CleanText("\xed\xa0\x80"), "???");  // A surrogate.
  EXPECT_EQ(CleanText("\xc0\x80\xf8"), "???");
  EXPECT_EQ(CleanText("ab\u00fc", 3), "ab");
  EXPECT_EQ(CleanText("ab\u00fc", 4), "ab\u00fc");
}

TEST(PacketTest, ALongPathIsRefusedWithASentence) {
  const std::string path = "/tmp/" + std::string(kMaxSocketPath, 'x');
  EXPECT_EQ(ListenPackets(path).status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(ListenPackets(path).status()), HasSubstr("107"));
}

TEST(PacketTest, ALiveSocketIsNotTakenButADeadOneIs) {
  TempDir dir;
  const std::string path = dir.path() + "/s";
  StatusOr<Fd> first = ListenPackets(path);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(ListenPackets(path).status().code(), StatusCode::kAlreadyExists);
  first->Reset();
  EXPECT_TRUE(ListenPackets(path).ok());
}

class EnvironmentTest : public ::testing::Test {
 protected:
  EnvironmentTest() {
    fd_ = ::memfd_create("nonce", 0);
    EXPECT_EQ(::write(fd_, "secret", 6), 6);
    ::setenv(kLinkVariable, "/run/l", 1);
    ::setenv(kJobVariable, "mnist", 1);
    ::setenv(kGenerationVariable, "3", 1);
    ::setenv(kRankVariable, "1", 1);
    ::setenv(kNonceFdVariable, std::to_string(fd_).c_str(), 1);
  }
  ~EnvironmentTest() override {
    for (const char* name : {kLinkVariable, kJobVariable, kGenerationVariable,
                             kRankVariable, kNonceFdVariable}) {
      ::unsetenv(name);
    }
  }
  int fd_;
};

TEST_F(EnvironmentTest, SaysWhoTheRankIs) {
  auto identity = RankIdentityFromEnvironment();
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ((*identity)->key, (RankKey{"mnist", 3, 1}));
  EXPECT_EQ((*identity)->path, "/run/l");
  EXPECT_EQ((*identity)->nonce, "secret");
}

TEST_F(EnvironmentTest, IsNoRankWithoutALink) {
  ::unsetenv(kLinkVariable);
  auto identity = RankIdentityFromEnvironment();
  ASSERT_TRUE(identity.ok());
  EXPECT_FALSE(identity->has_value());
  ::close(fd_);
}

TEST_F(EnvironmentTest, NamesTheVariableThatIsWrong) {
  ::setenv(kRankVariable, "-1", 1);
  EXPECT_THAT(Message(RankIdentityFromEnvironment().status()),
              HasSubstr(kRankVariable));
  ::setenv(kRankVariable, "1", 1);
  ::setenv(kGenerationVariable, "3x", 1);
  EXPECT_THAT(Message(RankIdentityFromEnvironment().status()),
              HasSubstr(kGenerationVariable));
  ::setenv(kGenerationVariable, "3", 1);
  ::unsetenv(kJobVariable);
  EXPECT_THAT(Message(RankIdentityFromEnvironment().status()),
              HasSubstr(kJobVariable));
  ::close(fd_);
}

}  // namespace
}  // namespace lockstep::worker::rank_link
