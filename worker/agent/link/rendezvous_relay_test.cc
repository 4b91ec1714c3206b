#include "worker/agent/link/rendezvous_relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::worker::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class RendezvousRelayTest : public testing::Test {
 protected:
  static std::string Text(const v1::WorkerMessage& message) {
    if (message.has_rendezvous_put()) {
      return "put " + message.rendezvous_put().key() + "=" +
             message.rendezvous_put().value();
    }
    return "get " + message.rendezvous_get().key();
  }
  const RankRef first_{{"job", 1}, 0};
  const RankRef second_{{"job", 1}, 1};
  std::vector<std::string> sent_;
  std::vector<std::string> delivered_;
  RendezvousRelay relay_{[this](const v1::WorkerMessage& message) {
                           sent_.push_back(Text(message));
                         },
                         [this](const RankRef& ref, const std::string& name,
                                const std::string& value) {
                           delivered_.push_back(std::to_string(ref.rank) + " " +
                                                name + "=" + value);
                         }};
};

TEST_F(RendezvousRelayTest, TheFirstValueOfANameCounts) {
  relay_.Put(first_, "a", "1");
  relay_.Put(first_, "a", "2");
  EXPECT_THAT(sent_, ElementsAre("put a=1", "put a=1"));
}

TEST_F(RendezvousRelayTest, AValueReachesAllRanksThatWait) {
  relay_.Get(first_, "a");
  relay_.Get(second_, "a");
  EXPECT_THAT(delivered_, IsEmpty());
  relay_.OnValue({"job", 1, "a", "x"});
  EXPECT_THAT(delivered_, ElementsAre("0 a=x", "1 a=x"));
  // It is known now: the coordinator is not asked again.
  sent_.clear();
  relay_.Get(first_, "a");
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_EQ(delivered_.size(), 3u);
}

TEST_F(RendezvousRelayTest, ANewCoordinatorGetsAllThatCounts) {
  relay_.Put(first_, "a", "1");
  relay_.Get(second_, "b");
  relay_.Get(second_, "c");
  relay_.OnValue({"job", 1, "c", "x"});
  sent_.clear();
  relay_.SendAll();
  EXPECT_THAT(sent_, ElementsAre("put a=1", "get b"));
  sent_.clear();
  relay_.Forget({"job", 1});
  relay_.SendAll();
  EXPECT_THAT(sent_, IsEmpty());
}

TEST_F(RendezvousRelayTest, ARecoveryDropsWhatWasSaidBefore) {
  const GangKey key{"job", 1};
  relay_.Put(first_, "a", "1");
  relay_.Put(first_, "recovery/1/a", "1");
  relay_.Put(first_, "recovery/2/a", "1");
  relay_.Get(first_, "b");
  relay_.Get(first_, "recovery/10/b");
  relay_.OnValue({"job", 1, "recovery/2/c", "x"});
  relay_.OnValue({"job", 1, "recovery/1/c", "x"});
  sent_.clear();
  relay_.Raise(key, 2);
  relay_.Raise(key, 1);
  relay_.SendAll();
  EXPECT_THAT(sent_, ElementsAre("put recovery/2/a=1", "get recovery/10/b"));
  sent_.clear();
  // Of a rank that does not know yet.
  relay_.Put(first_, "recovery/1/d", "1");
  relay_.Put(first_, "d", "1");
  relay_.Get(first_, "recovery/1/c");
  relay_.OnValue({"job", 1, "recovery/1/c", "x"});
  EXPECT_THAT(sent_, IsEmpty());
  EXPECT_THAT(delivered_, IsEmpty());
  relay_.Get(first_, "recovery/2/c");
  EXPECT_THAT(delivered_, ElementsAre("0 recovery/2/c=x"));
}

TEST_F(RendezvousRelayTest, WhatTheCoordinatorWouldRefuseIsNotSent) {
  relay_.Put(first_, "", "1");
  relay_.Put(first_, "a\x01", "1");
  relay_.Put(first_, "big", std::string(kMaxWireValue + 1, 'x'));
  relay_.Get(first_, "");
  EXPECT_THAT(sent_, IsEmpty());
}

}  // namespace
}  // namespace lockstep::worker::agent
