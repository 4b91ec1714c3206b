#include "common/training/machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/training/translate_fixture.h"

namespace lockstep {
namespace {

using translate_tests::kGiB;

using ::testing::HasSubstr;

StatusOr<Machine> Resolve(const std::string& type, const std::string& gpu = "",
                          int64_t count = 0) {
  return ResolveMachine(DefaultMachineTable(), type, gpu, count, "masterType",
                        "acceleratorConfig");
}

TEST(MachinesTest, TheShippedTableIsSound) {
  EXPECT_EQ(CheckMachineTable(DefaultMachineTable()), OkStatus());
}

TEST(MachinesTest, MachinesWithAndWithoutGpus) {
  struct Case {
    const char* type;
    const char* gpu;
    int64_t count;
    Resources want;
    double units;
  };
  const Case cases[] = {
      {"n1-standard-4", "", 0, {4, 15 * kGiB, 0, ""}, 0.3878},
      {"n1-standard-8", "", 0, {8, 30 * kGiB, 0, ""}, 0.7755},
      {"n1-standard-8",
       "NVIDIA_TESLA_T4",
       1,
       {8, 30 * kGiB, 1, "Tesla T4"},
       1.4898},
      {"n1-standard-8",
       "NVIDIA_TESLA_V100",
       2,
       {8, 30 * kGiB, 2, "Tesla V100"},
       10.8979},
      {"n1-standard-32",
       "NVIDIA_TESLA_K80",
       4,
       {32, 120 * kGiB, 4, "Tesla K80"},
       6.7756},
      {"n1-highcpu-16", "", 0, {16, 15461882266, 0, ""}, 1.1576},
      {"standard_gpu", "", 0, {8, 30 * kGiB, 1, "Tesla K80"}, 1.6939},
      // 2.56 USD at 0.49 each.
      {"complex_model_m_gpu", "", 0, {16, 60 * kGiB, 4, "Tesla K80"}, 5.2246},
      {"large_model", "", 0, {8, 52 * kGiB, 0, ""}, 0.9665},
  };
  for (const Case& c : cases) {
    const auto machine = Resolve(c.type, c.gpu, c.count);
    ASSERT_TRUE(machine.ok()) << machine.status();
    EXPECT_EQ(Describe(machine->nominal), Describe(c.want)) << c.type;
    EXPECT_EQ(machine->nominal, c.want) << c.type;
    EXPECT_EQ(machine->request, c.want) << c.type;
    EXPECT_NEAR(machine->ml_units_per_hour.value(), c.units, 1e-4) << c.type;
  }
  EXPECT_EQ(Resolve("n1-highmem-96")->ml_units_per_hour, std::nullopt);
}

TEST(MachinesTest, WhatDoesNotGoIsRefusedWithWhatDoes) {
  struct Case {
    const char* type;
    const char* gpu;
    int64_t count;
    const char* want;
  };
  const Case cases[] = {
      {"n1-standrad-8", "", 0,
       "masterType: there is no machine type \"n1-standrad-8\"; did you mean "
       "n1-standard-8?"},
      {"cloud_tpu", "", 0, "masterType: cloud_tpu: there are no TPUs"},
      {"n1-standard-8", "NVIDIA_TESLA_V100", 3,
       "acceleratorConfig.count: n1-standard-8 supports 1, 2, 4 or 8 of "
       "NVIDIA_TESLA_V100, not 3"},
      {"n1-standard-16", "NVIDIA_TESLA_V100", 1, "supports 2, 4 or 8 of"},
      {"n1-standard-64", "NVIDIA_TESLA_T4", 2, "supports 4 of NVIDIA_TESLA_T4"},
      {"n1-standard-64", "NVIDIA_TESLA_K80", 8,
       "acceleratorConfig.type: n1-standard-64 does not support "
       "NVIDIA_TESLA_K80; it supports NVIDIA_TESLA_P4, NVIDIA_TESLA_T4, "
       "NVIDIA_TESLA_V100"},
      {"n1-standard-8", "NVIDIA_TESLA_T5", 1, "did you mean NVIDIA_TESLA_T4?"},
      {"n1-standard-8", "TPU_V2", 8,
       "acceleratorConfig.type: TPU_V2: lockstep"},
      {"standard_gpu", "NVIDIA_TESLA_T4", 1,
       "standard_gpu has its own GPUs (1 x NVIDIA_TESLA_K80)"},
      {"n1-standard-8", "NVIDIA_TESLA_T4", int64_t{1} << 40,
       "supports 1, 2 or 4"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(Message(Resolve(c.type, c.gpu, c.count).status()),
                HasSubstr(c.want));
  }
}

TEST(MachinesTest, ATableWithAHoleIsRefused) {
  const auto broken = [](const auto& change) {
    MachineTable table = DefaultMachineTable();
    change(&table);
    return Message(CheckMachineTable(table));
  };
  EXPECT_THAT(
      broken([](auto* t) { t->tiers["BASIC"].master_type = "n1-standard-5"; }),
      HasSubstr("tiers.BASIC.masterType: there is no machine type"));
  EXPECT_THAT(broken([](auto* t) { t->tiers["BASIC"].worker_count = 2; }),
              HasSubstr("tiers.BASIC.workerCount: needs workerType"));
  EXPECT_THAT(broken([](auto* t) { t->tiers["CUSTOM"] = {}; }),
              HasSubstr("tiers.CUSTOM: is not a tier"));
  EXPECT_THAT(broken([](auto* t) { t->machines["a"] = {}; }),
              HasSubstr("machines.a: must have more than 0 cpus"));
  EXPECT_THAT(
      broken([](auto* t) { t->machines["standard"].accelerator = "GT"; }),
      HasSubstr("machines.standard.accelerator.type: there is no GT"));
  EXPECT_THAT(
      broken([](auto* t) { t->machines["standard_gpu"].accelerator = ""; }),
      HasSubstr("accelerator.count: needs a type"));
  EXPECT_THAT(broken([](auto* t) {
                t->machines["standard"].attachable["NVIDIA_TESLA_T4"] = {0};
              }),
              HasSubstr("must be a list of counts"));
  EXPECT_THAT(broken([](auto* t) { t->accelerators["X"] = {}; }),
              HasSubstr("accelerators.X.model: is missing"));
  // What a job that takes it may not keep.
  EXPECT_THAT(
      broken([](auto* t) { t->machines["standard"].ml_units_per_hour = -1; }),
      HasSubstr("machines.standard.mlUnits: must be 0 to 1e+09, not -1"));
  EXPECT_THAT(
      broken([](auto* t) { t->machines["standard"].ml_units_per_hour = NAN; }),
      HasSubstr("machines.standard.mlUnits: "));
  EXPECT_THAT(broken([](auto* t) {
                t->accelerators["NVIDIA_TESLA_T4"].ml_units_per_hour = 2e9;
              }),
              HasSubstr("accelerators.NVIDIA_TESLA_T4.mlUnits: "));
  EXPECT_THAT(broken([](auto* t) {
                t->accelerators["NVIDIA_TESLA_T4"].model.assign(129, 'x');
              }),
              HasSubstr("NVIDIA_TESLA_T4.model: has 129 bytes"));
  const std::string name(129, 'm');
  EXPECT_THAT(
      broken([&](auto* t) { t->machines[name] = t->machines["standard"]; }),
      HasSubstr("machines: a name must have 1 to 128 bytes"));
  EXPECT_THAT(broken([&](auto* t) { t->accelerators["a\n"].model = "x"; }),
              HasSubstr("unlike the one that begins with \"a?\""));
  EXPECT_THAT(broken([&](auto* t) { t->tiers[""] = t->tiers["BASIC"]; }),
              HasSubstr("tiers: a name must have"));
}

}  // namespace
}  // namespace lockstep
