// Jobs in AI Platform's words, and what belongs to them: labels, lists.
#include <gmock/gmock.h>

#include "tests/service/training_job_fixture.h"

namespace lockstep::server {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// ---- SubmitJob with `training` ----

TEST_F(TrainingJobTest, AContainerJobBecomesASpec) {
  const auto answer = Submit(Request(Container("cats")));
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  const v1::JobSpec& spec = answer->job().spec();
  EXPECT_EQ(spec.kind(), v1::JOB_KIND_PROGRAM);
  ASSERT_EQ(spec.roles_size(), 2);
  for (const v1::RoleSpec& role : spec.roles()) {
    EXPECT_EQ(role.container().image(), "registry.local/p/trainer:1");
    EXPECT_THAT(role.argv(),
                ElementsAre("trainer/task.py", "--job-dir", "/data/out"));
    EXPECT_EQ(role.machine().type(), "n1-standard-4");
    EXPECT_EQ(role.machine().nominal().cpus(), 4);
    EXPECT_EQ(role.resources().cpus(), 1);
  }
  EXPECT_EQ(spec.output_directory(), "/data/out");
  EXPECT_EQ(spec.job_dir(), "/data/out");
  EXPECT_EQ(spec.max_running_time().seconds(), 7200);
  EXPECT_EQ(spec.labels().at("team"), "vision");
  EXPECT_FALSE(spec.master_in_tf_config());
  EXPECT_THAT(answer->notes(), Contains("trainingInput.region: us-central1 "
                                        "uses the default pool, all nodes"));
  EXPECT_EQ(spec.pool(), "");
  EXPECT_THAT(answer->job().events(),
              Contains(testing::Property(
                  &v1::Event::message,
                  HasSubstr("us-central1 uses the default pool"))));
  EXPECT_NEAR(answer->ml_units_per_hour(), 2 * 0.3878, 1e-9);
  EXPECT_NEAR(answer->cost_per_hour(), 2 * 4 * Prices().core_hour, 1e-9);
  EXPECT_EQ(answer->currency(), "USD");
  // TF_CONFIG repeats what came in, in its words.
  EXPECT_EQ(spec.tf_config_job(),
            R"({"scale_tier":"CUSTOM","region":"us-central1",)"
            R"("master_type":"n1-standard-4",)"
            R"("master_config":{"image_uri":"gcr.io/p/trainer:1"},)"
            R"("worker_type":"n1-standard-4","worker_count":"1",)"
            R"("args":["trainer/task.py"],"job_dir":"/data/out",)"
            R"("use_chief_in_tf_config":true,)"
            R"("scheduling":{"max_running_time":"7200s"}})");
  // And the job keeps it.
  const auto job = Get("cats");
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->training().SerializeAsString(),
            answer->job().training().SerializeAsString());
  EXPECT_EQ(job->training().training_input().worker_count(), 1);
  EXPECT_EQ(job->queue_position(), 1);
  EXPECT_EQ(job->bill().ml_units(), 0);
}

// As on AI Platform, where a spec of the API ends with all its ranks.
TEST_F(TrainingJobTest, TheJobEndsWithItsChief) {
  const auto answer = Submit(Request(Container("cats")));
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_EQ(answer->job().spec().end_with(), v1::END_WITH_CHIEF);
  const auto job = coordinator_->queries()->GetJob("cats");
  ASSERT_TRUE(job.ok()) << Message(job.status());
  EXPECT_EQ(job->job->spec.end_with, EndWith::kChief);
  EXPECT_EQ(job->job->spec.end_grace, std::chrono::minutes(5));
  const auto all = Submit(SubmitRequest(Spec("spec")));
  ASSERT_TRUE(all.ok()) << Message(all.status());
  EXPECT_NE(all->job().spec().end_with(), v1::END_WITH_CHIEF);
}

TEST_F(TrainingJobTest, ARegionChoosesItsPool) {
  v1::TrainingJob job = Container("pooled");
  job.mutable_training_input()->set_region("mars");
  v1::SubmitJobRequest request = Request(job);
  request.set_validate_only(true);
  auto plan = Submit(request);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  EXPECT_EQ(plan->job().spec().pool(), "a100");
  EXPECT_THAT(plan->notes(), Not(Contains(HasSubstr("region"))));
  EXPECT_EQ(plan->waiting().message(), "no worker daemon is registered");
  const auto answer = Submit(Request(job));
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_EQ(Get("pooled")->spec().pool(), "a100");
  EXPECT_EQ(Get("pooled")->training().training_input().region(), "mars");
}

TEST_F(TrainingJobTest, WhatIsWrongIsNamedInTheCallersWords) {
  const struct {
    std::function<void(v1::TrainingJob*)> change;
    const char* want;
  } cases[] = {
      {[](auto* j) { j->set_job_id("1"); }, "jobId: "},
      {[](auto* j) { (*j->mutable_labels())["A B"] = ""; }, "labels: "},
      {[](auto* j) { (*j->mutable_lockstep()->mutable_env())["RANK"] = "1"; },
       "lockstep.env"},
      {[](auto* j) {
         j->mutable_lockstep()->add_inherited_environment("LD_X");
       },
       "lockstep.inheritedEnvironment[0]: "},
      {[](auto* j) { j->mutable_training_input()->set_job_dir("/a/../b"); },
       "trainingInput.jobDir: "},
      {[](auto* j) { j->mutable_training_input()->set_master_type("n2"); },
       "trainingInput.masterType: there is no machine type"},
      {[](auto* j) { j->mutable_training_input()->set_worker_count(5450); },
       "TF_CONFIG has room for the addresses of"},
      {[](auto* j) {
         j->mutable_training_input()->add_args(std::string(200'000, 'x'));
       },
       "trainingInput.args"},
      {[](auto* j) { j->mutable_training_input()->set_runtime_version("2.1"); },
       "trainingInput.runtimeVersion: is for a Python package"},
  };
  for (const auto& c : cases) {
    for (const bool validate_only : {false, true}) {
      v1::TrainingJob job = Container("wrong");
      c.change(&job);
      v1::SubmitJobRequest request = Request(job);
      request.set_validate_only(validate_only);
      const Status status = Submit(request).status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.want;
      EXPECT_THAT(Message(status), HasSubstr(c.want));
      EXPECT_THAT(Message(status), Not(HasSubstr("spec.")));
    }
  }
  v1::SubmitJobRequest both = Request(Container("both"));
  *both.mutable_spec() = Spec("both");
  EXPECT_THAT(Message(Submit(both).status()),
              HasSubstr("training: cannot be combined with spec"));
  EXPECT_EQ(Get("wrong").status().code(), StatusCode::kNotFound);
}

// An argument that Linux takes is taken; what only repeats it is left out.
TEST_F(TrainingJobTest, ALongArgumentIsNotRepeatedInTfConfig) {
  v1::TrainingJob job = Container("long");
  job.mutable_training_input()->add_args(std::string(100'000, 'x'));
  const auto answer = Submit(Request(job));
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_EQ(answer->job().spec().tf_config_job(), "");
  EXPECT_THAT(answer->notes(), Contains(HasSubstr("is too large")));
}

// A retry gets the first answer, even when the table would now say otherwise.
TEST_F(TrainingJobTest, ARepeatGetsTheFirstAnswerWithItsNotes) {
  const v1::SubmitJobRequest request = Request(Container("cats"));
  const auto first = Submit(request);
  ASSERT_TRUE(first.ok()) << Message(first.status());
  site_.machines = {};
  tables_->Set(site_);
  const auto again = Submit(request);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(again->SerializeAsString(), first->SerializeAsString());
  EXPECT_THAT(again->notes(), Not(IsEmpty()));
}

TEST_F(TrainingJobTest, ValidateOnlyPlansAndChangesNothing) {
  v1::SubmitJobRequest request = Request(Module("mnist"));
  request.set_validate_only(true);
  request.clear_request_id();
  auto answer = Submit(request);
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_EQ(answer->waiting().reason(), v1::REASON_NO_NODES);
  EXPECT_NEAR(answer->ml_units_per_hour(), 0.3878, 1e-9);
  DaemonStream daemon(Worker("node-a"));
  ASSERT_TRUE(daemon.Register("node-a"));
  answer = Submit(request);
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  ASSERT_EQ(answer->placement_size(), 1);
  EXPECT_EQ(answer->placement(0).node(), "node-a");
  EXPECT_EQ(answer->job().spec().runtime().name(), "tf2");
  EXPECT_EQ(Get("mnist").status().code(), StatusCode::kNotFound);
}

TEST_F(TrainingJobTest, AnUnknownVersionIsInTheHistory) {
  ASSERT_TRUE(Upload(PackageOf("code"), {"code"}).ok());
  v1::TrainingJob job = Module("old");
  job.mutable_training_input()->set_runtime_version("1.15");
  v1::SubmitJobRequest request = Request(job);
  *request.add_packages() = PackageOf("code");
  const auto answer = Submit(request);
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_TRUE(answer->job().spec().master_in_tf_config());
  EXPECT_EQ(answer->job().spec().runtime().python(), "python3");
  const std::string& event = answer->job().events().rbegin()->message();
  EXPECT_THAT(event, HasSubstr("1.15"));
  EXPECT_THAT(event, HasSubstr("python3"));
  EXPECT_THAT(answer->notes(), Contains(event));
}

// Lists and watches of many such jobs have to fit into messages.
TEST_F(TrainingJobTest, AJobIsBoundedAsAWhole) {
  v1::TrainingJob job = Container("wide");
  v1::TrainingInput* const in = job.mutable_training_input();
  for (int i = 0; i < 4; ++i) in->add_args(std::string(35'000, 'x'));
  const Status refused = Submit(Request(job)).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(refused), HasSubstr("at most 262144 are allowed"));
  EXPECT_EQ(Get("wide").status().code(), StatusCode::kNotFound);
  in->mutable_args()->RemoveLast();
  const auto answer = Submit(Request(job));
  EXPECT_TRUE(answer.ok()) << Message(answer.status());
}

TEST_F(TrainingJobTest, ListsLeaveOutWhatAProgramIsCalledWith) {
  v1::TrainingJob job = Container("long");
  const std::string text = "very-long-text";
  job.mutable_training_input()->add_args(text);
  job.mutable_training_input()->mutable_master_config();
  (*job.mutable_lockstep()->mutable_env())["NAME"] = text;
  ASSERT_TRUE(Submit(Request(job)).ok());
  EXPECT_THAT(Get("long")->ShortDebugString(), HasSubstr(text));
  const auto list = List({});
  ASSERT_TRUE(list.ok()) << Message(list.status());
  ASSERT_EQ(list->jobs_size(), 1);
  EXPECT_EQ(list->jobs(0).spec().roles_size(), 2);
  EXPECT_EQ(list->jobs(0).training().training_input().region(), "us-central1");
  EXPECT_THAT(list->jobs(0).ShortDebugString(), Not(HasSubstr(text)));
}

// ---- UpdateJob, ListJobs ----

TEST_F(TrainingJobTest, LabelsAreUpdatedByWhoMay) {
  ASSERT_TRUE(Submit(Request(Container("cats"))).ok());
  v1::UpdateJobRequest request;
  request.set_request_id("u1");
  request.set_name("cats");
  request.add_remove_labels("team");
  (*request.mutable_labels())["stage"] = "test";
  EXPECT_EQ(Update(request, User("bob")).status().code(),
            StatusCode::kPermissionDenied);
  const auto job = Update(request, User("ann"));
  ASSERT_TRUE(job.ok()) << Message(job.status());
  EXPECT_EQ(job->spec().labels_size(), 1);
  EXPECT_EQ(job->spec().labels().at("stage"), "test");
  EXPECT_EQ(job->training().labels().at("team"), "vision") << "as it came in";
  request.set_request_id("u2");
  (*request.mutable_labels())["Stage"] = "test";
  EXPECT_THAT(Message(Update(request, User("ann")).status()),
              HasSubstr("labels: \"Stage\" is not a key"));
  request.clear_labels();
  request.set_resource_version(1);
  EXPECT_EQ(Update(request, User("ann")).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(TrainingJobTest, ListsAreFiltered) {
  ASSERT_TRUE(Submit(Request(Container("rnn_1"))).ok());
  MustSubmit("rnn_2");
  MustSubmit("cnn");
  ASSERT_TRUE(Cancel("rnn_2", "c1").ok());
  const auto names = [&](const std::string& filter) {
    v1::ListJobsRequest request;
    request.set_filter(filter);
    std::vector<std::string> out;
    // One at a time: what is filtered away takes no place on a page.
    request.set_page_size(1);
    do {
      const auto list = List(request);
      EXPECT_TRUE(list.ok()) << Message(list.status());
      if (!list.ok()) return out;
      for (const v1::Job& job : list->jobs()) out.push_back(job.name());
      request.set_page_token(list->next_page_token());
    } while (!request.page_token().empty());
    return out;
  };
  EXPECT_THAT(names("jobId:rnn*"),
              testing::UnorderedElementsAre("rnn_1", "rnn_2"));
  EXPECT_THAT(names("jobId:rnn* AND state:CANCELLED"), ElementsAre("rnn_2"));
  EXPECT_THAT(names("labels.team=vision"), ElementsAre("rnn_1"));
  EXPECT_THAT(names("state=QUEUED AND owner=user/ann"),
              testing::UnorderedElementsAre("rnn_1", "cnn"));
  v1::ListJobsRequest request;
  request.set_filter("jobid:x");
  EXPECT_EQ(List(request).status().code(), StatusCode::kInvalidArgument);
}

// ---- Priorities ----

class PriorityTest : public TrainingJobTest {
 protected:
  // As a spec, or in AI Platform's words.
  v1::SubmitJobRequest At(const std::string& name, int32_t priority,
                          bool training) {
    if (!training) {
      v1::JobSpec spec = Spec(name);
      spec.set_priority(priority);
      return SubmitRequest(spec);
    }
    v1::TrainingJob job = Container(name);
    job.mutable_training_input()->mutable_scheduling()->set_priority(priority);
    return Request(job);
  }
  StatusOr<v1::Job> SetPriority(const std::string& name, int32_t priority,
                                const std::shared_ptr<grpc::Channel>& channel) {
    v1::UpdateJobRequest request;
    request.set_request_id("update-" + std::to_string(++requests_));
    request.set_name(name);
    request.set_priority(priority);
    return Update(request, channel);
  }
  std::shared_ptr<grpc::Channel> Admin() {
    return User("adam", pki::UserRole::kAdmin);
  }
};

TEST_F(PriorityTest, ASubmitterMayAskForNone) {
  for (const bool training : {false, true}) {
    for (const bool validate_only : {false, true}) {
      v1::SubmitJobRequest request = At("high", 1, training);
      request.set_validate_only(validate_only);
      const Status status = Submit(request).status();
      EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << status;
      EXPECT_EQ(ReasonOf(status), "PRIORITY_TOO_HIGH");
      EXPECT_THAT(Message(status),
                  HasSubstr("priority: 1 is more than the limit 0"));
    }
  }
  EXPECT_EQ(Get("high").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(Submit(At("low", 0, false)).ok());
  EXPECT_EQ(ReasonOf(SetPriority("low", 1, User("ann")).status()),
            "PRIORITY_TOO_HIGH");
  EXPECT_EQ(Get("low")->spec().priority(), 0);
}

TEST_F(PriorityTest, AnAdminMayAskForAny) {
  for (const bool training : {false, true}) {
    const std::string name = training ? "training" : "spec";
    const auto answer = Submit(At(name, 1000, training), Admin());
    ASSERT_TRUE(answer.ok()) << Message(answer.status());
    EXPECT_EQ(answer->job().spec().priority(), 1000);
  }
  ASSERT_TRUE(Submit(At("low", 0, false)).ok());
  const auto raised = SetPriority("low", 1000, Admin());
  ASSERT_TRUE(raised.ok()) << Message(raised.status());
  EXPECT_EQ(Get("low")->spec().priority(), 1000);
}

class PriorityCeilingTest : public PriorityTest {
 protected:
  PriorityCeilingTest() { max_submitter_priority_ = 10; }
};

TEST_F(PriorityCeilingTest, TheSiteSaysHowHighASubmitterMayGo) {
  for (const bool training : {false, true}) {
    const std::string name = training ? "training" : "spec";
    EXPECT_EQ(ReasonOf(Submit(At(name, 11, training)).status()),
              "PRIORITY_TOO_HIGH");
    const auto answer = Submit(At(name, 10, training));
    EXPECT_TRUE(answer.ok()) << Message(answer.status());
  }
  EXPECT_TRUE(SetPriority("spec", 3, User("ann")).ok());
  EXPECT_EQ(ReasonOf(SetPriority("spec", 11, User("ann")).status()),
            "PRIORITY_TOO_HIGH");
  EXPECT_EQ(Get("spec")->spec().priority(), 3);
}

}  // namespace
}  // namespace lockstep::server
