// Jobs in AI Platform's forms, their labels, and their logs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/cli/cli_fixture.h"
#include "client/cli/describe.h"
#include "client/cli/describe_tasks.h"
#include "client/cli/job_resource.h"
#include "client/cli/log_text.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

constexpr int64_t kViewStart = 1'767'225'600;  // 2026-01-01 00:00:00 UTC

WallTime AtSecond(int64_t second) {
  return FromUnixNanos((kViewStart + second) * 1'000'000'000);
}

void AddViewPhase(const char* name, int64_t seconds, v1::Job* job) {
  v1::PhaseDuration* const phase = job->add_phases();
  phase->set_phase(name);
  phase->mutable_duration()->set_seconds(seconds);
}

// A chief and a worker that came as a training job, running.
v1::Job RunningJob() {
  v1::Job job;
  job.set_name("fashion");
  job.set_resource_version(42);
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_generation(2);
  job.set_attempt(2);
  job.mutable_create_time()->set_seconds(kViewStart);
  job.mutable_start_time()->set_seconds(kViewStart + 10);
  job.mutable_state_time()->set_seconds(kViewStart + 100);
  AddViewPhase("queued", 4, &job);
  AddViewPhase("preparing", 6, &job);
  AddViewPhase("running", 20, &job);
  (*job.mutable_spec()->mutable_labels())["team"] = "vision";
  const v1::TaskType types[] = {v1::TASK_TYPE_CHIEF, v1::TASK_TYPE_WORKER};
  for (int i = 0; i < 2; ++i) {
    v1::RoleSpec* const role = job.mutable_spec()->add_roles();
    role->set_type(types[i]);
    role->set_count(1);
    role->mutable_machine()->set_type("n1-standard-8");
    role->mutable_machine()->set_ml_units_per_hour(1.4898);
    v1::TaskStatus* const task = job.add_tasks();
    task->set_type(types[i]);
    task->set_node(i == 0 ? "host-a" : "host-b");
    v1::RankStatus* const rank = task->add_ranks();
    rank->set_rank(i);
    rank->set_state(v1::RANK_STATE_STARTED);
    v1::Usage* const usage = rank->mutable_usage();
    usage->set_seconds(60);
    usage->set_cpu_seconds(90);
    usage->set_cpu_peak_cores(3.5);
    usage->set_memory_bytes(1ll << 30);
    usage->set_memory_peak_bytes(2ll << 30);
    for (const char* part : {"fetch", "ports", "preflight", "exec"}) {
      v1::PhaseDuration* const took = task->mutable_preparation()->add_parts();
      took->set_phase(part);
      took->mutable_duration()->set_nanos(
          part == std::string("fetch") ? 900'000'000 * (i + 1) / 2 : 1'000'000);
    }
  }
  v1::TrainingInput* const input =
      job.mutable_training()->mutable_training_input();
  input->set_scale_tier("CUSTOM");
  input->set_master_type("n1-standard-8");
  input->set_worker_count(1);
  input->add_args("--epochs=1");
  job.mutable_training()->mutable_lockstep()->set_runtime("tf");
  job.mutable_bill()->set_ml_units(1.78999);
  job.mutable_bill()->set_core_seconds(800);
  return job;
}

class ViewsTest : public CliTest {
 protected:
  void Serve(const std::vector<v1::Job>& jobs) {
    server_->Update([&](FakeAnswers* a) { a->jobs = jobs; });
  }
  ordered_json Json() { return ordered_json::parse(out_.str()); }
};

TEST(JobResourceTest, StatesAreTheSeven) {
  v1::Job job;
  job.set_state(v1::JOB_STATE_QUEUED);
  EXPECT_EQ(ResourceState(job), "QUEUED");
  job.set_state(v1::JOB_STATE_PREPARING);
  EXPECT_EQ(ResourceState(job), "PREPARING");
  AddViewPhase("preparing", 1, &job);
  // A second try does not go back.
  job.set_state(v1::JOB_STATE_QUEUED);
  EXPECT_EQ(ResourceState(job), "PREPARING");
  job.mutable_start_time()->set_seconds(1);
  EXPECT_EQ(ResourceState(job), "RUNNING");
  job.set_state(v1::JOB_STATE_FINISHING);
  job.mutable_cause()->set_reason(v1::REASON_RANK_EXIT);
  EXPECT_EQ(ResourceState(job), "RUNNING");
  for (const v1::Reason reason :
       {v1::REASON_CANCELLED_BY_USER, v1::REASON_MAX_RUNNING_TIME}) {
    job.mutable_cause()->set_reason(reason);
    EXPECT_EQ(ResourceState(job), "CANCELLING");
  }
  job.set_state(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(ResourceState(job), "CANCELLED");
  job.set_state(static_cast<v1::JobState>(77));
  EXPECT_EQ(ResourceState(job), "STATE_UNSPECIFIED");
}

TEST(JobResourceTest, FieldsOfTheService) {
  v1::Job job = RunningJob();
  EXPECT_EQ(ServiceFields(job), ordered_json::parse(R"({
    "createTime": "2026-01-01T00:00:00Z",
    "etag": "NDI=",
    "jobId": "fashion",
    "jobPosition": "0",
    "labels": {"team": "vision"},
    "startTime": "2026-01-01T00:00:10Z",
    "state": "RUNNING",
    "trainingInput": {"scaleTier": "CUSTOM", "masterType": "n1-standard-8",
                      "workerCount": "1", "args": ["--epochs=1"]},
    "trainingOutput": {"consumedMLUnits": 1.79}
  })"));
  job.set_state(v1::JOB_STATE_FAILED);
  job.mutable_end_time()->set_seconds(kViewStart + 200);
  job.mutable_cause()->set_message("rank 0: exit code 3");
  const ordered_json resource = JobResource(job);
  EXPECT_EQ(resource["errorMessage"], "rank 0: exit code 3");
  EXPECT_EQ(resource["endTime"], "2026-01-01T00:03:20Z");
  EXPECT_EQ(resource["lockstep"]["state"], "JOB_STATE_FAILED");
  EXPECT_EQ(resource["lockstep"]["tasks"].size(), 2u);
  EXPECT_EQ(resource["lockstep"]["input"]["runtime"], "tf");
  EXPECT_FALSE(resource["lockstep"].contains("training"));
  // One that came by `submit` has the same, as far as it goes.
  job.clear_training();
  job.mutable_bill()->clear_ml_units();
  EXPECT_FALSE(JobResource(job).contains("trainingInput"));
  EXPECT_FALSE(JobResource(job).contains("trainingOutput"));
}

TEST_F(ViewsTest, DescribeInEveryForm) {
  Serve({RunningJob()});
  EXPECT_EQ(Run({"jobs", "describe", "fashion", "-o", "json"}), 0)
      << err_.str();
  EXPECT_EQ(Json()["state"], "RUNNING");
  EXPECT_EQ(Json()["lockstep"]["attempt"], 2);
  EXPECT_EQ(Run({"jobs", "describe", "fashion", "-o", "yaml"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("\n  workerCount: '1'\n"));
  EXPECT_THAT(out_.str(), HasSubstr("\nlockstep:\n  name: fashion\n"));
  EXPECT_EQ(Run({"jobs", "describe", "fashion", "--format",
                 "value(state,trainingInput.masterType)"}),
            0);
  EXPECT_EQ(out_.str(), "RUNNING\tn1-standard-8\n");
  EXPECT_EQ(Run({"jobs", "describe", "fashion", "--format=json(jobId)"}), 0);
  EXPECT_EQ(Json(), ordered_json({{"jobId", "fashion"}}));
  EXPECT_EQ(Run({"jobs", "describe", "fashion", "--format=default"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("jobId: fashion\n"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("lockstep:")));
  EXPECT_EQ(Run({"jobs", "describe", "fashion", "--format=xml"}), 2);
  EXPECT_EQ(
      Run({"jobs", "describe", "fashion", "--format=json", "--summarize"}), 2);
}

// As the coordinator sends another user's job.
v1::Job HiddenJob() {
  v1::Job job = RunningJob();
  job.set_details_hidden(true);
  job.set_owner("user/ann");
  job.set_state(v1::JOB_STATE_FAILED);
  job.mutable_cause()->set_reason(v1::REASON_RANK_EXIT);
  job.mutable_cause()->clear_message();
  v1::Attempt* const attempt = job.add_attempts();
  attempt->set_ordinal(1);
  attempt->mutable_end_cause()->set_reason(v1::REASON_NODE_LOST);
  job.mutable_progress()->mutable_chief()->set_committed_step(9);
  return job;
}

TEST_F(ViewsTest, WhatIsHiddenIsSaid) {
  Serve({HiddenJob()});
  EXPECT_EQ(Run({"jobs", "describe", "fashion"}), 0) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("\nwhy          RANK_EXIT\n"));
  EXPECT_THAT(out_.str(), HasSubstr("\nnot shown    arguments, environment"));
  EXPECT_THAT(out_.str(), HasSubstr("only user/ann and admins see them"));
  EXPECT_THAT(out_.str(), HasSubstr("visibility: cluster"));
  EXPECT_THAT(out_.str(), HasSubstr("NODE_LOST"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("loss 0")));
  EXPECT_EQ(err_.str(), "");
  EXPECT_EQ(Run({"jobs", "list"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("RANK_EXIT"));
  EXPECT_EQ(Run({"jobs", "describe", "fashion", "-o", "json"}), 0);
  EXPECT_EQ(Json()["lockstep"]["detailsHidden"], true);
  EXPECT_EQ(Json()["errorMessage"], "RANK_EXIT");
  EXPECT_EQ(Run({"jobs", "describe", "fashion", "--format=value(state)"}), 0);
  EXPECT_EQ(out_.str(), "FAILED\n");
  EXPECT_THAT(err_.str(),
              HasSubstr("hidden details of job fashion: arguments"));
  EXPECT_NE(Run({"jobs", "describe", "fashion", "--reduction-plan"}), 0);
  EXPECT_THAT(err_.str(),
              HasSubstr("only user/ann and admins may see the reduction"));
  // Of one's own nothing is said.
  Serve({RunningJob()});
  EXPECT_EQ(Run({"jobs", "describe", "fashion"}), 0);
  EXPECT_THAT(out_.str(), Not(HasSubstr("not shown")));
}

TEST_F(ViewsTest, RecoveriesAreListed) {
  v1::Job job = RunningJob();
  v1::InPlaceRecovery* const lost = job.add_in_place_recoveries();
  lost->set_generation(3);
  lost->set_number(1);
  lost->mutable_start_time()->set_seconds(1'767'225'600);
  lost->mutable_end_time()->set_seconds(1'767'225'602);
  lost->mutable_cause()->set_message("rank 1 is killed");
  lost->add_replaced_ranks(1);
  lost->add_away_ranks(1);
  lost->add_away_ranks(3);
  lost->set_step(1204);
  v1::InPlaceRecovery* const unfinished = job.add_in_place_recoveries();
  unfinished->set_generation(3);
  unfinished->set_number(2);
  unfinished->mutable_cause()->set_message("rank 2 is killed");
  v1::InPlaceRecovery* const back = job.add_in_place_recoveries();
  back->set_generation(3);
  back->set_number(3);
  back->mutable_cause()->set_message("ranks 1, 3 are back");
  back->add_returned_ranks(1);
  back->add_returned_ranks(3);
  Serve({job});
  EXPECT_EQ(Run({"jobs", "describe", "fashion"}), 0) << err_.str();
  EXPECT_THAT(
      out_.str(),
      HasSubstr("GENERATION  RECOVERY  STARTED                  TOOK        "
                "AFTER STEP  NEW RANKS  AWAY  BACK  WHY"));
  EXPECT_THAT(
      out_.str(),
      HasSubstr("3           1         2026-01-01 00:00:00 UTC  2.0 s       "
                "1,204       1          1,3   -     rank 1 is killed"));
  EXPECT_THAT(out_.str(),
              testing::ContainsRegex("unfinished  - .* rank 2 is killed"));
  EXPECT_THAT(out_.str(), HasSubstr("-          -     1,3   ranks 1, 3 are "
                                    "back"));
}

TEST_F(ViewsTest, Summarize) {
  Serve({RunningJob()});
  EXPECT_EQ(Run({"jobs", "describe", "fashion", "--summarize"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr(" Job Overview "));
  EXPECT_THAT(out_.str(), HasSubstr("| fashion | 2026-01-01T00:00:00Z |"));
  EXPECT_THAT(out_.str(), HasSubstr(" Training Input Summary "));
  EXPECT_THAT(out_.str(), HasSubstr("| CUSTOM "));
  EXPECT_THAT(out_.str(), HasSubstr("| WORKER_COUNT |"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("PYTHON_MODULE")));
  EXPECT_THAT(out_.str(), HasSubstr(" Training Output Summary "));
  EXPECT_THAT(out_.str(), HasSubstr("| 1.79 "));
}

TEST_F(ViewsTest, ListAsGcloud) {
  v1::Job other = Ended("other", v1::JOB_STATE_FAILED);
  Serve({RunningJob(), other});
  EXPECT_EQ(Run({"jobs", "list", "--format=default"}), 0) << err_.str();
  EXPECT_EQ(out_.str(),
            "JOB_ID   STATUS   CREATED\n"
            "fashion  RUNNING  2026-01-01T00:00:00\n"
            "other    FAILED   -\n");
  EXPECT_EQ(Run({"jobs", "list", "--format=value(jobId)", "--sort-by=~jobId",
                 "--limit=1"}),
            0);
  EXPECT_EQ(out_.str(), "other\n");
  EXPECT_EQ(Run({"jobs", "list", "--format=json"}), 0);
  EXPECT_EQ(Json().size(), 2u);
  EXPECT_EQ(Run({"jobs", "list", "-o", "json"}), 0);
  EXPECT_EQ(Json()["jobs"][0]["jobId"], "fashion");
  EXPECT_EQ(Run({"jobs", "list", "--filter", "jobId:f* AND state:RUNNING",
                 "--filter", "labels.team=vision", "--page-size=7"}),
            0);
  EXPECT_EQ(server_->Answers().lists.back().filter(),
            "(jobId:f* AND state:RUNNING) AND (labels.team=vision)");
  EXPECT_EQ(server_->Answers().lists.back().page_size(), 7);
  // Ours are matched here.
  EXPECT_EQ(Run({"jobs", "list", "--filter", "name=oth*", "-o", "name"}), 0);
  EXPECT_EQ(out_.str(), "other\n");
  EXPECT_EQ(server_->Answers().lists.back().filter(), "");
  EXPECT_EQ(Run({"jobs", "list", "--filter", "labels.team=*"}), 0);
  EXPECT_EQ(server_->Answers().lists.back().filter(), "labels.team=*");
  EXPECT_EQ(Run({"jobs", "list", "--sort-by", "a("}), 2);
  EXPECT_EQ(Run({"jobs", "list", "--uri"}), 0);
  EXPECT_THAT(out_.str(),
              ::testing::MatchesRegex("lockstep://[^/]*/jobs/fashion\n"
                                      "lockstep://[^/]*/jobs/other\n"));
  EXPECT_EQ(Run({"jobs", "list", "--uri", "--format=json"}), 2);
  EXPECT_EQ(Run({"nodes", "list", "--uri", "-o", "json"}), 2);
}

TEST_F(ViewsTest, UpdateLabels) {
  Serve({RunningJob()});
  EXPECT_EQ(Run({"jobs", "update", "fashion", "--update-labels",
                 "team=audio,best=yes", "--remove-labels", "old,older"}),
            0)
      << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("Updated job [fashion]"));
  const auto updates = server_->Answers().updates;
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_THAT(updates[0].remove_labels(), ElementsAre("old", "older"));
  const std::map<std::string, std::string> labels(updates[0].labels().begin(),
                                                  updates[0].labels().end());
  EXPECT_THAT(labels, ElementsAre(Pair("best", "yes"), Pair("team", "audio")));
  EXPECT_EQ(Run({"jobs", "update", "fashion", "--clear-labels"}), 0);
  // Of one that is not const it would clear the labels.
  const FakeAnswers answers = server_->Answers();
  EXPECT_TRUE(answers.updates.back().clear_labels());
  EXPECT_EQ(Run({"jobs", "update", "fashion"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("nothing to change"));
  EXPECT_EQ(Run({"jobs", "update", "fashion", "--update-labels", "x"}), 2);
  EXPECT_EQ(Run({"jobs", "update", "nobody", "--clear-labels"}), 3);
}

TEST_F(ViewsTest, LogsAreChosen) {
  v1::LogLine line;
  line.mutable_time()->set_seconds(kViewStart);
  line.set_rank(1);
  line.set_attempt(2);
  line.set_stream("stderr");
  line.set_text("loss \xff nan");
  line.set_severity(v1::SEVERITY_ERROR);
  line.set_task("worker-replica-0");
  v1::LogLine event;
  event.set_rank(-1);
  event.set_task("service");
  event.set_text("2 ranks formed");
  event.set_severity(v1::SEVERITY_INFO);
  server_->Update([&](FakeAnswers* a) {
    a->jobs = {RunningJob()};
    for (const v1::TaskStatus& task : a->jobs[0].tasks()) {
      a->nodes.emplace_back().set_name(task.node());
    }
    a->lines = {line, event};
  });
  EXPECT_EQ(
      Run({"jobs", "logs", "fashion", "--task", "worker-replica-0,service",
           "--grep", "loss", "--severity", "warning", "--until",
           "2026-01-02T00:00:00Z", "--attempt", "2", "--events", "--prefix"}),
      0)
      << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("[service] 2 ranks formed\n"));
  const auto request = server_->Answers().log_requests.back();
  EXPECT_THAT(request.tasks(), ElementsAre("worker-replica-0", "service"));
  EXPECT_EQ(request.grep(), "loss");
  EXPECT_EQ(request.min_severity(), v1::SEVERITY_WARNING);
  EXPECT_TRUE(request.include_events());
  EXPECT_EQ(request.until().seconds(), kViewStart + 86400);
  EXPECT_EQ(Run({"jobs", "logs", "fashion", "-o", "json", "--filter",
                 "severity>=ERROR -labels.rank=7"}),
            0);
  EXPECT_EQ(Json(), ordered_json::parse(R"({
    "timestamp": "2026-01-01T00:00:00.000000000Z", "severity": "ERROR",
    "resource": {"labels": {"job_id": "fashion",
                            "task_name": "worker-replica-0"}},
    "labels": {"attempt": "2", "rank": "1", "stream": "stderr"},
    "textPayload": "loss )"
                                        "\xef\xbf\xbd"
                                        R"( nan"})"));
  EXPECT_EQ(server_->Answers().log_requests.back().min_severity(),
            v1::SEVERITY_ERROR);
  EXPECT_EQ(Run({"jobs", "logs", "fashion", "--filter", "severty=ERROR"}), 2);
  EXPECT_THAT(err_.str(), HasSubstr("--filter: column 1: there is no field "
                                    "severty; did you mean severity?"));
  // The last line of what the coordinator sends is not the last that matches.
  EXPECT_EQ(Run({"jobs", "logs", "fashion", "--filter", "labels.rank=1",
                 "--tail", "1"}),
            2);
  EXPECT_THAT(err_.str(), HasSubstr("--tail"));
  EXPECT_EQ(Run({"jobs", "logs", "fashion", "--severity", "loud"}), 2);
}

TEST_F(ViewsTest, StreamLogs) {
  v1::LogLine line;
  line.mutable_time()->set_seconds(kViewStart);
  line.set_text("epoch 1");
  line.set_severity(v1::SEVERITY_INFO);
  line.set_task("master-replica-0");
  server_->Update([&](FakeAnswers* a) {
    a->jobs = {Ended("a", v1::JOB_STATE_SUCCEEDED),
               Ended("b", v1::JOB_STATE_FAILED)};
    a->lines = {line};
  });
  EXPECT_EQ(Run({"jobs", "stream-logs", "a", "--polling-interval=5",
                 "--allow-multiline-logs"}),
            0)
      << err_.str();
  EXPECT_EQ(out_.str(),
            "INFO\t2026-01-01 00:00:00 +0000\tmaster-replica-0\t\tepoch 1\n");
  EXPECT_TRUE(server_->Answers().log_requests.back().follow());
  EXPECT_TRUE(server_->Answers().log_requests.back().include_events());
  EXPECT_EQ(Run({"jobs", "stream-logs", "b", "--task-name", "ps-replica-0"}),
            1);
  EXPECT_THAT(server_->Answers().log_requests.back().tasks(),
              ElementsAre("ps-replica-0"));
  EXPECT_FALSE(server_->Answers().log_requests.back().include_events());
  EXPECT_EQ(Run({"jobs", "stream-logs", "nobody"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("nobody"));
  EXPECT_EQ(Run({"jobs", "stream-logs", "a", "--polling-interval=x"}), 2);
}

TEST(LogTextTest, ALineWithoutATask) {
  v1::LogLine line;
  line.set_text("x");
  EXPECT_EQ(FormatStreamedLine(line),
            "DEFAULT\t1970-01-01 00:00:00 +0000\tunknown_task\t\tx\n");
}

TEST(DescribeJobTest, TellsHowTasksGotReadyAndWhatTheyUse) {
  const v1::Job job = RunningJob();
  const std::string text = FormatJob(job, AtSecond(165), Style{});
  EXPECT_THAT(text, HasSubstr("phases       queued 4.0 s, preparing 6.0 s, "
                              "running 1 m 25 s\n"));
  EXPECT_THAT(PreparationTable(job),
              HasSubstr("worker 0 on host-b took longest: 903 ms, 900 ms of it "
                        "for fetch\n"));
  EXPECT_EQ(UseTable(job),
            "TASK      CPU         CPU PEAK    MEMORY  MEMORY PEAK\n"
            "chief 0   1.50 cores  3.50 cores  1 GiB   2 GiB\n"
            "worker 0  1.50 cores  3.50 cores  1 GiB   2 GiB\n");
  v1::Job connected = job;
  for (v1::TaskStatus& task : *connected.mutable_tasks()) {
    v1::Usage* const usage = task.mutable_ranks(0)->mutable_usage();
    usage->set_network_sent_bytes(int64_t{3} << 20);
    usage->set_network_received_bytes(int64_t{5} << 30);
    if (task.index() != 0 || task.type() != v1::TASK_TYPE_CHIEF) continue;
    usage->clear_network_sent_bytes();
    usage->clear_network_received_bytes();
  }
  EXPECT_EQ(
      UseTable(connected),
      "TASK      CPU         CPU PEAK    MEMORY  MEMORY PEAK  SENT   RECEIVED\n"
      "chief 0   1.50 cores  3.50 cores  1 GiB   2 GiB        -      -\n"
      "worker 0  1.50 cores  3.50 cores  1 GiB   2 GiB        3 MiB  5 GiB\n");
  EXPECT_THAT(RanksTable(connected), HasSubstr("3 MiB out, 5 GiB in"));
  EXPECT_THAT(UsageText(connected),
              HasSubstr(", network 3 MiB out and 5 GiB in"));
  EXPECT_THAT(text,
              HasSubstr("ML units     2.9796 per hour: 1 n1-standard-8, 1 "
                        "n1-standard-8\n"));
  EXPECT_THAT(text, HasSubstr("1.7900 ML units"));
  EXPECT_THAT(text, HasSubstr("counted      resources reserved by its tasks"));
  EXPECT_THAT(text, HasSubstr("  2        2           2026-01-01 00:01:40 UTC  "
                              "-     -          continues: RUNNING\n"));
}

TEST(DescribeJobTest, TellsForWhomARankWaits) {
  v1::Job job = RunningJob();
  v1::RankStatus* const rank = job.mutable_tasks(0)->mutable_ranks(0);
  rank->set_state(v1::RANK_STATE_JOINED);
  rank->mutable_progress()->set_phase("allreduce");
  EXPECT_THAT(RanksTable(job), HasSubstr("(allreduce)")) << "it does not say";
  v1::CollectiveWait* const wait =
      rank->mutable_progress()->mutable_collective_wait();
  wait->set_responsive(true);
  wait->set_waiting(true);
  wait->set_peer(1);
  EXPECT_THAT(RanksTable(job), HasSubstr("(allreduce, waits for rank 1)"));
  rank->mutable_progress()->set_phase("compute");
  EXPECT_THAT(RanksTable(job), HasSubstr("(compute)"));
  rank->mutable_progress()->set_phase("allreduce");
  wait->set_responsive(false);
  EXPECT_THAT(RanksTable(job), HasSubstr("(allreduce, not responsive)"));
  rank->mutable_progress()->set_phase("finished");
  EXPECT_THAT(RanksTable(job), HasSubstr("(finished)"));
}

TEST(DescribeJobTest, TaskThatGetsReadySaysWithWhat) {
  v1::Job job = RunningJob();
  job.set_state(v1::JOB_STATE_PREPARING);
  v1::TaskPreparation* const preparation =
      job.mutable_tasks(0)->mutable_preparation();
  preparation->set_current("fetch");
  preparation->set_detail("fetching image busybox:1, 12 s");
  EXPECT_THAT(PreparationTable(job),
              HasSubstr("fetch: fetching image busybox:1, 12 s\n"));
  job.mutable_tasks()->Clear();
  EXPECT_EQ(PreparationTable(job), "");
}

TEST(DescribeJobTest, WhatIsOldIsNotShownAsNew) {
  v1::Job job = RunningJob();
  job.mutable_progress()->mutable_chief()->set_committed_step(10);
  job.mutable_progress()->mutable_chief()->set_loss(0.5);
  job.mutable_tasks(0)->mutable_ranks(0)->mutable_progress()->set_loss(0.7);
  job.mutable_tasks(0)
      ->mutable_ranks(0)
      ->mutable_progress()
      ->set_committed_step(9);
  // 65 s after RUNNING, reported 60 s after it began.
  EXPECT_THAT(FormatJob(job, AtSecond(162), Style{}), Not(HasSubstr("as of")));
  const std::string text = FormatJob(job, AtSecond(172), Style{});
  EXPECT_THAT(text, HasSubstr("loss 0.5  (as of 12s ago)\n"));
  // When it came counts, where that is said.
  job.mutable_progress()->mutable_time()->set_seconds(
      ToUnixNanos(AtSecond(162)) / 1'000'000'000 - 30);
  EXPECT_THAT(FormatJob(job, AtSecond(162), Style{}),
              HasSubstr("(as of 30s ago)"));
  EXPECT_THAT(text, Not(HasSubstr("loss 0.7"))) << "one loss is enough";
}

TEST(DescribeJobTest, AProgramThatReportsNothingIsAtNoStep) {
  v1::Job job = RunningJob();
  job.mutable_spec()->set_kind(v1::JOB_KIND_PROGRAM);
  job.mutable_spec()->mutable_roles(0)->add_argv("python3");
  job.mutable_progress()->mutable_chief();
  const std::string text = FormatJob(job, AtSecond(100), Style{});
  EXPECT_THAT(text, Not(HasSubstr("progress ")));
  EXPECT_THAT(text, HasSubstr("program      python3\n"));
}

TEST(DescribeJobTest, WhatItsImagesAre) {
  v1::Job job = RunningJob();
  v1::ImageContent* const image = job.add_images();
  image->set_image("reg.example/x:1");
  image->set_id("sha256:1");
  image->set_node("host-a");
  EXPECT_THAT(FormatJob(job, AtSecond(100), Style{}),
              HasSubstr("image        reg.example/x:1 is sha256:1, as first on "
                        "host-a\n"));
  image->set_digest("sha256:2");
  EXPECT_THAT(FormatJob(job, AtSecond(100), Style{}),
              HasSubstr("is sha256:2, as"));
}

TEST(DescribeJobTest, OutputsAndPosition) {
  v1::Job job = RunningJob();
  v1::OutputFile* const file = job.add_outputs();
  file->set_path("export/1");
  file->set_kind("saved_model");
  file->set_bytes(3 << 20);
  EXPECT_THAT(FormatJob(job, AtSecond(100), Style{}),
              HasSubstr("  saved_model  3 MiB  export/1\n"));
  job.set_state(v1::JOB_STATE_QUEUED);
  job.set_queue_position(3);
  job.clear_start_time();
  job.clear_phases();
  EXPECT_THAT(FormatJob(job, AtSecond(100), Style{}),
              HasSubstr("queue        position 3\n"));
  job.set_state(v1::JOB_STATE_FORMING);
  EXPECT_THAT(FormatJob(job, AtSecond(100), Style{}),
              HasSubstr("FORMING (of AI Platform's seven: PREPARING)"));
}

TEST(JobsTableTest, RanIsWithoutWaitingAndTroubleIsTold) {
  v1::Job job = RunningJob();
  job.mutable_cause()->set_reason(v1::REASON_NODE_UNKNOWN);
  job.mutable_cause()->set_message("node host-b is UNKNOWN");
  // 155 s since it first ran; it ran 20 s and then 65 s.
  EXPECT_EQ(RenderTable(JobsTable({job}, false, AtSecond(165), Style{})),
            "NAME     STATE    TASKS  STEP  RAN  AGE  WHY\n"
            "fashion  RUNNING  2      -     85s  2m   node host-b is "
            "UNKNOWN\n");
}

}  // namespace
}  // namespace lockstep::cli
