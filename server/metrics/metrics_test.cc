// What is scraped from the coordinator: names, labels, number, and that
// Prometheus's own linter agrees.
#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <prometheus/text_serializer.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "common/base/file.h"
#include "common/http/metrics.h"
#include "server/coordinator/coordinator_fixture.h"
#include "server/metrics/backup_metrics.h"
#include "server/metrics/job_metrics.h"
#include "server/metrics/notify_metrics.h"
#include "server/metrics/package_metrics.h"
#include "server/metrics/rpc_metrics.h"
#include "server/metrics/session_metrics.h"
#include "server/metrics/stream_metrics.h"
#include "server/stream/stream_readers.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;
using testing::HasSubstr;
using testing::Not;
using Families = std::vector<prometheus::MetricFamily>;

std::string Text(const Families& families) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

// Lines that are no comments.
size_t SeriesOf(const Families& families) {
  std::istringstream text(Text(families));
  size_t count = 0;
  for (std::string line; std::getline(text, line);) {
    if (!line.empty() && line[0] != '#') ++count;
  }
  return count;
}

Families OfHttp() {
  const auto server = http::HttpServer::Create({.address = "127.0.0.1:0"});
  return http::HttpCollector(server->get()).Collect();
}

class MetricsTest : public CoordinatorTest {
 protected:
  MetricsTest() {
    options_.observer = &ledger_;
    Start();
    metrics_ = std::make_unique<CoordinatorMetrics>(
        coordinator_->queries(), &ledger_,
        DaemonFacts{clock_.Now().wall + 1min, "/tmp", &ballast_}, &site_);
    for (FakeDaemon* daemon : all_) {
      daemon->info.certificate_end_time = clock_.Now().wall + 5min;
    }
    Connect(&a_);
    Connect(&b_);
  }
  Families Collect() { return metrics_->Collect(); }
  std::string Page() { return Text(Collect()); }
  // As the daemon does each second.
  void Live(Duration time) {
    for (Duration done{}; done < time; done += 1s) {
      Pass(1s);
      ledger_.Look(coordinator_->queries()->View(kSeriesLinger));
    }
  }
  // Both ranks say how far they are; rank 1 is late.
  void Report(const JobName& job, int64_t steps) {
    NodeReadings readings;
    readings.round_trip = 2ms;
    for (FakeDaemon* daemon : all_) {
      NodeSessions::RankReport report;
      report.job = job;
      const auto* gang = daemon->Find(job);
      ASSERT_NE(gang, nullptr);
      report.generation = gang->status.generation;
      for (RankStatus rank : gang->status.ranks) {
        rank.progress.committed_step = steps;
        rank.progress.total_steps = 100000;
        rank.progress.samples = steps * 32;
        if (rank.rank == 0) rank.progress.values = values_;
        rank.progress.phases.compute = static_cast<double>(steps) / 10;
        rank.progress.phases.straggler_wait =
            rank.rank == 0 ? static_cast<double>(steps) / 20 : 0;
        report.ranks.push_back(rank);
      }
      ASSERT_TRUE(coordinator_->sessions()
                      ->OnHeartbeat(daemon->session(), 1000 + ++beats_,
                                    readings, {report})
                      .ok());
    }
  }
  // Two of them.
  void GiveGpus(FakeDaemon* daemon, const std::string& model) {
    daemon->info.gpus = {{0, "GPU-0" + model, model, 1},
                         {1, "GPU-1" + model, model, 1}};
    daemon->Restart(true);
    Connect(daemon);
    ASSERT_TRUE(ApproveNode(daemon->info.name).ok());
  }
  // A job that shows everything that a job can show, but for its use of GPUs
  // where it has none.
  void RunEverything(const JobName& name, int32_t gpus = 0) {
    JobSpec spec = NativeSpec(name, 2);
    // A host for each.
    for (RoleSpec& role : spec.roles.Edit()) {
      role.resources.cpus = 2;
      role.resources.gpus = gpus;
    }
    MustSubmit(spec);
    Run();
    ASSERT_EQ(State(name), JobState::kRunning);
    Live(1s);
    for (int i = 1; i <= 25; ++i) {
      Report(name, i * 10);
      Live(1s);
    }
    a_.Publish(name, Get(name).generation, 200);
    Run();
    Report(name, 260);
  }

  SiteTables site_;
  std::map<std::string, double> values_ = {{"accuracy", 0.75},
                                           {kFlopsPerSample, 1e9}};
  MetricLedger ledger_;
  const Ballast ballast_{BallastOptions{.dir = "/tmp"}};
  std::unique_ptr<CoordinatorMetrics> metrics_;
  uint64_t beats_ = 0;
};

TEST_F(MetricsTest, AJobIsThere) {
  RunEverything("train");
  const std::string page = Page();
  for (const char* line : {
           "lockstep_job_info{job_id=\"train\",name=\"train\","
           "user=\"user/ann\",queue=\"default\"",
           "lockstep_job_state{job_id=\"train\",state=\"running\"} 1",
           "lockstep_job_state{job_id=\"train\",state=\"queued\"} 0",
           "lockstep_job_step{job_id=\"train\"} 260",
           "lockstep_job_progress_ratio{job_id=\"train\"} 0.0026",
           "lockstep_job_restarts_total{job_id=\"train\",reason=\"hang\"} 0",
           "lockstep_checkpoint_last_step{job_id=\"train\"} 200",
           "lockstep_checkpoints_total{job_id=\"train\"} 1",
           "lockstep_job_steps_total{job_id=\"train\"} 260",
           "lockstep_job_samples_total{job_id=\"train\"} 16640",
           "lockstep_job_flops_total{job_id=\"train\"} 16640000000000",
           "lockstep_job_user_metric{job_id=\"train\",metric=\"accuracy\"} "
           "0.75",
           "lockstep_job_world_size{job_id=\"train\",kind=\"target\"} 2",
           "lockstep_job_world_size{job_id=\"train\",kind=\"actual\"} 2",
           "lockstep_queue_share_target_ratio{queue=\"default\"} 1",
           "lockstep_queue_share_actual_ratio{queue=\"default\"} 1",
           // Two nodes, 26 reports; no other one said how long it took.
           "lockstep_node_heartbeat_rtt_seconds_count{pool=\"default\"} 52",
           "lockstep_node_heartbeat_rtt_seconds_bucket{pool=\"default\","
           "le=\"0.001\"} 0",
           "lockstep_node_heartbeat_rtt_seconds_bucket{pool=\"default\","
           "le=\"0.00316\"} 52",
           "lockstep_straggler_events_total{job_id=\"train\",node=\"b\"} 1",
           "lockstep_straggler_events_total{job_id=\"train\",node=\"a\"} 0",
           "lockstep_straggler_rank{job_id=\"train\",node=\"b\"} 1",
           "lockstep_node_gpus_missing{node=\"a\"} 0",
           "lockstep_nodes_of_later_epoch 0",
           "lockstep_nodes_awaiting_approval 0",
           "lockstep_nodes_awaiting_operator 0",
           "lockstep_job_launch_seconds_count{phase=\"total\"} 1",
           "lockstep_node_state{node=\"a\",state=\"ready\"} 1",
           "lockstep_nodes{pool=\"default\",state=\"ready\"} 2",
           "lockstep_resources_allocated{pool=\"default\",resource=\"cpu\"} 4",
           "lockstep_queue_jobs{queue=\"default\",state=\"running\"} 1",
           "lockstep_scheduler_placements_total{queue=\"default\","
           "result=\"placed\"} 1",
           "lockstep_job_time_seconds_total{job_id=\"train\","
           "state=\"productive\"}",
       }) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

// What is not known has no series.
TEST_F(MetricsTest, FlopsAndUseOfGpusAreThereWhereTheyAreKnown) {
  values_.clear();
  RunEverything("train");
  EXPECT_THAT(Page(), Not(HasSubstr("lockstep_job_flops_total{")));
  EXPECT_THAT(Page(), Not(HasSubstr("lockstep_job_user_metric{")));
  EXPECT_THAT(Page(), Not(HasSubstr("lockstep_scheduler_fragmentation_ratio")))
      << "no GPUs";
  values_ = {{kFlopsPerSample, 1e9}};
  Report("train", 270);
  EXPECT_THAT(Page(), Not(HasSubstr("lockstep_job_mfu_ratio{")))
      << "it has no GPU";
}

TEST_F(MetricsTest, TheUseOfGpusIsOfWhatTheyCanDo) {
  GiveGpus(&a_, "Tesla T4");
  GiveGpus(&b_, "Tesla V100-SXM2-16GB");
  RunEverything("train", 1);
  // 10 steps with 2 x 32 samples a second, on a GPU of each model.
  const std::string page = Page();
  const std::string name = "lockstep_job_mfu_ratio{job_id=\"train\"} ";
  const size_t at = page.find("\n" + name);
  ASSERT_NE(at, std::string::npos) << page;
  EXPECT_NEAR(std::stod(page.substr(at + 1 + name.size())),
              640 * 1e9 / (65e12 + 125e12), 1e-5);
  // Neither host has both of its GPUs free.
  EXPECT_THAT(page, HasSubstr("lockstep_scheduler_fragmentation_ratio{pool="
                              "\"default\"} 1"));

  Site changed = DefaultSite();
  changed.machines.accelerators["NVIDIA_TESLA_T4"].peak_tflops.reset();
  site_.Set(changed);
  EXPECT_THAT(Page(), Not(HasSubstr("lockstep_job_mfu_ratio{")))
      << "what one of them can do is not known";
}

TEST_F(MetricsTest, RanksThatEndedAreNotInTheActualSize) {
  RunEverything("train");
  const auto* gang = b_.Find("train");
  ASSERT_NE(gang, nullptr);
  GangStatus status = gang->status;
  ASSERT_EQ(status.ranks.size(), 1u);
  status.ranks[0].state = RankState::kExited;
  status.ranks[0].exit = ExitStatus{};
  ASSERT_TRUE(
      coordinator_->sessions()->OnGangStatus(b_.session(), status).ok());
  EXPECT_THAT(Page(), HasSubstr("lockstep_job_world_size{job_id=\"train\","
                                "kind=\"target\"} 2"));
  EXPECT_THAT(Page(), HasSubstr("lockstep_job_world_size{job_id=\"train\","
                                "kind=\"actual\"} 1"));
}

TEST(WorldSizeTest, TheTargetIsWhatAUserWants) {
  Job job;
  job.spec = NativeSpec("train", 4);
  EXPECT_EQ(TargetWorldSize(job), 4);
  job.wanted_tasks = 3;
  EXPECT_EQ(TargetWorldSize(job), 3);
  job.spec.roles.Edit()[0].ranks_per_task = 2;
  EXPECT_EQ(TargetWorldSize(job), 4);
}

// Whoever scrapes sets these.
TEST_F(MetricsTest, ReservedLabelsAreNotUsed) {
  RunEverything("train");
  for (const auto& family : Collect()) {
    std::set<std::string> seen;
    for (const auto& metric : family.metric) {
      std::string labels;
      for (const auto& label : metric.label) {
        EXPECT_NE(label.name, "job") << family.name;
        EXPECT_NE(label.name, "instance") << family.name;
        if (label.name == "user" || label.name == "name") {
          EXPECT_EQ(family.name, "lockstep_job_info");
        }
        labels += label.name + "=" + label.value + ",";
      }
      EXPECT_TRUE(seen.insert(labels).second) << family.name << labels;
    }
  }
}

TEST_F(MetricsTest, TheNumberOfSeriesIsBounded) {
  const size_t standing =
      SeriesOf(RpcMetrics().Collect()) + SeriesOf(StreamMetrics().Collect()) +
      SeriesOf(http::ProcessCollector("x").Collect()) + SeriesOf(OfHttp());
  const size_t idle = SeriesOf(Collect()) + standing;
  EXPECT_LE(idle, kSeriesAtRest + 2 * kSeriesPerNode + kSeriesPerPool);
  RunEverything("train");
  for (int i = 0; i < 20; ++i) {
    MustSubmit(NativeSpec("w" + std::to_string(i), 4));
  }
  const size_t busy = SeriesOf(Collect()) + standing;
  EXPECT_LE(busy, kSeriesAtRest + kSeriesPerPool +
                      2 * (kSeriesPerNode + kSeriesPerNodeOfJob) +
                      21 * kSeriesPerLiveJob + kSeriesOfValues);
  // Of one running job, alone.
  size_t mine = 0;
  std::istringstream page(Page());
  for (std::string line; std::getline(page, line);) {
    if (line.find("job_id=\"train\"") != std::string::npos) ++mine;
  }
  EXPECT_LE(mine,
            kSeriesPerLiveJob + kSeriesOfValues + 2 * kSeriesPerNodeOfJob);
  EXPECT_GT(mine, 30u);
}

TEST_F(MetricsTest, JobsThatHoldAreCountedByReason) {
  RunEverything("train");
  const auto held = [](const std::string& reason, int count) {
    return HasSubstr("lockstep_jobs_held{reason=\"" + reason + "\"} " +
                     std::to_string(count));
  };
  EXPECT_THAT(Page(), held("no_checkpoint", 0));
  ExitStatus exit = ExitCode(1);
  exit.reason = Reason::kNoCheckpoint;
  a_.Exit("train", 0, exit);
  Live(100ms);
  EXPECT_THAT(Page(), held("no_checkpoint", 1));
  EXPECT_THAT(Page(), held("output_missing", 0));
  EXPECT_THAT(Page(), held("output_full", 0));
  ASSERT_TRUE(Cancel("train").ok());
  Live(2s);
  EXPECT_THAT(Page(), held("no_checkpoint", 0));
}

TEST_F(MetricsTest, NodesThatLostEachOtherAreCounted) {
  RunEverything("train");
  EXPECT_THAT(Page(), HasSubstr("lockstep_node_apart_nodes{node=\"a\"} 0"));
  // The nodes cannot be asked, so the rank is believed the second time.
  for (int i = 0; i < 2; ++i) {
    const int32_t rank = a_.Find("train")->status.ranks[0].rank;
    a_.Find("train")->status.lost_peers = {{rank, 1 - rank, "timed out"}};
    ExitStatus exit = ExitCode(75);
    exit.victim = true;
    a_.Exit("train", rank, exit);
    Live(2s);
  }
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("lockstep_node_apart_nodes{node=\"a\"} 1"));
  EXPECT_THAT(page, HasSubstr("lockstep_node_apart_nodes{node=\"b\"} 1"));
  EXPECT_THAT(page, HasSubstr("lockstep_node_cooled_down{node=\"a\"} 0"));
  EXPECT_THAT(page, HasSubstr("lockstep_jobs_held{reason=\"cannot_form\"} 1"));
}

TEST_F(MetricsTest, AnEndedJobsSeriesGoAfterAWhile) {
  RunEverything("train");
  ASSERT_TRUE(Cancel("train").ok());
  Live(2s);
  ASSERT_EQ(State("train"), JobState::kCancelled);
  EXPECT_THAT(Page(),
              HasSubstr("lockstep_job_state{job_id=\"train\",state=\"cancelled"
                        "\"} 1"));
  EXPECT_THAT(Page(), Not(HasSubstr("lockstep_job_step{job_id=\"train\"")));
  clock_.Advance(kSeriesLinger - 1min);
  EXPECT_THAT(Page(), HasSubstr("job_id=\"train\""));
  clock_.Advance(2min);
  EXPECT_THAT(Page(), Not(HasSubstr("job_id=\"train\"")));
  EXPECT_THAT(Page(), HasSubstr("lockstep_jobs{state=\"cancelled\"} 1"));
}

TEST_F(MetricsTest, NodesThatGoAreCounted) {
  Live(1s);
  b_.Disconnect();
  Live(1s);
  EXPECT_THAT(Page(), HasSubstr("lockstep_node_failures_total{pool=\"default\","
                                "reason=\"unknown\"} 1"));
  EXPECT_THAT(Page(), HasSubstr("lockstep_node_state{node=\"b\","
                                "state=\"unknown\"} 1"));
}

TEST_F(MetricsTest, WhatANodeLostIsCounted) {
  a_.info.http_address = "10.0.0.1:9464";
  a_.info.gpus = {{0, "GPU-0", "T4", 1}, {1, "GPU-1", "T4", 1}};
  a_.Restart(true);
  Connect(&a_);
  ASSERT_TRUE(ApproveNode("a").ok());
  a_.info.gpus.pop_back();
  a_.Restart(true);
  Connect(&a_);
  EXPECT_THAT(Page(), HasSubstr("lockstep_node_gpus_missing{node=\"a\"} 1"));
  EXPECT_THAT(Page(), HasSubstr("lockstep_nodes_without_metrics 1"))
      << "b has no port";
  b_.info.capacity.cpus *= 2;
  b_.Restart(true);
  Connect(&b_);
  EXPECT_THAT(Page(), HasSubstr("lockstep_nodes_awaiting_approval 1"));
  b_.Disconnect();
  EXPECT_FALSE(coordinator_->sessions()->CheckObeyed("b", {"", 99, 0}).ok());
  EXPECT_THAT(Page(), HasSubstr("lockstep_nodes_of_later_epoch 1"));
  Connect(&b_);
  EXPECT_THAT(Page(), HasSubstr("lockstep_nodes_of_later_epoch 0"));
}

TEST_F(MetricsTest, HowFarClocksAreApartIsSaid) {
  Connect(&a_);
  Connect(&b_);
  NodeReadings readings;
  readings.send_time = coordinator_->clock().Now().wall + 3s;
  ASSERT_TRUE(coordinator_->sessions()
                  ->OnHeartbeat(a_.session(), 5000, readings, {})
                  .ok());
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("lockstep_node_clock_offset_seconds{node=\"a\"} "
                              "-3\n"));
  EXPECT_THAT(page, HasSubstr("lockstep_node_clock_offset_seconds{node=\"b\"} "
                              "0\n"))
      << "an older daemon";
}

// As soon as it is seen, not when the verdict falls.
TEST_F(MetricsTest, AJobOfWhichARankStandsStillIsNotProductive) {
  RunEverything("train");
  const auto report = [&](int beat) {
    for (FakeDaemon* daemon : all_) {
      const auto* gang = daemon->Find("train");
      NodeSessions::RankReport said{"train", gang->status.generation, {}};
      for (RankStatus rank : gang->status.ranks) {
        rank.progress.committed_step = 260;
        rank.progress.step = 261;
        rank.progress.total_steps = 100000;
        rank.progress.phase = rank.rank == 1 ? "compute" : "allreduce";
        said.ranks.push_back(rank);
      }
      ASSERT_TRUE(coordinator_->sessions()
                      ->OnHeartbeat(daemon->session(), 5000 + beat, {}, {said})
                      .ok());
    }
  };
  for (int beat = 0; beat < 4; ++beat) {
    report(beat);
    Live(1s);
  }
  const JobSnapshot job = *coordinator_->queries()->GetJob("train");
  ASSERT_TRUE(job.stall);
  EXPECT_EQ(job.job->state, JobState::kRunning);
  ASSERT_TRUE(job.waiting);
  EXPECT_EQ(job.waiting->reason, Reason::kNoProgress);
  EXPECT_THAT(job.waiting->message,
              HasSubstr("rank 1 (worker 0 on b) stands still for"));
  EXPECT_EQ(job.job->events.back().reason, Reason::kNoProgress);
  EXPECT_THAT(Page(), Not(HasSubstr("lockstep_job_time_seconds_total{job_id="
                                    "\"train\",state=\"stalled\"} 0\n")));
  Report("train", 262);
  Live(1s);
  EXPECT_FALSE(coordinator_->queries()->GetJob("train")->waiting);
  EXPECT_THAT(
      coordinator_->queries()->GetJob("train")->job->events.back().message,
      HasSubstr("goes on after"));
}

TEST_F(MetricsTest, ResourcesThatWorkForNobodyAreCounted) {
  Page();
  Live(10s);
  EXPECT_THAT(Page(),
              HasSubstr("lockstep_idle_resource_seconds_total{pool=\"default\","
                        "resource=\"cpu\",reason=\"free\"} 40"));
}

TEST(RpcMetricsTest, CallsAreCountedByMethodAndCode) {
  RpcMetrics metrics;
  metrics.OnStarted("/lockstep.v1.JobService/GetJob");
  metrics.OnHandled("/lockstep.v1.JobService/GetJob", StatusCode::kNotFound,
                    std::chrono::milliseconds(2));
  metrics.OnStarted("/nonsense");
  metrics.OnHandled("/nonsense", StatusCode::kUnimplemented, {});
  const std::string page = Text(metrics.Collect());
  const std::string get =
      "grpc_type=\"unary\",grpc_service=\"lockstep.v1.JobService\","
      "grpc_method=\"GetJob\"";
  EXPECT_THAT(page, HasSubstr("grpc_server_started_total{" + get + "} 1"));
  EXPECT_THAT(page, HasSubstr("grpc_server_handled_total{" + get +
                              ",grpc_code=\"NotFound\"} 1"));
  EXPECT_THAT(page, HasSubstr("grpc_server_handled_total{" + get +
                              ",grpc_code=\"OK\"} 0"));
  EXPECT_THAT(page, HasSubstr("grpc_server_handling_seconds_bucket{" + get +
                              ",le=\"0.00316\"} 1"));
  EXPECT_THAT(page, HasSubstr("grpc_method=\"unknown\"} 1"));
  EXPECT_THAT(page, Not(HasSubstr("nonsense")));
}

// Everything that a coordinator with a job shows.
class CatalogueTest : public MetricsTest {
 protected:
  Families OfPackages() {
    char dir[] = "/tmp/lockstep_metrics_XXXXXX";
    EXPECT_NE(::mkdtemp(dir), nullptr);
    PackageStoreOptions options;
    options.dir = dir;
    const auto store = PackageStore::Open(RealFileSystem(), options, &clock_);
    EXPECT_TRUE(store.ok()) << store.status();
    EXPECT_TRUE(RealFileSystem()->RemoveAll(dir).ok());
    return store.ok() ? PackageMetrics(store->get()).Collect() : Families();
  }
  static Families OfSessions() {
    SessionFigures figures;
    figures.kind = "command";
    figures.open = 1;
    figures.ended = {{"ended", 2}};
    return SessionMetrics([figures] { return std::vector{figures}; }).Collect();
  }
  Families All() {
    GiveGpus(&a_, "Tesla T4");
    GiveGpus(&b_, "Tesla T4");
    RunEverything("train", 1);
    Families all = Collect();
    for (auto& more :
         {RpcMetrics().Collect(), StreamMetrics().Collect(),
          StreamReaders().Collect(), http::ProcessCollector("x").Collect(),
          OfHttp(), OfPackages(), OfSessions(),
          BackupFamilies({WallTime(1s), 3, 1, WallTime(2s)}, 60min),
          NotifyFamilies({{"on-call", 3, 1, 1, 2, WallTime(1s)}},
                         WallTime(60s))}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
};

TEST_F(CatalogueTest, PromtoolAgrees) {
  char path[] = "/tmp/lockstep_metrics_XXXXXX";
  const int fd = mkstemp(path);
  ASSERT_GE(fd, 0);
  ::close(fd);
  std::ofstream(path) << Text(All());
  const std::string command =
      std::string("promtool check metrics < ") + path + " 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string said;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    said.append(buffer, n);
  }
  const int status = ::pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "promtool is in Debian's package prometheus\n"
      << said;
  EXPECT_EQ(said, "");
  ::unlink(path);
}

// docs/metrics-coordinator.md and the code name the same families with the
// same types and labels.
TEST_F(CatalogueTest, TheTableInTheDocsIsTrue) {
  const char* const source = getenv("LOCKSTEP_SOURCE");
  ASSERT_NE(source, nullptr);
  std::ifstream table(JoinPath(source, "docs/metrics-coordinator.md"));
  std::set<std::string> documented;
  for (std::string line; std::getline(table, line);) {
    if (!line.starts_with("| `")) continue;
    // | `name` | C | label, label | meaning |
    std::istringstream cells(line);
    std::string skip, name, type, labels;
    std::getline(cells, skip, '|');
    std::getline(cells, name, '|');
    std::getline(cells, type, '|');
    std::getline(cells, labels, '|');
    documented.insert(name.substr(2, name.size() - 4) + " " +
                      type.substr(1, type.size() - 2) + labels);
  }
  std::set<std::string> shown;
  for (const auto& family : All()) {
    ASSERT_FALSE(family.metric.empty()) << family.name;
    const char* type = family.type == prometheus::MetricType::Counter ? "C"
                       : family.type == prometheus::MetricType::Gauge ? "G"
                                                                      : "H";
    std::string labels;
    for (const auto& label : family.metric[0].label) {
      labels += (labels.empty() ? "" : ", ") + label.name;
    }
    shown.insert(family.name + " " + type + " " + labels +
                 (labels.empty() ? "" : " "));
  }
  std::vector<std::string> only_there, only_here;
  std::set_difference(documented.begin(), documented.end(), shown.begin(),
                      shown.end(), std::back_inserter(only_there));
  std::set_difference(shown.begin(), shown.end(), documented.begin(),
                      documented.end(), std::back_inserter(only_here));
  EXPECT_THAT(only_there, testing::IsEmpty()) << "documented, not shown";
  EXPECT_THAT(only_here, testing::IsEmpty()) << "shown, not documented";
}

}  // namespace
}  // namespace lockstep::server
