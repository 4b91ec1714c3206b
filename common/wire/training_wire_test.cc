#include "common/wire/training_wire.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/wire/job_wire.h"
#include "common/wire/value_wire.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TrainingJob Job() {
  TrainingJob job;
  job.job_id = "seed";
  TrainingInput& in = job.training_input;
  in.scale_tier = "CUSTOM";
  in.master.type = "n1-standard-8";
  in.master.config.accelerator_config = AcceleratorConfig{1, "NVIDIA_TESLA_T4"};
  in.worker = {"n1-standard-8", 0, {}};
  in.scheduling.max_running_time = std::chrono::milliseconds(1500);
  in.use_chief_in_tf_config = false;
  job.lockstep.ranks_per_gpu = true;
  return job;
}

TEST(TrainingWireTest, WhatWasGivenAsNothingIsStillGiven) {
  const auto again = FromProto(ToProto(Job()));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, Job());
  // A count of 0 was given, one that is absent was not.
  EXPECT_EQ(again->training_input.worker.count, 0);
  EXPECT_EQ(again->training_input.evaluator.count, std::nullopt);
}

// Programs that speak the JSON of that API's Job resource can send it.
TEST(TrainingWireTest, TheJsonFormIsTheJobResource) {
  v1::TrainingJob message;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(
                  R"({"jobId": "seed", "trainingInput": {
                      "scaleTier": "CUSTOM", "masterType": "n1-standard-8",
                      "masterConfig": {"acceleratorConfig":
                          {"count": "1", "type": "NVIDIA_TESLA_T4"}},
                      "workerType": "n1-standard-8", "workerCount": "0",
                      "useChiefInTfConfig": false,
                      "scheduling": {"maxRunningTime": "1.5s"}},
                      "lockstep": {"ranksPerTask": "gpu"}})",
                  &message)
                  .ok());
  const auto job = FromProto(message);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(*job, Job());
}

struct TrainingCase {
  const char* sentence;
  std::function<void(v1::TrainingJob*)> change;
};

TEST(TrainingWireTest, RefusalsNameTheField) {
  const std::string nul("a\0b", 3);
  const std::vector<TrainingCase> cases = {
      {"trainingInput.scaleTier",
       [&](auto* j) { j->mutable_training_input()->set_scale_tier(nul); }},
      {"trainingInput.workerType",
       [&](auto* j) {
         j->mutable_training_input()->set_worker_type(std::string(5000, 'a'));
       }},
      {"trainingInput.masterConfig.imageUri",
       [&](auto* j) {
         j->mutable_training_input()->mutable_master_config()->set_image_uri(
             nul);
       }},
      {"trainingInput.args[0]",
       [&](auto* j) {
         j->mutable_training_input()->add_args(std::string(200'000, 'a'));
       }},
      {"trainingInput.scheduling.maxRunningTime",
       [](auto* j) {
         j->mutable_training_input()
             ->mutable_scheduling()
             ->mutable_max_running_time()
             ->set_seconds(-1);
       }},
      {"lockstep.ranksPerTask",
       [](auto* j) { j->mutable_lockstep()->set_ranks_per_task("2x"); }},
      {"lockstep.env",
       [&](auto* j) { (*j->mutable_lockstep()->mutable_env())["A"] = nul; }},
  };
  for (const TrainingCase& c : cases) {
    v1::TrainingJob message = ToProto(Job());
    c.change(&message);
    const auto job = FromProto(message);
    ASSERT_FALSE(job.ok()) << c.sentence;
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(job.status()), HasSubstr(c.sentence));
  }
}

// As a newer client writes them.
TEST(TrainingWireTest, FieldsThatAreNotKnownAreRefused) {
  EXPECT_TRUE(CheckKnown(ToProto(Job())).ok());
  const auto refusal = [](const std::function<google::protobuf::Message*(
                              v1::TrainingJob*)>& part) {
    v1::TrainingJob job = ToProto(Job());
    google::protobuf::Message* const message = part(&job);
    message->GetReflection()->MutableUnknownFields(message)->AddVarint(26, 1);
    v1::TrainingJob parsed;
    EXPECT_TRUE(parsed.ParseFromString(job.SerializeAsString()));
    return Message(CheckKnown(parsed));
  };
  const std::string end =
      ": has a field (number 26) that this version does not know";
  EXPECT_EQ(refusal([](auto* j) { return j; }), "the job" + end);
  EXPECT_EQ(refusal([](auto* j) { return j->mutable_training_input(); }),
            "trainingInput" + end);
  EXPECT_EQ(refusal([](auto* j) {
              return j->mutable_training_input()
                  ->mutable_worker_config()
                  ->mutable_disk_config();
            }),
            "trainingInput.workerConfig.diskConfig" + end);
  EXPECT_EQ(refusal([](auto* j) {
              return j->mutable_training_input()->mutable_scheduling();
            }),
            "trainingInput.scheduling" + end);
  EXPECT_EQ(refusal([](auto* j) { return j->mutable_lockstep(); }),
            "lockstep" + end);
}

TEST(ProgramWireTest, PackagesImagesAndInterpretersThatAreNone) {
  Package package{"sha256:" + std::string(64, '0'), 1, PackageFormat::kTree,
                  "t.tar.gz"};
  EXPECT_TRUE(FromProto(ToProto(package)).ok());
  for (const char* name : {"", "..", "a/b", "a\nb"}) {
    package.file_name = name;
    EXPECT_THAT(Message(FromProto(ToProto(package)).status()),
                HasSubstr("file_name"));
  }
  for (const std::string& digest :
       {std::string(), std::string(64, '0'), "sha256:" + std::string(64, 'G'),
        "sha256:../" + std::string(61, '0')}) {
    EXPECT_FALSE(IsPackageDigest(digest)) << digest;
  }
  for (const char* image :
       {"", "--privileged", "a b", "docker-archive:/root/x.tar", "dir:x",
        "oci-archive:/x"}) {
    EXPECT_FALSE(FromProto(ToProto(Container{image, {}})).ok()) << image;
  }
  EXPECT_FALSE(FromProto(ToProto(Runtime{"x", "-c", false})).ok());
}

TEST(ProgramWireTest, AContainerNeedsNoProgram) {
  v1::JobSpec spec;
  spec.set_name("j");
  spec.set_kind(v1::JOB_KIND_PROGRAM);
  v1::RoleSpec* role = spec.add_roles();
  role->set_type(v1::TASK_TYPE_WORKER);
  role->set_count(1);
  EXPECT_THAT(Message(FromProto(spec).status()), HasSubstr("argv"));
  role->mutable_container()->set_image("busybox");
  EXPECT_TRUE(FromProto(spec).ok());
  // A native rank is linked with the runtime, and runs on the node itself.
  spec.set_kind(v1::JOB_KIND_NATIVE);
  EXPECT_THAT(Message(FromProto(spec).status()), HasSubstr("container"));
}

}  // namespace
}  // namespace lockstep
