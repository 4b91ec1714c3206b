#include "client/cli/top_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "client/cli/top_test_util.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TopView Pressed(const TopState& state, const std::string& keys,
                TopView view = {}) {
  for (const char key : keys) {
    RenderTop(state, &view, 100, 20, kTopNow, Style{});
    EXPECT_TRUE(PressTopKey({Key::kChar, key}, 20, &view));
  }
  return view;
}

TEST(TopKeysTest, AFilterIsTyped) {
  v1::Job other = Training("bert", 1, 1);
  other.set_owner("user/bob");
  const TopState state =
      StateOf({Training("fashion", 1, 1), other}, {Host("a")});
  TopView view = Pressed(state, "/BOx\x7fq");
  EXPECT_TRUE(view.typing);
  EXPECT_EQ(view.filter, "BOq");
  view = Pressed(state, "\x7f\r", view);
  const std::string text =
      JoinedLines(RenderTop(state, &view, 100, 20, kTopNow, Style{}));
  EXPECT_THAT(text, HasSubstr("bert"));
  EXPECT_THAT(text, Not(HasSubstr("fashion  ann")));
  EXPECT_THAT(text, HasSubstr("/ filter: BO"));
  EXPECT_FALSE(PressTopKey({Key::kChar, 'q'}, 20, &view));
  view = Pressed(state, "/\x15zzz\r", view);
  EXPECT_EQ(view.filter, "zzz");
  RenderTop(state, &view, 100, 20, kTopNow, Style{});
  EXPECT_EQ(view.selected_job, "");
}

TEST(TopKeysTest, EnterShowsTheRanksOfTheMarkedJob) {
  const std::vector<v1::Job> jobs = {Training("a", 1, 1), Training("b", 1, 1)};
  TopState state = StateOf(jobs, {});
  TopView view;
  view.sort = 1;
  RenderTop(state, &view, 100, 20, kTopNow, Style{});
  EXPECT_EQ(view.selected_job, "a");
  PressTopKey({Key::kDown, 0}, 20, &view);
  view = Pressed(state, "\r", view);
  EXPECT_EQ(view.screen, TopScreen::kRanks);
  EXPECT_EQ(view.job, "b");
  EXPECT_THAT(JoinedLines(RenderTop(state, &view, 100, 20, kTopNow, Style{})),
              HasSubstr("no answer about it yet"));
  v1::Job focus = jobs[1];
  v1::TaskStatus* const task = focus.add_tasks();
  task->set_type(v1::TASK_TYPE_WORKER);
  task->set_node("host-7");
  v1::RankStatus* const rank = task->add_ranks();
  rank->set_rank(5);
  rank->set_state(v1::RANK_STATE_JOINED);
  state.Take({kTopNow, jobs, {}, focus});
  const std::string text =
      JoinedLines(RenderTop(state, &view, 100, 20, kTopNow, Style{}));
  EXPECT_THAT(text, HasSubstr("host-7"));
  EXPECT_THAT(text, HasSubstr("ranks of b"));
  view = Pressed(state, "\r", view);
  EXPECT_EQ(view.screen, TopScreen::kJobs);
}

}  // namespace
}  // namespace lockstep::cli
