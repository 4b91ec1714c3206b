#include "common/model/removed_backend.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Argv = std::vector<std::string>;

JobSpec With(Argv argv) {
  JobSpec spec;
  spec.argv = std::move(argv);
  spec.reduction_plan = "a plan";
  return spec;
}

TEST(RemovedBackendTest, GlooOfOurProgramsBecomesAuto) {
  const std::pair<Argv, Argv> cases[] = {
      {{"lockstep-train", "--backend", "gloo", "--epochs", "3"},
       {"lockstep-train", "--backend", "auto", "--epochs", "3"}},
      {{"/opt/bin/lockstep-bench", "allreduce", "--backend=gloo"},
       {"/opt/bin/lockstep-bench", "allreduce", "--backend=auto"}},
      {{"lockstep-train", "--backend", "gloo", "--backend=gloo"},
       {"lockstep-train", "--backend", "auto", "--backend=auto"}},
  };
  for (const auto& [before, after] : cases) {
    JobSpec spec = With(before);
    EXPECT_TRUE(AsksForGloo(spec));
    EXPECT_TRUE(ReplaceGloo(&spec));
    EXPECT_EQ(spec.argv, after);
    EXPECT_EQ(spec.reduction_plan, "");
    EXPECT_FALSE(ReplaceGloo(&spec));
  }
}

TEST(RemovedBackendTest, ACommandOfARoleCounts) {
  JobSpec spec = With({"program"});
  spec.roles.Edit().resize(2);
  spec.roles.Edit()[1].argv = {"lockstep-train", "--backend", "gloo"};
  EXPECT_TRUE(AsksForGloo(spec));
  EXPECT_TRUE(ReplaceGloo(&spec));
  EXPECT_EQ(spec.roles[1].argv, (Argv{"lockstep-train", "--backend", "auto"}));
}

TEST(RemovedBackendTest, OthersStayAsTheyAre) {
  for (const Argv& argv :
       {Argv{}, Argv{"lockstep-train"}, Argv{"lockstep-train", "--backend"},
        Argv{"lockstep-train", "--backend", "tcp"},
        Argv{"lockstep-train", "--train", "gloo"},
        Argv{"lockstep-train", "--train", "--backend=glooo"},
        Argv{"python3", "ddp.py", "--backend", "gloo"}}) {
    JobSpec spec = With(argv);
    EXPECT_FALSE(AsksForGloo(spec));
    EXPECT_FALSE(ReplaceGloo(&spec));
    EXPECT_EQ(spec, With(argv));
  }
}

}  // namespace
}  // namespace lockstep
