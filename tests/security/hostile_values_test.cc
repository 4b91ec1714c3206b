// Numbers, names and sizes that no honest client sends, at each method: each
// is INVALID_ARGUMENT that names the field, and changes nothing. (Specs of
// jobs, and messages of workers, field by field: common/wire/hostile_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/v1/options.pb.h"
#include "tests/security/random_message.h"
#include "tests/security/raw_call.h"
#include "tests/service/fixture.h"

namespace lockstep {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using testing::HasSubstr;

// Names of jobs and nodes that are none.
std::vector<std::string> BadNames() {
  return {"",
          std::string("a\0b", 3),
          "a\n",
          "a b",
          "%s%n%s%n",
          "../../etc/passwd",
          "/etc/passwd",
          "-",
          ".",
          std::string(64, 'a'),
          std::string(1 << 20, 'a'),
          "\xf0\x9f\x92\xa9"};
}

class HostileValuesTest : public server::ServiceTest {
 protected:
  void SetUp() override {
    server::ServiceTest::SetUp();
    admin_ = User("adam", pki::UserRole::kAdmin);
    MustSubmit("witness");
    before_ = coordinator_->queries()->version();
    commits_ = store_.commits();
  }
  void TearDown() override {
    EXPECT_EQ(coordinator_->queries()->version(), before_);
    EXPECT_EQ(store_.commits(), commits_) << "something was changed";
    EXPECT_EQ(coordinator_->queries()->ListJobs().size(), 1u);
    EXPECT_EQ(coordinator_->queries()->ListNodes().size(), 0u);
    server::ServiceTest::TearDown();
  }

  void Refused(const std::string& method, const Message& request,
               const std::string& field) {
    const RawAnswer answer =
        Call(admin_, method, {request.SerializeAsString()});
    EXPECT_EQ(answer.responses, 0) << method;
    EXPECT_EQ(answer.status.code(), StatusCode::kInvalidArgument)
        << method << ": " << answer.status;
    EXPECT_THAT(lockstep::Message(answer.status), HasSubstr(field)) << method;
    EXPECT_LT(lockstep::Message(answer.status).size(), 2048u) << method;
  }

  std::shared_ptr<grpc::Channel> admin_;
  int64_t before_ = 0;
  int64_t commits_ = 0;
};

// A request of `method` that is right but for what is then put in.
std::unique_ptr<Message> Right(const google::protobuf::MethodDescriptor& m) {
  auto request = NewMessage(*m.input_type());
  const auto set = [&](const char* name, const char* value) {
    const FieldDescriptor* field = m.input_type()->FindFieldByName(name);
    if (field == nullptr) return;
    request->GetReflection()->SetString(request.get(), field, value);
  };
  set("name", "witness");
  set("request_id", "request-hostile");
  return request;
}

TEST_F(HostileValuesTest, NamesAtEveryMethodThatTakesOne) {
  int methods = 0;
  for (const auto* method : AllMethods()) {
    const auto* field = method->input_type()->FindFieldByName("name");
    if (field == nullptr) continue;
    ++methods;
    for (const std::string& bad : BadNames()) {
      // An empty name watches all jobs.
      if (bad.empty() && method->name() == "WatchJobs") continue;
      const auto request = Right(*method);
      request->GetReflection()->SetString(request.get(), field, bad);
      Refused(PathOf(*method), *request, "name");
    }
  }
  EXPECT_GE(methods, 9);
}

TEST_F(HostileValuesTest, RequestIdsAtEveryMethodThatTakesOne) {
  int methods = 0;
  for (const auto* method : AllMethods()) {
    const auto* field = method->input_type()->FindFieldByName("request_id");
    if (field == nullptr) continue;
    ++methods;
    for (const std::string& bad :
         {std::string(), std::string(65, 'r'), std::string(1 << 20, 'r')}) {
      const auto request = Right(*method);
      if (auto* submit = dynamic_cast<v1::SubmitJobRequest*>(request.get())) {
        *submit->mutable_spec() = Spec("fresh");
      }
      request->GetReflection()->SetString(request.get(), field, bad);
      Refused(PathOf(*method), *request, "request_id");
    }
  }
  EXPECT_GE(methods, 6);
}

TEST_F(HostileValuesTest, PagesOfLists) {
  for (const char* path : {"/lockstep.v1.JobService/ListJobs",
                           "/lockstep.v1.ClusterService/ListNodes"}) {
    v1::ListJobsRequest request;  // Both begin with these two fields.
    for (const int32_t size : {-1, INT32_MIN}) {
      request.set_page_size(size);
      Refused(path, request, "page_size");
    }
    request.set_page_size(INT32_MAX);
    for (const std::string& token :
         {std::string("after:nobody"), std::string("%s"), std::string("after:"),
          std::string(1 << 20, 't')}) {
      request.set_page_token(token);
      Refused(path, request, "page_token");
    }
  }
  v1::ListJobsRequest request;
  request.add_states(static_cast<v1::JobState>(77));
  Refused("/lockstep.v1.JobService/ListJobs", request, "states");
}

TEST_F(HostileValuesTest, Watches) {
  for (const int64_t version : {int64_t{-1}, INT64_MIN}) {
    v1::WatchJobsRequest request;
    request.set_resource_version(version);
    Refused("/lockstep.v1.JobService/WatchJobs", request, "resource_version");
  }
}

TEST_F(HostileValuesTest, Logs) {
  const struct {
    const char* field;
    std::function<void(v1::StreamLogsRequest*)> change;
  } cases[] = {
      {"ranks", [](auto* r) { r->add_ranks(-1); }},
      {"ranks", [](auto* r) { r->add_ranks(INT32_MIN); }},
      {"ranks",
       [](auto* r) {
         for (int i = 0; i < 100'000; ++i) r->add_ranks(i);
       }},
      {"attempt", [](auto* r) { r->set_attempt(-1); }},
      {"tail", [](auto* r) { r->set_tail(-1); }},
      {"tail", [](auto* r) { r->set_tail(INT64_MAX); }},
      {"since", [](auto* r) { r->mutable_since()->set_seconds(253402300800); }},
      {"since", [](auto* r) { r->mutable_since()->set_seconds(INT64_MIN); }},
      {"since", [](auto* r) { r->mutable_since()->set_nanos(-1); }},
  };
  for (const auto& c : cases) {
    v1::StreamLogsRequest request;
    request.set_name("witness");
    c.change(&request);
    Refused("/lockstep.v1.JobService/StreamLogs", request, c.field);
  }
}

TEST_F(HostileValuesTest, Drains) {
  const struct {
    const char* field;
    std::function<void(v1::DrainNodeRequest*)> change;
  } cases[] = {
      {"reason", [](auto* r) { r->set_reason(std::string(1025, 'x')); }},
      {"reason", [](auto* r) { r->set_reason(std::string("a\0b", 3)); }},
      {"grace", [](auto* r) { r->mutable_grace()->set_seconds(-1); }},
      {"grace", [](auto* r) { r->mutable_grace()->set_seconds(INT64_MAX); }},
      {"grace", [](auto* r) { r->mutable_grace()->set_nanos(-1); }},
      {"grace", [](auto* r) { r->mutable_grace()->set_nanos(INT32_MAX); }},
  };
  for (const auto& c : cases) {
    v1::DrainNodeRequest request;
    request.set_name("node-a");
    request.set_request_id("request-hostile");
    c.change(&request);
    Refused("/lockstep.v1.ClusterService/DrainNode", request, c.field);
  }
}

TEST_F(HostileValuesTest, Submissions) {
  const struct {
    const char* field;
    std::function<void(v1::JobSpec*)> change;
  } cases[] = {
      {"spec.name", [](auto* s) { s->set_name("../../etc"); }},
      {"spec.roles[0].count",
       [](auto* s) { s->mutable_roles(0)->set_count(-1); }},
      {"spec.roles[0].count",
       [](auto* s) { s->mutable_roles(0)->set_count(INT32_MAX); }},
      {"spec.roles[0].resources.cpus",
       [](auto* s) {
         s->mutable_roles(0)->mutable_resources()->set_cpus(1e308);
       }},
      {"spec.output_directory",
       [](auto* s) { s->set_output_directory("/data/../etc"); }},
      {"spec.max_running_time",
       [](auto* s) {
         s->mutable_max_running_time()->set_seconds(315576000000);
       }},
  };
  for (const auto& c : cases) {
    for (const bool validate_only : {false, true}) {
      v1::SubmitJobRequest request = SubmitRequest(Spec("fresh"));
      request.set_validate_only(validate_only);
      c.change(request.mutable_spec());
      Refused("/lockstep.v1.JobService/SubmitJob", request, c.field);
    }
  }
}

TEST_F(HostileValuesTest, TrainingJobs) {
  const struct {
    const char* field;
    std::function<void(v1::SubmitJobRequest*)> change;
  } cases[] = {
      {"jobId", [](auto* r) { r->mutable_training()->set_job_id("../x"); }},
      {"trainingInput.workerCount",
       [](auto* r) {
         v1::TrainingInput* in =
             r->mutable_training()->mutable_training_input();
         in->set_worker_type("n1-standard-4");
         in->set_worker_count(INT64_MAX);
       }},
      {"trainingInput.masterConfig.acceleratorConfig",
       [](auto* r) {
         auto* gpus = r->mutable_training()
                          ->mutable_training_input()
                          ->mutable_master_config()
                          ->mutable_accelerator_config();
         gpus->set_type("NVIDIA_TESLA_T4");
         gpus->set_count(INT64_MIN);
       }},
      {"trainingInput.scheduling.maxRunningTime",
       [](auto* r) {
         r->mutable_training()
             ->mutable_training_input()
             ->mutable_scheduling()
             ->mutable_max_running_time()
             ->set_seconds(INT64_MIN);
       }},
      {"lockstep.env",
       [](auto* r) {
         auto* env = r->mutable_training()->mutable_lockstep()->mutable_env();
         (*env)["LD_PRELOAD"] = "/evil.so";
       }},
      {"lockstep.ranksPerTask",
       [](auto* r) {
         r->mutable_training()->mutable_lockstep()->set_ranks_per_task("-1");
       }},
      {"trainingInput.masterConfig.imageUri",
       [](auto* r) {
         r->mutable_training()
             ->mutable_training_input()
             ->mutable_master_config()
             ->set_image_uri("--privileged");
       }},
      {"packages",
       [](auto* r) { r->add_packages()->set_digest("sha256:../../etc"); }},
      {"training", [](auto* r) { r->mutable_spec()->set_name("fresh"); }},
  };
  for (const auto& c : cases) {
    for (const bool validate_only : {false, true}) {
      v1::SubmitJobRequest request;
      request.set_request_id("request-hostile");
      request.set_validate_only(validate_only);
      request.mutable_training()->set_job_id("fresh");
      v1::TrainingInput* in =
          request.mutable_training()->mutable_training_input();
      in->set_scale_tier("CUSTOM");
      in->set_master_type("n1-standard-4");
      in->mutable_master_config()->set_image_uri("trainer:1");
      c.change(&request);
      Refused("/lockstep.v1.JobService/SubmitJob", request, c.field);
    }
  }
}

TEST_F(HostileValuesTest, Labels) {
  for (const std::string& key :
       {std::string(), std::string("A"), std::string("a b"),
        std::string(64, 'a'), std::string("a\0b", 3)}) {
    v1::UpdateJobRequest request;
    request.set_name("witness");
    request.set_request_id("request-hostile");
    (*request.mutable_labels())[key] = "x";
    Refused("/lockstep.v1.JobService/UpdateJob", request, "labels");
  }
  v1::ListJobsRequest list;
  for (const std::string& filter :
       {std::string("="), std::string(1 << 20, 'x'), std::string("a=\"b"),
        std::string("state:%n"), std::string("jobId:**")}) {
    list.set_filter(filter);
    Refused("/lockstep.v1.JobService/ListJobs", list, "filter");
  }
}

TEST_F(HostileValuesTest, Packages) {
  const std::string right = "sha256:" + std::string(64, 'a');
  const struct {
    const char* field;
    std::function<void(v1::Package*)> change;
  } cases[] = {
      {"package.digest", [](auto* p) { p->set_digest("sha256:../../../x"); }},
      {"package.digest",
       [](auto* p) { p->set_digest("sha256:" + std::string(64, 'A')); }},
      {"package.bytes", [](auto* p) { p->set_bytes(0); }},
      {"package.bytes", [](auto* p) { p->set_bytes(-1); }},
      {"package.bytes", [](auto* p) { p->set_bytes(INT64_MAX); }},
      {"package.format", [](auto* p) { p->clear_format(); }},
      {"package.file_name", [](auto* p) { p->set_file_name("../../x"); }},
      {"package.file_name", [](auto* p) { p->set_file_name(""); }},
  };
  for (const auto& c : cases) {
    v1::UploadPackageRequest request;
    v1::Package* package = request.mutable_package();
    package->set_digest(right);
    package->set_bytes(1);
    package->set_format(v1::PACKAGE_FORMAT_TREE);
    package->set_file_name("a.tar.gz");
    c.change(package);
    Refused("/lockstep.v1.PackageService/UploadPackage", request, c.field);
  }
  EXPECT_EQ(packages_->Stats().packages, 0u);
}

// Larger than any message may be: refused before it is read, by gRPC.
TEST_F(HostileValuesTest, MessagesThatAreTooLong) {
  for (const auto* method : AllMethods()) {
    const bool worker =
        method->options().GetExtension(v1::role) == v1::ROLE_WORKER;
    const auto channel = worker ? Worker("node-a") : admin_;
    const RawAnswer answer =
        Call(channel, PathOf(*method), {std::string(10 << 20, 'x')});
    EXPECT_EQ(answer.responses, 0) << PathOf(*method);
    EXPECT_FALSE(answer.status.ok() && !method->client_streaming())
        << PathOf(*method);
    EXPECT_NE(answer.status.code(), StatusCode::kDeadlineExceeded);
  }
}

}  // namespace
}  // namespace lockstep
