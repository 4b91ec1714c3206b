#include "worker/runtime/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::worker::runtime {
namespace {

using ::testing::ElementsAre;
using Ranks = std::vector<int>;

TEST(MembershipTest, EachRankHasItsShardWhereNoneIsAway) {
  const Membership all = MembersWithout(Ranks{}, 3, 2);
  EXPECT_TRUE(all.complete());
  EXPECT_EQ(all.place, 2);
  EXPECT_THAT(all.members, ElementsAre(0, 1, 2));
  EXPECT_THAT(all.own_shards(), ElementsAre(2));
  EXPECT_EQ(all.rounds(), 1);
}

TEST(MembershipTest, MembersTakeTheShardsOfOthersInTurn) {
  const Membership some = MembersWithout(Ranks{0, 3, 4}, 6, 2);
  EXPECT_FALSE(some.complete());
  EXPECT_THAT(some.members, ElementsAre(1, 2, 5));
  EXPECT_EQ(some.place, 1);
  EXPECT_THAT(some.shards, ElementsAre(ElementsAre(1, 0), ElementsAre(2, 3),
                                       ElementsAre(5, 4)));
  EXPECT_EQ(some.rounds(), 2);
  const Membership few = MembersWithout(Ranks{0, 1, 2}, 5, 4);
  EXPECT_THAT(few.shards, ElementsAre(ElementsAre(3, 0, 2), ElementsAre(4, 1)));
  EXPECT_EQ(few.rounds(), 3);
}

TEST(MembershipTest, AMemberHasAPlaceAndAnAwayRankHasNone) {
  EXPECT_EQ(MembersWithout(Ranks{1}, 2, 1).place, -1);
  EXPECT_TRUE(MembersWithout(Ranks{1}, 2, 1).own_shards().empty());
  EXPECT_EQ(MembersWithout(Ranks{1}, 2, 0).place, 0);
  EXPECT_THAT(MembersWithout(Ranks{1}, 4, 0).RanksAt(Ranks{2, 0, 3, -1}),
              ElementsAre(3, 0));
}

TEST(MembershipTest, AReturnLosesNoMember) {
  const Membership small = MembersWithout(Ranks{1, 2}, 4, 0);
  EXPECT_TRUE(IsReturn(small, MembersWithout(Ranks{1}, 4, 0)));
  EXPECT_TRUE(IsReturn(small, MembersWithout(Ranks{}, 4, 0)));
  EXPECT_FALSE(IsReturn(small, small));
  EXPECT_FALSE(IsReturn(small, MembersWithout(Ranks{3}, 4, 0)));
  EXPECT_FALSE(IsReturn(small, MembersWithout(Ranks{1, 2, 3}, 4, 0)));
}

}  // namespace
}  // namespace lockstep::worker::runtime
