#include "server/page/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/core/testing.h"
#include "server/page/html.h"
#include "server/page/overview_page.h"
#include "tests/support/fake_clock.h"

namespace lockstep::server {
namespace {

using http::HttpResponse;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const JobReader kAll = {.name = "", .sees_all = true};

constexpr char kHostile[] =
    "<script>alert(1)</script>\"' onload='x' &amp; \x01\x7f";

JobExtras Late(int32_t rank) {
  JobExtras extras;
  extras.late_rank = rank;
  return extras;
}

JobSnapshot Running() {
  Scene scene(NativeSpec("train", 2));
  scene.Run({"a", "b"});
  JobSnapshot snapshot;
  Job job = scene.job;
  job.owner = "user/ann";
  snapshot.job = std::make_shared<const Job>(job);
  snapshot.time = scene.now.wall;
  JobProgressInfo progress;
  progress.chief.committed_step = 250;
  progress.chief.total_steps = 1000;
  progress.samples_per_second = 1234;
  progress.eta = std::chrono::seconds(90);
  snapshot.progress = progress;
  for (int32_t rank : {0, 1}) {
    RankStatus& live = snapshot.live[rank];
    live.rank = rank;
    live.state = RankState::kJoined;
    live.pid = 4000 + rank;
    live.progress.phase = "compute";
    live.progress.phases.compute = 3;
    live.progress.phases.straggler_wait = 1;
  }
  snapshot.bill = {7200, 3600, 0.5, "EUR"};
  return snapshot;
}

NodeSnapshot Node(const std::string& name) {
  NodeSnapshot node;
  node.member.info.name = name;
  node.member.state = NodeState::kReady;
  node.member.info.capacity = {8, int64_t{16} << 30, 1, ""};
  node.member.info.gpus = {{0, "GPU-1", "T4", int64_t{16} << 30}};
  node.member.readings.cpu_utilization = 0.25;
  GpuUsage usage;
  usage.utilization = 0.5;
  usage.power_watts = 61;
  node.member.readings.gpus = {usage};
  node.allocated.cpus = 2;
  node.jobs = {"train"};
  return node;
}

CoordinatorView View() {
  CoordinatorView view;
  view.jobs.push_back({Running(), std::nullopt});
  view.time.wall = view.jobs[0].snapshot.time;
  view.nodes = {Node("a")};
  return view;
}

TEST(StatusPageTest, TheFrontPageSaysWhatIsWrongWithNodes) {
  CoordinatorView view = View();
  view.epoch = 5;
  view.refused_by = {{"a", "epoch 9"}};
  Member& member = view.nodes[0].member;
  member.info.address = "10.0.0.1";
  member.info.http_address = "127.0.0.1:9464";
  member.missing_gpus = {{1, "GPU-2", "T4", 1}};
  member.offered = Resources{96, int64_t{16} << 30, 2, ""};
  member.info.certificate_end_time = view.time.wall + std::chrono::hours(240);
  const std::string body = OverviewPage("lab", kAll, view, {}).body;
  EXPECT_THAT(body, HasSubstr("A node refuses this coordinator: it has epoch "
                              "5, but a has obeyed one of epoch 9"));
  EXPECT_THAT(body, HasSubstr("its certificate expires in 10 d"));
  EXPECT_THAT(body,
              HasSubstr("offers 96 cpus, 16 GiB, 2 GPUs, of which 8 cpus, "
                        "16 GiB, 1 GPU may be used"));
  EXPECT_THAT(body,
              HasSubstr("1 GPU missing; 127.0.0.1:9464 is a loopback address"));
}

TEST(StatusPageTest, TheFrontPageSaysHowThingsAre) {
  const HttpResponse page = OverviewPage("lab", kAll, View(), {});
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_THAT(page.body,
              AllOf(HasSubstr("<a href=\"/jobs/train\">train</a>"),
                    HasSubstr(">RUNNING</td>"), HasSubstr("250 of 1000"),
                    HasSubstr("1234"), HasSubstr("a, b"),
                    HasSubstr("<a href=\"/nodes/a\">a</a>"),
                    HasSubstr("2 of 8"), HasSubstr("0 of 1, busy 50 %")));
  EXPECT_THAT(page.body, Not(HasSubstr("<script")));
}

TEST(StatusPageTest, AnEmptyClusterAndABrokenStoreAreSaid) {
  CoordinatorView view;
  view.store_healthy = false;
  EXPECT_THAT(OverviewPage("lab", kAll, view, {}).body,
              AllOf(HasSubstr("no node has registered yet"),
                    HasSubstr("The store cannot write")));
}

TEST(StatusPageTest, AJobsPageHasItAll) {
  const HttpResponse page = JobPage("lab", kAll, Running(), Late(1));
  EXPECT_THAT(
      page.body,
      AllOf(HasSubstr("250 of 1000"), HasSubstr("user/ann"),
            HasSubstr("rank 1 (worker 0 on b)"), HasSubstr("75.0 %"),
            HasSubstr("25.0 %"), HasSubstr("2.00 core hours"),
            HasSubstr("0.5000 EUR"), HasSubstr("in compute"), HasSubstr("4001"),
            HasSubstr("Tasks"), HasSubstr(">Events</h2>")));
}

TEST(StatusPageTest, AJobsPageLinksToItsDashboard) {
  JobExtras extras = Late(1);
  EXPECT_THAT(JobPage("lab", kAll, Running(), extras).body,
              Not(HasSubstr(">Grafana</a>")));
  extras.grafana = "https://g.example/d/j?a=1&b=\"x\"";
  EXPECT_THAT(
      JobPage("lab", kAll, Running(), extras).body,
      HasSubstr("<a href=\"https://g.example/d/j?a=1&amp;b=&quot;x&quot;"
                "\">Grafana</a>"));
}

// A page has no owner who looks at it.
TEST(StatusPageTest, StrangersSeeNoTextOfTheJob) {
  CoordinatorView view = View();
  Job job = *view.jobs[0].snapshot.job;
  const std::string secret = "s3cret";
  job.cause = {Reason::kRankExit, secret};
  job.spec.comment = job.spec.output_directory = secret;
  job.events = {{{}, 1, Reason::kRankExit, secret}};
  job.attempts.resize(1);
  job.attempts[0].end_cause = {Reason::kNodeLost, secret};
  job.last_checkpoint = Checkpoint{1, 1, secret, {}, 1};
  job.tasks[0].ranks[0].exit = Code(3);
  job.tasks[0].ranks[0].exit->message = secret;
  JobSnapshot& snapshot = view.jobs[0].snapshot;
  snapshot.job = std::make_shared<const Job>(job);
  snapshot.live[1].progress.phase = secret;
  const auto pages = [&](const JobReader& reader) {
    return std::vector<std::string>{
        OverviewPage("lab", reader, view, {}).body,
        JobPage("lab", reader, snapshot, Late(0)).body,
        NodePage("lab", reader, view.nodes[0], {snapshot}, {}).body};
  };
  for (const std::string& body : pages(kAll)) {
    EXPECT_THAT(body, HasSubstr(secret));
    EXPECT_THAT(body, Not(HasSubstr("not shown")));
  }
  const JobReader stranger = ReaderOf("", false, Visibility::kOwner);
  const auto shown = pages(stranger);
  for (const std::string& body : shown) {
    EXPECT_THAT(body, Not(HasSubstr(secret)));
    EXPECT_THAT(body, HasSubstr("RANK_EXIT"));
  }
  EXPECT_THAT(shown[1],
              AllOf(HasSubstr("not shown"), HasSubstr("visibility: cluster"),
                    HasSubstr("NODE_LOST"), HasSubstr("exit code 3"),
                    HasSubstr("250 of 1000"), HasSubstr("user/ann"),
                    Not(HasSubstr("<th>loss"))));
  EXPECT_EQ(pages(ReaderOf("", false, Visibility::kCluster)), pages(kAll));
}

TEST(StatusPageTest, ANodesPageHasItsGpus) {
  const HttpResponse page = NodePage("lab", kAll, Node("a"), {Running()}, {});
  EXPECT_THAT(page.body, AllOf(HasSubstr("T4"), HasSubstr("61 W"),
                               HasSubstr("25 %"), HasSubstr("/jobs/train")));
}

TEST(StatusPageTest, ANodesPageSaysFromWhichItIsApart) {
  NodeSnapshot node = Node("a");
  EXPECT_THAT(NodePage("lab", kAll, node, {}, {}).body,
              testing::Not(HasSubstr("apart from")));
  node.apart_from = {"b", "c"};
  EXPECT_THAT(NodePage("lab", kAll, node, {}, {}).body,
              AllOf(HasSubstr("apart from"), HasSubstr("b, c")));
}

// Names, comments, events, rank messages, node messages: whoever wrote them.
TEST(StatusPageTest, TextOfOthersIsOnlyText) {
  CoordinatorView view = View();
  Job job = *view.jobs[0].snapshot.job;
  job.spec.name = job.owner = job.spec.comment = job.cause.message = kHostile;
  job.spec.output_directory = kHostile;
  job.events = {{{}, 1, Reason::kRankExit, kHostile}};
  job.attempts.resize(1);
  job.attempts[0].end_cause.message = kHostile;
  job.last_checkpoint = Checkpoint{1, 1, kHostile, {}, 1};
  for (TaskStatus& task : job.tasks) {
    task.node = kHostile;
    task.ranks[0].exit = Code(1);
    task.ranks[0].exit->message = kHostile;
  }
  JobSnapshot snapshot = view.jobs[0].snapshot;
  snapshot.job = std::make_shared<const Job>(job);
  snapshot.waiting = Cause{Reason::kRunning, kHostile};
  snapshot.live[0].progress.phase = kHostile;
  snapshot.bill.currency = kHostile;
  view.jobs[0].snapshot = snapshot;
  NodeInfo& info = view.nodes[0].member.info;
  info.name = info.hostname = info.version = info.pool = info.address =
      kHostile;
  info.gpus[0].model = kHostile;
  view.nodes[0].member.message = kHostile;
  view.nodes[0].member.events = {{{}, 0, Reason::kNodeBack, kHostile}};
  view.nodes[0].jobs = {kHostile};
  for (const HttpResponse& page :
       {OverviewPage(kHostile, kAll, view, {}),
        JobPage(kHostile, kAll, snapshot, Late(0)),
        NodePage(kHostile, kAll, view.nodes[0], {snapshot}, {}),
        ErrorPage(kHostile, NotFound("{}", kHostile))}) {
    EXPECT_THAT(page.body, Not(HasSubstr("<script")));
    EXPECT_THAT(page.body, Not(HasSubstr("onload='")));
    EXPECT_THAT(page.body, Not(HasSubstr("\x01")));
    EXPECT_THAT(page.body,
                HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;"));
    EXPECT_THAT(page.body, HasSubstr("&amp;amp;"));
  }
  // Nor does a name leave its link.
  EXPECT_THAT(OverviewPage("lab", kAll, view, {}).body,
              HasSubstr("href=\"/jobs/%3Cscript%3Ealert%281%29%3C%2Fscript"));
}

TEST(StatusPageTest, NoPageMayRunOrLoadAnything) {
  const HttpResponse page = OverviewPage("lab", kAll, View(), {});
  const std::string& policy = page.headers.at("Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  for (const char* outside : {"http:", "https:", "src=", "@import", "url("}) {
    EXPECT_THAT(page.body, Not(HasSubstr(outside)));
  }
}

TEST(StatusPageTest, ManyJobsAreCounted) {
  CoordinatorView view = View();
  for (size_t i = 0; i < kMaxJobsShown + 5; ++i) {
    view.jobs.push_back(view.jobs[0]);
  }
  EXPECT_THAT(OverviewPage("lab", kAll, view, {}).body,
              HasSubstr("and 6 more"));
}

TEST(StatusPageTest, WhatIsNotThereIsSaid) {
  const HttpResponse page = ErrorPage("lab", NotFound("there is no job x"));
  EXPECT_EQ(page.status, 404);
  EXPECT_THAT(page.body, HasSubstr("there is no job x"));
  EXPECT_EQ(ErrorPage("lab", InvalidArgument("span: no")).status, 400);
  EXPECT_EQ(ErrorPage("lab", PermissionDenied("logs: no")).status, 403);
}

}  // namespace
}  // namespace lockstep::server
