#include "sdk/mpi/store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <string>
#include <thread>

#include "common/base/fd.h"

namespace lockstep::mpi {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr auto kLimit = seconds(20);

Deadline In(std::chrono::nanoseconds time) {
  return steady_clock::now() + time;
}

std::string FreePort() {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(bind(fd.get(), any, size), 0);
  EXPECT_EQ(getsockname(fd.get(), any, &size), 0);
  return std::to_string(ntohs(address.sin_port));
}

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    place_ = {.rank = 0,
              .size = 2,
              .host = "127.0.0.1",
              .port = FreePort(),
              .bind_address = "",
              .job = "job/1"};
  }

  void Serve() {
    ASSERT_EQ(ServeStore(place_, &served_, &error_), LOCKSTEP_OK)
        << error_.message;
  }
  void Reach() {
    ASSERT_EQ(ReachStore(place_, In(kLimit), &reached_, &error_), LOCKSTEP_OK)
        << error_.message;
  }
  void Start() {
    Serve();
    Reach();
  }

  Place place_;
  lockstep_error error_{};
  std::string value_;
  std::unique_ptr<Store> served_;
  std::unique_ptr<Store> reached_;
};

TEST_F(StoreTest, WhatOneRankWritesTheOtherReads) {
  Start();
  const std::string bytes("\0binary\xff", 8);
  ASSERT_EQ(served_->Put("a", bytes, &error_), LOCKSTEP_OK);
  ASSERT_EQ(reached_->Get("a", In(kLimit), &value_, &error_), LOCKSTEP_OK);
  EXPECT_EQ(value_, bytes);
  ASSERT_EQ(reached_->Put("b", "", &error_), LOCKSTEP_OK);
  ASSERT_EQ(served_->Get("b", In(kLimit), &value_, &error_), LOCKSTEP_OK);
  EXPECT_EQ(value_, "");
}

TEST_F(StoreTest, AGetWaitsForItsKey) {
  Start();
  std::string got;
  lockstep_error error{};
  int32_t code = -1;
  std::thread reader(
      [&] { code = reached_->Get("late", In(kLimit), &got, &error); });
  // The same, where the reader comes second.
  ASSERT_EQ(reached_->Put("late", "x", &error_), LOCKSTEP_OK);
  reader.join();
  EXPECT_EQ(code, LOCKSTEP_OK) << error.message;
  EXPECT_EQ(got, "x");
}

TEST_F(StoreTest, AGetEndsWithItsDeadline) {
  Start();
  EXPECT_EQ(reached_->Get("never", In(milliseconds(30)), &value_, &error_),
            LOCKSTEP_DEADLINE_EXCEEDED);
  EXPECT_STREQ(error_.message, "no rank wrote the key never in time");
  EXPECT_EQ(served_->Get("never", In(milliseconds(1)), &value_, &error_),
            LOCKSTEP_DEADLINE_EXCEEDED);
}

TEST_F(StoreTest, AKeyIsWrittenOnce) {
  Start();
  ASSERT_EQ(reached_->Put("a", "1", &error_), LOCKSTEP_OK);
  EXPECT_EQ(reached_->Put("a", "2", &error_), LOCKSTEP_ALREADY_EXISTS);
  EXPECT_STREQ(error_.message, "the key a has been written before");
  ASSERT_EQ(served_->Get("a", In(kLimit), &value_, &error_), LOCKSTEP_OK);
  EXPECT_EQ(value_, "1");
}

TEST_F(StoreTest, ARankMayComeBeforeRank0) {
  std::thread rank([&] { Reach(); });
  Serve();
  rank.join();
}

TEST_F(StoreTest, WithoutRank0TheErrorSaysWhere) {
  EXPECT_EQ(ReachStore(place_, In(milliseconds(50)), &reached_, &error_),
            LOCKSTEP_UNAVAILABLE);
  const std::string wanted =
      "rank 0 is not reached at 127.0.0.1 port " + place_.port;
  EXPECT_TRUE(std::string(error_.message).starts_with(wanted))
      << error_.message;
}

TEST_F(StoreTest, RanksOfAnotherJobAreRefused) {
  Serve();
  place_.job = "other/1";
  EXPECT_EQ(ReachStore(place_, In(kLimit), &reached_, &error_),
            LOCKSTEP_FAILED_PRECONDITION);
  EXPECT_STREQ(error_.message,
               "rank 0 is of \"job/1\", and this rank of \"other/1\"");
}

TEST_F(StoreTest, APortInUseIsNamed) {
  Serve();
  EXPECT_EQ(ServeStore(place_, &reached_, &error_), LOCKSTEP_UNAVAILABLE);
  const std::string wanted =
      "rank 0 cannot listen at MASTER_ADDR 127.0.0.1, MASTER_PORT " +
      place_.port + ": Address already in use";
  EXPECT_EQ(error_.message, wanted);
}

// Of strangers: no answer, and the store goes on.
TEST_F(StoreTest, OtherBytesAreNotAnswered) {
  Start();
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n0123456789"),
        std::string("tepmpi01") + std::string(56, '\xff'), std::string()}) {
    const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(place_.port)));
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address),
                      sizeof(address)),
              0);
    ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    shutdown(fd.get(), SHUT_WR);
    char answer[64];
    EXPECT_LE(recv(fd.get(), answer, sizeof(answer), 0), 0);
  }
  EXPECT_EQ(reached_->Put("after", "1", &error_), LOCKSTEP_OK);
}

}  // namespace
}  // namespace lockstep::mpi
