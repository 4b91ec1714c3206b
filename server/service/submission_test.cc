#include "server/service/submission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/model/reduction_plan.h"

namespace lockstep::server {
namespace {

// What a spec of packages, for the interpreter, becomes at the site.
Runtime Completed(const Site& site, const std::string& name,
                  const std::string& python, bool allow_index) {
  v1::SubmitJobRequest request;
  v1::JobSpec* const spec = request.mutable_spec();
  spec->set_name("job");
  spec->set_kind(v1::JOB_KIND_PROGRAM);
  v1::RoleSpec* const role = spec->add_roles();
  role->set_type(v1::TASK_TYPE_CHIEF);
  role->set_count(1);
  role->set_ranks_per_task(1);
  spec->add_argv("python3");
  v1::Package* const package = spec->add_packages();
  package->set_digest("sha256:" + std::string(64, 'a'));
  package->set_bytes(1);
  package->set_file_name("trainer.tar.gz");
  package->set_format(v1::PACKAGE_FORMAT_TREE);
  spec->mutable_runtime()->set_name(name);
  spec->mutable_runtime()->set_python(python);
  spec->mutable_runtime()->set_allow_index(allow_index);
  const auto submitted = ReadSubmission(request, site);
  EXPECT_TRUE(submitted.ok()) << submitted.status();
  return submitted.ok() ? submitted->job.spec.runtime : Runtime();
}

TEST(SubmissionTest, OnlyTheSiteOpensAnIndex) {
  Site site = DefaultSite();
  site.runtimes["closed"].python = "/opt/closed/bin/python3";
  site.runtimes["open"].python = "/opt/open/bin/python3";
  site.runtimes["open"].allow_index = true;
  site.default_runtime = "closed";
  for (const bool asked : {false, true}) {
    EXPECT_FALSE(Completed(site, "", "", asked).allow_index);
    EXPECT_FALSE(Completed(site, "closed", "", asked).allow_index);
    EXPECT_TRUE(Completed(site, "open", "", asked).allow_index);
    // Nobody's, under whatever name.
    EXPECT_FALSE(Completed(site, "", "/mine/python3", asked).allow_index);
    EXPECT_FALSE(Completed(site, "open", "/mine/python3", asked).allow_index);
    EXPECT_FALSE(
        Completed(site, "", "/opt/closed/bin/python3", asked).allow_index);
    // As a plan of this site has it.
    EXPECT_EQ(Completed(site, "open", "/opt/open/bin/python3", asked),
              (Runtime{"open", "/opt/open/bin/python3", asked}));
  }
}

std::string PlanComplaint(const std::string& plan, int workers) {
  v1::SubmitJobRequest request;
  v1::JobSpec* const spec = request.mutable_spec();
  spec->set_name("job");
  spec->set_kind(v1::JOB_KIND_NATIVE);
  spec->add_argv("lockstep-train");
  v1::RoleSpec* const role = spec->add_roles();
  role->set_type(v1::TASK_TYPE_WORKER);
  role->set_count(workers);
  role->set_ranks_per_task(2);
  spec->set_reduction_plan(plan);
  const auto submitted = ReadSubmission(request, DefaultSite());
  if (!submitted.ok()) return std::string(Message(submitted.status()));
  EXPECT_EQ(submitted->job.spec.reduction_plan, plan);
  return "OK";
}

TEST(SubmissionTest, APinnedReductionPlanMustFitTheJob) {
  ReductionPlan plan;
  plan.ranks = 4;
  plan.hosts = 2;
  plan.bucket_bytes = plan.first_bucket_bytes = plan.last_bucket_bytes = 4096;
  plan.layout = "0123456789abcdef";
  const std::string text = Format(plan).value();
  EXPECT_EQ(PlanComplaint(text, 2), "OK");
  EXPECT_THAT(PlanComplaint(text, 3),
              testing::HasSubstr("has 4 ranks on 2 hosts, but the job has 6 "
                                 "ranks in 3 tasks"));
  plan.hosts = 4;
  EXPECT_THAT(
      PlanComplaint(Format(plan).value(), 2),
      testing::HasSubstr(
          "has 4 ranks on 4 hosts, but the job has 4 ranks in 2 tasks"));
  EXPECT_THAT(PlanComplaint("nonsense", 2),
              testing::HasSubstr("spec.reduction_plan: a reduction plan begins "
                                 "with the line"));
}

Status SubmittedWith(const std::vector<std::string>& argv) {
  v1::SubmitJobRequest request;
  v1::JobSpec* const spec = request.mutable_spec();
  spec->set_name("job");
  spec->set_kind(v1::JOB_KIND_NATIVE);
  for (const std::string& word : argv) spec->add_argv(word);
  v1::RoleSpec* const role = spec->add_roles();
  role->set_type(v1::TASK_TYPE_WORKER);
  role->set_count(2);
  return ReadSubmission(request, DefaultSite()).status();
}

TEST(SubmissionTest, BackendGlooIsRefusedWithWhatToUse) {
  for (const auto& argv : std::vector<std::vector<std::string>>{
           {"lockstep-train", "--train", "/data", "--backend", "gloo"},
           {"/usr/bin/lockstep-bench", "allreduce", "--backend=gloo"}}) {
    const Status status = SubmittedWith(argv);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(Message(status),
              "spec.argv: backend gloo is no longer available; use tcp, or "
              "auto, which chooses by the ranks' placement");
  }
  EXPECT_EQ(SubmittedWith({"lockstep-train", "--backend", "tcp"}), OkStatus());
  // The flag of another program.
  EXPECT_EQ(SubmittedWith({"python3", "ddp.py", "--backend", "gloo"}),
            OkStatus());
}

}  // namespace
}  // namespace lockstep::server
