// Jobs as clients submit, list and cancel them.
#include <gmock/gmock.h>

#include "tests/service/fixture.h"

namespace lockstep::server {
namespace {

using std::chrono_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<std::string> NamesOf(const v1::ListJobsResponse& list) {
  std::vector<std::string> names;
  for (const v1::Job& job : list.jobs()) names.push_back(job.name());
  return names;
}

// ---- SubmitJob ----

TEST_F(ServiceTest, SubmittedJobIsQueuedAndTheCallers) {
  const auto answer = Submit(SubmitRequest(Spec("mnist")));
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  const v1::Job& job = answer->job();
  EXPECT_EQ(job.name(), "mnist");
  EXPECT_EQ(job.uid(), "uid1");
  EXPECT_EQ(job.owner(), "user/ann");
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(job.resource_version(), 1);
  EXPECT_EQ(job.spec().roles(0).ranks_per_task(), 1) << "defaults are filled";
  EXPECT_EQ(job.spec().restart_budget(), 3);
  const auto now = Get("mnist");
  ASSERT_TRUE(now.ok());
  EXPECT_EQ(now->cause().reason(), v1::REASON_NO_NODES);
}

TEST_F(ServiceTest, SubmitNamesTheBadField) {
  struct Case {
    const char* field;
    std::function<void(v1::SubmitJobRequest*)> change;
  };
  const std::vector<Case> cases = {
      {"spec.name", [](auto* r) { r->mutable_spec()->set_name("../x"); }},
      {"spec.kind", [](auto* r) { r->mutable_spec()->clear_kind(); }},
      {"spec.roles[0].count",
       [](auto* r) { r->mutable_spec()->mutable_roles(0)->set_count(0); }},
      {"spec.roles[0].resources.cpus",
       [](auto* r) {
         r->mutable_spec()->mutable_roles(0)->mutable_resources()->set_cpus(-1);
       }},
      {"spec.priority", [](auto* r) { r->mutable_spec()->set_priority(5000); }},
      {"request_id", [](auto* r) { r->clear_request_id(); }},
      {"request_id", [](auto* r) { r->set_request_id(std::string(65, 'x')); }},
  };
  for (const Case& c : cases) {
    v1::SubmitJobRequest request = SubmitRequest(Spec("j"));
    c.change(&request);
    const Status status = Submit(request).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.field;
    EXPECT_THAT(Message(status), HasSubstr(c.field));
  }
  EXPECT_EQ(coordinator_->queries()->version(), 0) << "nothing was stored";
}

TEST_F(ServiceTest, RepeatedSubmitGetsTheSameBytes) {
  const v1::SubmitJobRequest request = SubmitRequest(Spec("j"));
  const auto first = Submit(request);
  ASSERT_TRUE(first.ok());
  clock_.Advance(5s);
  ASSERT_TRUE(Cancel("j", "c1").ok());
  const auto again = Submit(request);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(again->SerializeAsString(), first->SerializeAsString());
}

TEST_F(ServiceTest, SameRequestIdForOtherContentIsRefused) {
  v1::SubmitJobRequest request = SubmitRequest(Spec("j"));
  ASSERT_TRUE(Submit(request).ok());
  request.mutable_spec()->set_comment("other");
  const Status status = Submit(request).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(status), "REQUEST_ID_REUSED");
  // Somebody else may draw the same id.
  request.mutable_spec()->set_name("k");
  EXPECT_TRUE(Submit(request, User("bob")).ok());
}

// The order of a map's entries on the wire is no content.
TEST_F(ServiceTest, RepeatWithShuffledMapsIsTheSame) {
  v1::JobSpec spec = Spec("j");
  for (int i = 0; i < 20; ++i) {
    (*spec.mutable_environment())["V" + std::to_string(i)] = "x";
  }
  v1::SubmitJobRequest request = SubmitRequest(spec);
  ASSERT_TRUE(Submit(request).ok());
  request.mutable_spec()->clear_environment();
  for (int i = 19; i >= 0; --i) {
    (*request.mutable_spec()->mutable_environment())["V" + std::to_string(i)] =
        "x";
  }
  EXPECT_TRUE(Submit(request).ok());
}

TEST_F(ServiceTest, NameIsTakenForEver) {
  MustSubmit("j");
  const Status status = Submit(SubmitRequest(Spec("j"))).status();
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(ReasonOf(status), "JOB_EXISTS");
}

TEST_F(ServiceTest, JobThatNeverFitsIsRefusedWithTheNearest) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  v1::JobSpec spec = Spec("j");
  spec.mutable_roles(0)->mutable_resources()->set_cpus(8);
  const Status status = Submit(SubmitRequest(spec)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "NEVER_FITS");
  EXPECT_THAT(Message(status), HasSubstr("4 cpus (node a)"));
}

TEST_F(ServiceTest, ValidateOnlyPlansAndStoresNothing) {
  v1::SubmitJobRequest request = SubmitRequest(Spec("j"));
  request.clear_request_id();
  request.set_validate_only(true);
  auto plan = Submit(request);
  ASSERT_TRUE(plan.ok()) << Message(plan.status());
  EXPECT_EQ(plan->waiting().reason(), v1::REASON_NO_NODES);
  EXPECT_EQ(plan->placement_size(), 0);
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  plan = Submit(request);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->placement_size(), 1);
  EXPECT_EQ(plan->placement(0).node(), "a");
  EXPECT_FALSE(plan->has_waiting());
  EXPECT_EQ(plan->job().name(), "j");
  EXPECT_FALSE(Get("j").ok());
  request.mutable_spec()->clear_argv();
  EXPECT_EQ(Submit(request).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ServiceTest, RolesAreChecked) {
  const auto request = SubmitRequest(Spec("j"));
  EXPECT_EQ(
      Submit(request, User("viv", pki::UserRole::kViewer)).status().code(),
      StatusCode::kPermissionDenied);
  EXPECT_EQ(Submit(request, Worker("a")).status().code(),
            StatusCode::kPermissionDenied);
  EXPECT_TRUE(Submit(request, User("root", pki::UserRole::kAdmin)).ok());
}

TEST_F(ServiceTest, StoreThatCannotWriteIsUnavailable) {
  store_.FailWith(Unavailable("writing: i/o error"));
  auto context = Context();
  // Retried by the channel until the deadline; this one is short.
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::milliseconds(500));
  const auto stub = v1::JobService::NewStub(User("ann"));
  v1::SubmitJobResponse response;
  const grpc::Status status =
      stub->SubmitJob(context.get(), SubmitRequest(Spec("j")), &response);
  EXPECT_THAT(status.error_code(),
              testing::AnyOf(grpc::StatusCode::UNAVAILABLE,
                             grpc::StatusCode::DEADLINE_EXCEEDED));
  EXPECT_FALSE(Get("j").ok());
}

// ---- GetJob ----

TEST_F(ServiceTest, GetOffersNearNames) {
  MustSubmit("mnist");
  const Status status = Get("mnits").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(status), "NO_SUCH_JOB");
  EXPECT_THAT(Message(status), HasSubstr("did you mean mnist?"));
}

TEST_F(ServiceTest, GetRefusesWhatIsNoName) {
  for (const std::string name : {"", "a/b", "%s"}) {
    const Status status = Get(name).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr("name: "));
    EXPECT_THAT(Message(status), HasSubstr("{0,62}"));
  }
}

// ---- ListJobs ----

TEST_F(ServiceTest, ListGoesByPagesNewestFirst) {
  for (int i = 0; i < 5; ++i) {
    MustSubmit("j" + std::to_string(i));
    clock_.Advance(1s);
  }
  v1::ListJobsRequest request;
  request.set_page_size(2);
  std::vector<std::string> names;
  int pages = 0;
  for (;; ++pages) {
    const auto page = List(request);
    ASSERT_TRUE(page.ok()) << Message(page.status());
    EXPECT_LE(page->jobs_size(), 2);
    for (const std::string& name : NamesOf(*page)) names.push_back(name);
    for (const v1::Job& job : page->jobs()) EXPECT_EQ(job.events_size(), 0);
    if (page->next_page_token().empty()) break;
    request.set_page_token(page->next_page_token());
    // New ones come in front and disturb nobody.
    MustSubmit("n" + std::to_string(pages));
  }
  EXPECT_EQ(pages, 2);
  EXPECT_THAT(names, ElementsAre("j4", "j3", "j2", "j1", "j0"));
}

TEST_F(ServiceTest, ListOfAStateGoesOnWhenTheLastShownHasLeftIt) {
  for (int i = 0; i < 3; ++i) {
    MustSubmit("j" + std::to_string(i));
    clock_.Advance(1s);
  }
  v1::ListJobsRequest request;
  request.set_page_size(1);
  request.add_states(v1::JOB_STATE_QUEUED);
  auto page = List(request);
  ASSERT_TRUE(page.ok());
  EXPECT_THAT(NamesOf(*page), ElementsAre("j2"));
  ASSERT_TRUE(Cancel("j2", "c").ok());
  request.set_page_token(page->next_page_token());
  page = List(request);
  ASSERT_TRUE(page.ok()) << Message(page.status());
  EXPECT_THAT(NamesOf(*page), ElementsAre("j1"));
  request.clear_page_token();
  request.clear_states();
  request.add_states(v1::JOB_STATE_CANCELLED);
  EXPECT_THAT(NamesOf(*List(request)), ElementsAre("j2"));
}

TEST_F(ServiceTest, ListRefusesForgedTokensAndStates) {
  MustSubmit("j");
  v1::ListJobsRequest request;
  for (const std::string token : {"garbage", "after:", "after:zz"}) {
    request.set_page_token(token);
    const Status status = List(request).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << token;
    EXPECT_THAT(Message(status), HasSubstr("page_token"));
  }
  request.clear_page_token();
  request.set_page_size(-1);
  EXPECT_THAT(Message(List(request).status()), HasSubstr("page_size"));
  request.set_page_size(0);
  request.add_states(static_cast<v1::JobState>(99));
  EXPECT_THAT(Message(List(request).status()), HasSubstr("states"));
}

// ---- CancelJob ----

TEST_F(ServiceTest, CancelIsTheOwnersAndAdmins) {
  MustSubmit("j");
  const Status status = Cancel("j", "c1", User("bob")).status();
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(status), HasSubstr("job j belongs to user/ann"));
  EXPECT_EQ(State("j"), v1::JOB_STATE_QUEUED);
  const auto job = Cancel("j", "c2", User("root", pki::UserRole::kAdmin));
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(State("j"), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Get("j")->cause().message(), "cancelled by user/root");
}

TEST_F(ServiceTest, CancelOfAnEndedJobReturnsItAsItIs) {
  MustSubmit("j");
  ASSERT_TRUE(Cancel("j", "c1").ok());
  const auto before = Get("j");
  const auto again = Cancel("j", "c2");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Get("j")->resource_version(), before->resource_version());
}

TEST_F(ServiceTest, CancelChecksItsFields) {
  EXPECT_EQ(Cancel("ghost", "c").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(Cancel("j", "").status()), HasSubstr("request_id"));
  EXPECT_THAT(Message(Cancel("", "c").status()), HasSubstr("name"));
}

// ---- RequestCheckpoint ----

class CheckpointServiceTest : public ServiceTest {
 protected:
  StatusOr<v1::RequestCheckpointResponse> Ask(const std::string& name,
                                              const std::string& id,
                                              const std::string& user = "ann") {
    const auto stub = v1::JobService::NewStub(User(user));
    v1::RequestCheckpointRequest request;
    request.set_name(name);
    request.set_request_id(id);
    return Answer<v1::RequestCheckpointResponse>(
        [&](auto* context, auto* response) {
          return stub->RequestCheckpoint(context, request, response);
        });
  }
};

TEST_F(CheckpointServiceTest, DirectiveReachesTheDaemonOnce) {
  DaemonStream daemon(Worker("a"));
  ASSERT_TRUE(daemon.Register("a"));
  v1::JobSpec spec = Spec("j");
  spec.set_kind(v1::JOB_KIND_NATIVE);
  spec.set_output_directory("/out");
  ASSERT_TRUE(Submit(SubmitRequest(spec)).ok());
  RunOn(&daemon, "j", true);
  const auto answer = Ask("j", "k1");
  ASSERT_TRUE(answer.ok()) << Message(answer.status());
  EXPECT_EQ(answer->directive().id(), 1u);
  EXPECT_EQ(answer->directive().kind(), v1::DIRECTIVE_KIND_CHECKPOINT);
  EXPECT_EQ(Ask("j", "k1")->directive().id(), 1u) << "a repeat";
  const Assignment assignment = daemon.NextAssignment();
  EXPECT_EQ(assignment.goal, Goal::kGo);
  EXPECT_THAT(assignment.directives, SizeIs(1));
  EXPECT_EQ(Ask("j", "k2", "bob").status().code(),
            StatusCode::kPermissionDenied);
}

TEST_F(CheckpointServiceTest, IsRefusedWithTheReason) {
  MustSubmit("program");
  EXPECT_EQ(ReasonOf(Ask("program", "1").status()), "NOT_RUNNING");
  v1::JobSpec spec = Spec("native");
  spec.set_kind(v1::JOB_KIND_NATIVE);
  ASSERT_TRUE(Submit(SubmitRequest(spec)).ok());
  EXPECT_EQ(ReasonOf(Ask("native", "2").status()), "NO_OUTPUT_DIRECTORY");
  spec.set_name("waiting");
  spec.set_output_directory("/out");
  ASSERT_TRUE(Submit(SubmitRequest(spec)).ok());
  const Status status = Ask("waiting", "3").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "NOT_RUNNING");
  EXPECT_EQ(Ask("ghost", "4").status().code(), StatusCode::kNotFound);
}

// ---- ResizeJob ----

class ResizeServiceTest : public ServiceTest {
 protected:
  ResizeServiceTest() {
    spec_ = Spec("j");
    spec_.set_kind(v1::JOB_KIND_PROGRAM);
    spec_.mutable_roles(0)->set_type(v1::TASK_TYPE_WORKER);
    spec_.mutable_roles(0)->set_count(3);
    spec_.set_elastic_min_tasks(1);
    spec_.set_rescale(true);
  }
  StatusOr<v1::Job> Resize(const std::string& name, int32_t tasks,
                           const std::string& id,
                           const std::string& user = "ann") {
    const auto stub = v1::JobService::NewStub(User(user));
    v1::ResizeJobRequest request;
    request.set_name(name);
    request.set_request_id(id);
    request.set_tasks(tasks);
    return Answer<v1::Job>([&](auto* context, auto* response) {
      return stub->ResizeJob(context, request, response);
    });
  }
  v1::JobSpec spec_;
};

TEST_F(ResizeServiceTest, IsTheOwnersAndShown) {
  ASSERT_TRUE(Submit(SubmitRequest(spec_)).ok());
  EXPECT_EQ(Resize("j", 2, "1", "bob").status().code(),
            StatusCode::kPermissionDenied);
  const auto job = Resize("j", 2, "2");
  ASSERT_TRUE(job.ok()) << Message(job.status());
  EXPECT_EQ(job->wanted_tasks(), 2);
  EXPECT_EQ(Resize("j", 2, "2")->resource_version(), job->resource_version())
      << "a repeat";
  EXPECT_EQ(Get("j")->wanted_tasks(), 2);
  EXPECT_EQ(Get("j")->events(1).reason(), v1::REASON_RESIZED);
  EXPECT_EQ(Get("j")->events(1).message(), "user/ann wants 2 tasks");
}

TEST_F(ResizeServiceTest, IsRefusedWithTheReason) {
  ASSERT_TRUE(Submit(SubmitRequest(spec_)).ok());
  const Status outside = Resize("j", 4, "1").status();
  EXPECT_EQ(outside.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(outside), HasSubstr("may have 1 to 3 tasks"));
  spec_.set_name("fixed");
  spec_.set_rescale(false);
  spec_.set_elastic_min_tasks(0);
  ASSERT_TRUE(Submit(SubmitRequest(spec_)).ok());
  const Status fixed = Resize("fixed", 2, "2").status();
  EXPECT_EQ(fixed.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(fixed), "FIXED_SIZE");
  EXPECT_EQ(Resize("ghost", 2, "3").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(Resize("j", 2, "").status()), HasSubstr("request_id"));
}

}  // namespace
}  // namespace lockstep::server
