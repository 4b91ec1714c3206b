#include "server/service/session_desk.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace lockstep::server {
namespace {

using Ticket = std::unique_ptr<SessionDesk::Ticket>;

class SessionDeskTest : public testing::Test {
 protected:
  SessionDeskTest() : desk_({std::chrono::seconds(10), 2, 3, 4}) {
    for (const char* node : {"a", "b"}) {
      connections_.push_back(desk_.Connect(
          node,
          [this](const SessionOrder& order) { orders_.push_back(order); }));
    }
  }

  StatusOr<Ticket> Open(const std::string& user, const std::string& job,
                        const std::string& node) {
    SessionOrder order;
    order.generation = 1;
    order.request.name = job;
    order.request.port = PortSession{80};
    return desk_.Open(order, {user, job, node}, nullptr);
  }
  static std::string ReasonAfter(const StatusOr<Ticket>& ticket) {
    return ticket.ok() ? "" : ReasonOf(ticket.status());
  }
  uint64_t Ended(SessionResult result) const {
    return desk_.Counts().ended[static_cast<size_t>(SessionKind::kPort)]
                               [static_cast<size_t>(result)];
  }

  SessionDesk desk_;
  std::vector<SessionOrder> orders_;
  std::vector<SessionDesk::Connection> connections_;
};

TEST_F(SessionDeskTest, EachOrderHasAnIdOfItsOwn) {
  const auto one = Open("ann", "j", "a");
  const auto two = Open("ann", "j", "a");
  ASSERT_TRUE(one.ok() && two.ok());
  ASSERT_EQ(orders_.size(), 2u);
  EXPECT_NE(orders_[0].id, 0u);
  EXPECT_NE(orders_[0].id, orders_[1].id);
  EXPECT_EQ(desk_.Counts().open[static_cast<size_t>(SessionKind::kPort)], 2);
}

TEST_F(SessionDeskTest, LimitsAreOfTheJobTheUserAndTheNode) {
  std::vector<Ticket> held;
  const auto open = [&](const char* user, const char* job, const char* node) {
    auto ticket = Open(user, job, node);
    const std::string reason = ReasonAfter(ticket);
    if (ticket.ok()) held.push_back(*std::move(ticket));
    return reason;
  };
  EXPECT_EQ(open("ann", "j", "a"), "");
  EXPECT_EQ(open("ann", "j", "a"), "");
  EXPECT_EQ(open("adam", "j", "b"), "TOO_MANY_SESSIONS");  // Of the job.
  EXPECT_EQ(open("ann", "k", "a"), "");
  EXPECT_EQ(open("ann", "l", "b"), "TOO_MANY_SESSIONS");  // Of the user.
  EXPECT_EQ(open("adam", "l", "a"), "");
  EXPECT_EQ(open("adam", "m", "a"), "TOO_MANY_SESSIONS");  // Of the node.
  EXPECT_EQ(open("adam", "m", "b"), "");
  // An end gives its place back, and says how.
  held.front()->SetResult(SessionResult::kEnded);
  held.erase(held.begin());
  EXPECT_EQ(Ended(SessionResult::kEnded), 1u);
  EXPECT_EQ(open("adam", "j", "a"), "");
}

TEST_F(SessionDeskTest, ASilentNodeIsSaid) {
  EXPECT_EQ(ReasonAfter(Open("ann", "j", "c")), "NODE_SILENT");
  desk_.Disconnect(connections_[0]);
  EXPECT_EQ(ReasonAfter(Open("ann", "j", "a")), "NODE_SILENT");
  EXPECT_TRUE(Open("ann", "j", "b").ok());
  // A later stream of the node counts, whenever the older one ends.
  const auto later = desk_.Connect("b", [](const SessionOrder&) {});
  desk_.Disconnect(connections_[1]);
  EXPECT_TRUE(Open("ann", "j", "b").ok());
  desk_.Disconnect(later);
  EXPECT_FALSE(Open("ann", "j", "b").ok());
}

TEST_F(SessionDeskTest, ANodeTakesItsOwnSessionsOnly) {
  const auto ticket = Open("ann", "j", "a");
  ASSERT_TRUE(ticket.ok());
  pki::Identity other;
  other.kind = pki::Identity::Kind::kWorker;
  other.name = "b";
  EXPECT_EQ(desk_.Take(orders_[0].id, other).status().code(),
            StatusCode::kPermissionDenied);
  other.name = "a";
  // Its client is gone: there is no splice.
  EXPECT_EQ(desk_.Take(orders_[0].id, other).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(desk_.Take(12345, other).status().code(), StatusCode::kNotFound);
}

TEST_F(SessionDeskTest, FiguresHaveEveryKindAndResult) {
  desk_.CountRefused(SessionKind::kTerminal);
  const auto figures = desk_.Figures();
  ASSERT_EQ(figures.size(), kSessionKinds);
  EXPECT_EQ(figures[1].kind, "terminal");
  ASSERT_EQ(figures[1].ended.size(), kSessionResults);
  EXPECT_EQ(figures[1].ended[2],
            (std::pair<std::string, uint64_t>("refused", 1)));
}

}  // namespace
}  // namespace lockstep::server
