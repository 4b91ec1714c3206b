// How many TCP connections large clusters have, counted by the plans that
// ranks follow: docs/scale.md's table.
#include <gtest/gtest.h>

#include <vector>

#include "worker/collective/hierarchical/host_layout.h"
#include "worker/collective/tcp/plan.h"

namespace lockstep::worker::collective::hierarchical {
namespace {

struct Connections {
  size_t most = 0;  // Of a rank.
  size_t all = 0;   // Each is two ranks'.
};

// Peers of `ranks` ranks, one on each host.
Connections Flat(int ranks) {
  const tcp::Plan plan = tcp::MakePlan(ranks, tcp::HostSharing::kNone);
  Connections count;
  for (int rank = 0; rank < ranks; ++rank) {
    const size_t peers = tcp::PeersOf(rank, ranks, plan).size();
    count.most = std::max(count.most, peers);
    count.all += peers;
  }
  EXPECT_EQ(count.all % 2, 0u);
  count.all /= 2;
  return count;
}

// Of hosts with `local` ranks each: those of one place meet between the hosts.
Connections Hierarchical(int hosts, int local) {
  std::vector<int> host_of;
  for (int rank = 0; rank < hosts * local; ++rank) {
    host_of.push_back(rank / local);
  }
  const auto layout = LayOutHosts(host_of);
  EXPECT_TRUE(layout.ok());
  const tcp::Plan plan = tcp::MakePlan(hosts, tcp::HostSharing::kNone);
  Connections count;
  for (int rank = 0; rank < layout->size(); ++rank) {
    const std::vector<int> across = layout->Across(rank);
    EXPECT_EQ(static_cast<int>(across.size()), hosts);
    const size_t peers = tcp::PeersOf(layout->host[rank], hosts, plan).size();
    count.most = std::max(count.most, peers);
    count.all += peers;
  }
  count.all /= 2;
  return count;
}

TEST(ConnectionsTest, OneRankAHost) {
  // Up to 16 everybody knows everybody.
  EXPECT_EQ(Flat(8).most, 7u);
  EXPECT_EQ(Flat(8).all, 28u);
  EXPECT_EQ(Flat(64).most, 7u);
  EXPECT_EQ(Flat(64).all, 224u);
  EXPECT_EQ(Flat(512).most, 10u);
  EXPECT_EQ(Flat(512).all, 2560u);
  EXPECT_EQ(Flat(4096).most, 13u);
  EXPECT_EQ(Flat(4096).all, 26624u);
  // Not a power of two.
  EXPECT_LE(Flat(500).most, 11u);
}

TEST(ConnectionsTest, EightRanksAHost) {
  EXPECT_EQ(Hierarchical(64, 8).most, 7u);
  EXPECT_EQ(Hierarchical(64, 8).all, 1792u);
  EXPECT_EQ(Hierarchical(512, 8).most, 10u);
  EXPECT_EQ(Hierarchical(512, 8).all, 20480u);
}

}  // namespace
}  // namespace lockstep::worker::collective::hierarchical
