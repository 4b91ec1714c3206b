#include "common/training/machines_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/training/translate_fixture.h"

namespace lockstep {
namespace {

using translate_tests::kGiB;

using ::testing::HasSubstr;

std::string MachinesError(const std::string& text) {
  const auto table = ParseMachinesFile(text, "m.yaml");
  EXPECT_EQ(table.status().code(), StatusCode::kInvalidArgument) << text;
  return Message(table.status());
}

TEST(MachinesFileTest, ATableOfASite) {
  const auto table = ParseMachinesFile(
      "accelerators:\n"
      "  NVIDIA_TESLA_T4: {model: Tesla T4, mlUnits: 0.5}\n"
      "machines:\n"
      "  n1-standard-8:\n"
      "    cpus: 8\n"
      "    memory: 30GiB\n"
      "    request: {cpus: 2, memory: 1.5GiB}\n"
      "    attachable: {NVIDIA_TESLA_T4: [1, 2]}\n"
      "    mlUnits: 1\n"
      "  box:\n"
      "    cpus: 40\n"
      "    memory: 512GiB\n"
      "    accelerator: {count: 3, type: NVIDIA_TESLA_T4}\n"
      "tiers:\n"
      "  BASIC: {masterType: box, workerType: n1-standard-8, workerCount: 2}\n"
      "  BIG:\n"
      "    masterType: n1-standard-8\n"
      "    masterAccelerator: {count: 2, type: NVIDIA_TESLA_T4}\n",
      "m.yaml");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->machines.size(), 2u);
  EXPECT_EQ(table->machines.at("box").accelerator_count, 3);
  EXPECT_EQ(table->tiers.at("BASIC").worker_count, 2);
  EXPECT_EQ(table->tiers.at("BIG").master_accelerator_count, 2);
  const auto machine =
      ResolveMachine(*table, "n1-standard-8", "NVIDIA_TESLA_T4", 2, "t", "a");
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->nominal, (Resources{8, 30 * kGiB, 2, "Tesla T4"}));
  EXPECT_EQ(machine->request, (Resources{2, 3 * kGiB / 2, 2, "Tesla T4"}));
  EXPECT_EQ(machine->ml_units_per_hour, 2.0);
}

TEST(MachinesFileTest, WhatAGpuCanDoIsOfTheLongestModelThatMatches) {
  const auto table = ParseMachinesFile(
      "defaults: true\n"
      "accelerators:\n"
      "  OURS: {model: H100 NVL, peakTflops: 835}\n"
      "  UNKNOWN: {model: H100 NVL Special}\n",
      "m.yaml");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(PeakFlops(*table, "NVIDIA H100 80GB HBM3"), 989e12);
  EXPECT_EQ(PeakFlops(*table, "NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(PeakFlops(*table, "NVIDIA H100 NVL Special"), 835e12);
  EXPECT_EQ(PeakFlops(*table, "Tesla V100-SXM2-16GB"), 125e12);
  EXPECT_EQ(PeakFlops(*table, "GeForce 256"), std::nullopt);
  EXPECT_EQ(PeakFlops(*table, ""), std::nullopt);
  EXPECT_THAT(MachinesError("accelerators: {X: {model: X, peakTflops: 0}}\n"),
              HasSubstr("accelerators.X.peakTflops: must be above 0"));
}

TEST(MachinesFileTest, AFileGoesOverTheDefaults) {
  const auto table = ParseMachinesFile(
      "machines:\n"
      "  n1-standard-8:\n"
      "    request: {cpus: 1, memory: 1GiB}\n"
      "    attachable: {NVIDIA_TESLA_T4: [3]}\n"
      "  n1-standard-4: {cpus: 2}\n"
      "accelerators: {NVIDIA_TESLA_T4: {model: T4}}\n"
      "tiers: {STANDARD_1: {masterType: n1-standard-4}}\n"
      "defaults: true\n",
      "m.yaml");
  ASSERT_TRUE(table.ok()) << table.status();
  MachineTable want = DefaultMachineTable();
  want.machines["n1-standard-8"].request = {1, kGiB};
  want.machines["n1-standard-8"].attachable["NVIDIA_TESLA_T4"] = {3};
  want.machines["n1-standard-4"].nominal.cpus = 2;
  want.machines["n1-standard-4"].request.cpus = 2;
  want.accelerators["NVIDIA_TESLA_T4"].model = "T4";
  want.tiers["STANDARD_1"] = {"n1-standard-4", "", 0, "", 0, "", 0};
  EXPECT_EQ(*table, want);
  EXPECT_EQ(ParseMachinesFile("defaults: true", "m.yaml").value(),
            DefaultMachineTable());
}

TEST(MachinesFileTest, WhatIsWrongIsNamedWithItsPlace) {
  EXPECT_EQ(MachinesError("machines:\n  a:\n    cpu: 1\n"),
            "m.yaml:3:5: machines.a: a machine type has no field \"cpu\"; did "
            "you mean cpus?");
  EXPECT_THAT(MachinesError("machines:\n  a: {cpus: 1}\n"),
              HasSubstr("m.yaml:2:6: machines.a: lacks cpus or memory"));
  EXPECT_THAT(MachinesError("machines: {a: {cpus: 1, memory: 30GB}}"),
              HasSubstr("machines.a.memory: is not a size such as 30GiB"));
  EXPECT_THAT(MachinesError("machines: {a: {cpus: 1, memory: -1}}"),
              HasSubstr("memory: is not a size"));
  EXPECT_THAT(MachinesError("machines: {a: {cpus: 1, memory: nan}}"),
              HasSubstr("memory: is not a size"));
  EXPECT_THAT(MachinesError("machines: {a: {cpus: -1, memory: 1GiB}}"),
              HasSubstr("machines.a.cpus: \"-1\" is not a number"));
  EXPECT_THAT(MachinesError("machines: [a]"), HasSubstr("machines: must be"));
  EXPECT_THAT(MachinesError("machine: {}"),
              HasSubstr("did you mean machines?"));
  EXPECT_THAT(
      MachinesError(
          "machines: {a: {cpus: 1, memory: 1GiB, attachable: {X: [1]}}}"),
      HasSubstr("m.yaml: machines.a.attachable: there is no X"));
  EXPECT_THAT(
      MachinesError("defaults: true\ntiers: {BASIC: {masterType: "
                    "n1-standard-4, masterAccelerator: {count: 3, type: "
                    "NVIDIA_TESLA_T4}}}"),
      HasSubstr("tiers.BASIC.masterAccelerator.count: n1-standard-4 "
                "supports 1, 2 or 4 of NVIDIA_TESLA_T4, not 3"));
  EXPECT_THAT(
      MachinesError("defaults: true\ntiers: {BASIC: {masterType: nope}}"),
      HasSubstr("m.yaml: tiers.BASIC.masterType: there is no machine"));
  EXPECT_THAT(MachinesError("machines: {a"), HasSubstr("m.yaml:1:"));
}

}  // namespace
}  // namespace lockstep
