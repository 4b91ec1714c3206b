#include "server/page/overview_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/core/testing.h"

namespace lockstep::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const JobReader kSeesEverything = {.name = "", .sees_all = true};
const JobReader kPageReader = {.name = "", .sees_all = false};

void AddJob(const std::string& name, const std::string& owner, JobState state,
            std::vector<int32_t> gpus, CoordinatorView* view) {
  Job job;
  job.spec.name = name;
  job.spec.labels = {{"team", owner == "user/ann" ? "vision" : "speech"}};
  job.spec.comment = "for " + owner;
  job.owner = owner;
  job.state = state;
  job.create_time = WallTime(std::chrono::hours(view->jobs.size()));
  if (!gpus.empty()) job.holds = {{"a", 1, {}, std::move(gpus), {}}};
  JobSnapshot snapshot;
  snapshot.job = std::make_shared<const Job>(job);
  view->jobs.push_back({snapshot, std::nullopt});
  ++view->jobs_by_state[state];
}

CoordinatorView MixedView() {
  CoordinatorView view;
  AddJob("bert", "user/ann", JobState::kRunning, {0}, &view);
  AddJob("gpt", "user/bob", JobState::kFailed, {}, &view);
  AddJob("resnet", "user/ann", JobState::kQueued, {}, &view);
  AddJob("whisper", "user/bob", JobState::kRunning, {1, 2}, &view);
  view.jobs[2].snapshot.queue_position = 3;
  view.jobs[2].snapshot.time = WallTime(std::chrono::seconds(1000));
  view.jobs[2].snapshot.expected_start = WallTime(std::chrono::seconds(1720));
  NodeSnapshot node;
  Member& member = node.member;
  member.info.name = "a";
  member.state = NodeState::kReady;
  for (int32_t gpu = 0; gpu < 4; ++gpu) {
    member.info.gpus.push_back({gpu, "GPU-" + std::to_string(gpu), "T4", 1});
    GpuUsage usage;
    usage.index = gpu;
    usage.utilization = 0.25 * gpu;
    member.readings.gpus.push_back(usage);
  }
  node.allocated.gpus = 3;
  view.nodes = {node};
  return view;
}

std::vector<std::string> NamesOf(const CoordinatorView& view,
                                 const OverviewQuery& query,
                                 const JobReader& reader = kSeesEverything) {
  std::vector<std::string> names;
  for (const JobSnapshot* job : SelectJobs(reader, view, query)) {
    names.push_back(job->job->spec.name);
  }
  return names;
}

TEST(OverviewPageTest, UnfinishedJobsComeFirstAndThenTheNewest) {
  EXPECT_THAT(NamesOf(MixedView(), {}),
              ElementsAre("whisper", "resnet", "bert", "gpt"));
}

TEST(OverviewPageTest, JobsAreSelected) {
  const CoordinatorView view = MixedView();
  EXPECT_THAT(NamesOf(view, {.state = "running"}),
              ElementsAre("whisper", "bert"));
  EXPECT_THAT(NamesOf(view, {.state = "ended"}), ElementsAre("gpt"));
  EXPECT_THAT(NamesOf(view, {.state = "active", .owner = "ANN"}),
              ElementsAre("resnet", "bert"));
  EXPECT_THAT(NamesOf(view, {.label = "team=speech"}),
              ElementsAre("whisper", "gpt"));
  EXPECT_THAT(NamesOf(view, {.label = "team"}), testing::SizeIs(4));
  EXPECT_THAT(NamesOf(view, {.label = "tea"}), IsEmpty());
  EXPECT_THAT(NamesOf(view, {.text = "Net"}), ElementsAre("resnet"));
}

TEST(OverviewPageTest, JobsAreSortedByAColumn) {
  const CoordinatorView view = MixedView();
  EXPECT_THAT(NamesOf(view, {.sort = "job"}),
              ElementsAre("bert", "gpt", "resnet", "whisper"));
  EXPECT_THAT(NamesOf(view, {.sort = "-gpus"}),
              ElementsAre("whisper", "bert", "gpt", "resnet"));
}

// A filter must not tell strangers what they do not see.
TEST(OverviewPageTest, StrangersCannotFindWhatIsHidden) {
  const CoordinatorView view = MixedView();
  EXPECT_THAT(NamesOf(view, {.label = "team=speech"}, kPageReader), IsEmpty());
  EXPECT_THAT(NamesOf(view, {.text = "for user"}, kPageReader), IsEmpty());
  EXPECT_THAT(NamesOf(view, {.text = "for user"}), testing::SizeIs(4));
  EXPECT_THAT(NamesOf(view, {.owner = "bob"}, kPageReader),
              ElementsAre("whisper", "gpt"));
}

TEST(OverviewPageTest, AGpuThatIsNotFreeHasItsColour) {
  CoordinatorView view = MixedView();
  Member& member = view.nodes[0].member;
  GpuReclaim reclaim;
  reclaim.index = 3;
  reclaim.memory_used_bytes = int64_t{9} << 30;
  reclaim.baseline_bytes = int64_t{1} << 30;
  member.readings.reclaims = {reclaim};
  const std::string body = OverviewPage("lab", kSeesEverything, view, {}).body;
  EXPECT_THAT(body, HasSubstr("<a class=\"g reclaim\" href=\"/nodes/a\" "
                              "title=\"a GPU 3: reclaim: 9 GiB of its memory "
                              "is used, 1 GiB without ranks\">r</a>"));
  EXPECT_THAT(body, HasSubstr("1 GPU in reclaim"));
  member.checking.open[3] = {1, WallTime(std::chrono::hours(10)), true};
  const std::string checked =
      OverviewPage("lab", kSeesEverything, view, {}).body;
  EXPECT_THAT(checked, HasSubstr("title=\"a GPU 3: is being checked since "
                                 "10:00:00 UTC\">c</a>"));
  EXPECT_THAT(checked, HasSubstr("1 GPU being checked"));
}

TEST(OverviewPageTest, TotalsAndGpusAreShown) {
  CoordinatorView view = MixedView();
  const std::string body = OverviewPage("lab", kSeesEverything, view, {}).body;
  EXPECT_THAT(
      body,
      AllOf(HasSubstr("1 queued, 2 running, 1 failed"),
            HasSubstr("3 of 4 held, busy 38 %"),
            HasSubstr("user/bob 2, user/ann 1"),
            HasSubstr("<a class=\"g h5\" href=\"/jobs/whisper\" title=\"a GPU "
                      "2: busy 50 %, whisper (user/bob)\">"),
            HasSubstr("class=\"g idle\" href=\"/nodes/a\" title=\"a GPU 3: "
                      "idle\""),
            HasSubstr("place 3 of the queue, expected to start in 12 m 00 s")));
  view.nodes[0].member.state = NodeState::kUnknown;
  EXPECT_THAT(OverviewPage("lab", kSeesEverything, view, {}).body,
              HasSubstr("title=\"a GPU 3: the node is UNKNOWN\">?</a>"));
}

TEST(OverviewPageTest, HeadsLinkToTheOtherOrderAndKeepTheFilter) {
  const OverviewQuery query = {.owner = "a&b", .sort = "job"};
  EXPECT_THAT(OverviewPage("lab", kSeesEverything, MixedView(), query).body,
              HasSubstr("none"));
  const OverviewQuery found = {.state = "running", .sort = "job"};
  EXPECT_THAT(OverviewPage("lab", kSeesEverything, MixedView(), found).body,
              AllOf(HasSubstr("href=\"/?state=running&amp;sort=-job\""),
                    HasSubstr("href=\"/?state=running&amp;sort=owner\""),
                    HasSubstr("<option value=\"running\" selected>")));
}

TEST(OverviewPageTest, AQueryIsOnlyText) {
  const std::string hostile = "\"><script>alert(1)</script>";
  const OverviewQuery query = {
      .owner = hostile, .label = hostile, .text = hostile};
  EXPECT_THAT(
      OverviewPage("lab", kSeesEverything, MixedView(), query).body,
      AllOf(Not(HasSubstr("<script")), HasSubstr("&quot;&gt;&lt;script&gt;")));
}

TEST(OverviewPageTest, BadQueriesGetASentence) {
  EXPECT_EQ(ParseOverview({{"state", "running"}, {"sort", "-gpus"}})->sort,
            "-gpus");
  EXPECT_THAT(Message(ParseOverview({{"state", "dead"}}).status()),
              HasSubstr("state: must be one of active, ended, queued"));
  EXPECT_THAT(Message(ParseOverview({{"sort", "--job"}}).status()),
              HasSubstr("sort: must be one of job, owner"));
  EXPECT_THAT(Message(ParseOverview({{"page", "2"}}).status()),
              HasSubstr("page is not a parameter of this page, which has "
                        "label, owner, sort, state, text"));
}

}  // namespace
}  // namespace lockstep::server
