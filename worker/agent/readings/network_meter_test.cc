#include "worker/agent/readings/network_meter.h"

#include <gtest/gtest.h>

namespace lockstep::worker::agent {
namespace {

TcpSocket Socket(uint64_t inode, uint64_t cookie, uint64_t sent,
                 uint64_t received) {
  return {.inode = inode,
          .cookie = cookie,
          .sent_bytes = sent,
          .received_bytes = received};
}

TEST(NetworkMeterTest, OnlyTheRanksOwnSocketsCount) {
  NetworkMeter meter;
  meter.TakeSockets({1, 2, 9},
                    SocketTable({Socket(1, 11, 100, 5), Socket(2, 12, 20, 7),
                                 Socket(3, 13, 4000, 4000)}));
  EXPECT_EQ(meter.total(), (NetworkBytes{120, 12}));
}

TEST(NetworkMeterTest, WhatAClosedSocketHadStays) {
  NetworkMeter meter;
  meter.TakeSockets({1}, SocketTable({Socket(1, 11, 100, 5)}));
  meter.TakeSockets({}, SocketTable({}));
  EXPECT_EQ(meter.total(), (NetworkBytes{100, 5}));
  // The kernel gives its inode to another socket.
  meter.TakeSockets({1}, SocketTable({Socket(1, 12, 30, 1)}));
  EXPECT_EQ(meter.total(), (NetworkBytes{130, 6}));
}

TEST(NetworkMeterTest, AClosedSocketCountsUntilItHasSentAll) {
  NetworkMeter meter;
  meter.TakeSockets({1}, SocketTable({Socket(1, 11, 100, 5)}));
  meter.TakeSockets({}, SocketTable({Socket(0, 11, 180, 5)}));
  EXPECT_EQ(meter.total(), (NetworkBytes{180, 5}));
  meter.TakeSockets({}, SocketTable({}));
  EXPECT_EQ(meter.total(), (NetworkBytes{180, 5}));
}

TEST(NetworkMeterTest, ANamespaceOfItsOwnIsAdded) {
  NetworkMeter meter;
  meter.TakeSockets({1}, SocketTable({Socket(1, 11, 1, 2)}));
  meter.TakeNamespace(77, {1000, 2000});
  meter.TakeNamespace(77, {1500, 2500});
  EXPECT_EQ(meter.total(), (NetworkBytes{1501, 2502}));
}

TEST(NetworkMeterTest, AfterARestartOfTheDaemonItGoesOn) {
  NetworkMeter meter;
  meter.Adopt({100, 50});
  EXPECT_EQ(meter.total(), (NetworkBytes{100, 50}));
  meter.TakeSockets({1}, SocketTable({Socket(1, 11, 90, 40)}));
  EXPECT_EQ(meter.total(), (NetworkBytes{100, 50})) << "never less";
  meter.TakeSockets({1}, SocketTable({Socket(1, 11, 400, 60)}));
  EXPECT_EQ(meter.total(), (NetworkBytes{400, 60})) << "not counted twice";
}

}  // namespace
}  // namespace lockstep::worker::agent
