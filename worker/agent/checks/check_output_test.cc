#include "worker/agent/checks/check_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/agent/checks/check_run.h"

namespace lockstep::worker::agent {
namespace {

using std::chrono_literals::operator""s;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kWhole[] =
    "begin\tmemory\npassed\tmemory\t1875.3\tGB/s\nbegin\tmatmul\n"
    "passed\tmatmul\t31.5\tTFLOP/s\nend\n";

TEST(CheckOutputTest, PartsAreReadInOrder) {
  const GpuCheckOutput output = ParseGpuCheck(kWhole);
  EXPECT_TRUE(output.whole);
  EXPECT_EQ(output.broken, "");
  EXPECT_EQ(output.open, "");
  EXPECT_EQ(output.parts,
            (std::vector<GpuCheckPart>{{"memory", 1875.3, "GB/s"},
                                       {"matmul", 31.5, "TFLOP/s"}}));
  EXPECT_EQ(FailureOf(output, {}, 21s), "");
  const GpuCheckOutput some = ParseGpuCheck(
      "begin\tall_reduce\nskipped\tall_reduce\tNCCL is not installed\nend\n");
  EXPECT_EQ(some.parts.at(0).skipped, "NCCL is not installed");
  EXPECT_EQ(FailureOf(some, {}, 1s), "");
  EXPECT_EQ(ParseGpuCheck("cannot\tno driver\nend\n").cannot, "no driver");
}

TEST(CheckOutputTest, EachWayToFailHasItsSentence) {
  const auto failure = [](const std::string& text, GpuCheckEnd end = {}) {
    return FailureOf(ParseGpuCheck(text), end, 40s);
  };
  EXPECT_EQ(failure("begin\tmemory\nfailed\tmemory\t3 words are wrong\nend\n"),
            "memory: 3 words are wrong");
  EXPECT_EQ(failure("begin\tmemory\n", {true, ""}),
            "its check hung in memory, and was killed after 40.0 s");
  EXPECT_EQ(failure("begin\tmemory\npassed\tmemory\t1\tGB/s\nbegin\tmatmul\n",
                    {false, "was killed by signal 11"}),
            "its check was killed by signal 11 in matmul");
  EXPECT_EQ(failure("", {false, "exited with code 3"}),
            "its check exited with code 3 between its parts");
  EXPECT_EQ(failure("begin\tmemory\n"), "its check ended in memory");
  EXPECT_EQ(failure(kWhole, {false, "exited with code 1"}),
            "its check exited with code 1 between its parts");
}

TEST(CheckOutputTest, NothingIsTrusted) {
  for (const char* const text : {
           "passed\tmemory\tnan\tGB/s\nend\n",
           "passed\tmemory\t-1\tGB/s\nend\n",
           "passed\tmemory\t1e300\tGB/s\nend\n",
           "passed\tmemory\t12x\tGB/s\nend\n",
           "passed\tmemory\t12\tparsecs\nend\n",
           "passed\tmemory\t12\nend\n",
           "passed\tdisk\t12\tGB/s\nend\n",
           "failed\tmemory\nend\n",
           "failed\tmemory\t\nend\n",
           "begin\tmemory\tand more\nend\n",
           "hello\nend\n",
           "\n",
           "end\nend\n",
           "end\tof it\n",
           "cannot\t\n",
       }) {
    const GpuCheckOutput output = ParseGpuCheck(text);
    EXPECT_THAT(output.broken, HasSubstr("which it never does")) << text;
    EXPECT_NE(FailureOf(output, {}, 1s), "") << text;
  }
  const GpuCheckOutput nasty = ParseGpuCheck(
      "failed\tmemory\t\x1b[31mred\xff" + std::string(1000, 'x') + "\nend\n");
  EXPECT_THAT(nasty.parts.at(0).failure, testing::StartsWith("?[31mred?xx"));
  EXPECT_EQ(nasty.parts[0].failure.size(), kMaxCheckText);
  std::string many;
  for (int i = 0; i < 100; ++i) many += "skipped\tmemory\twhy\n";
  EXPECT_EQ(ParseGpuCheck(many).parts.size(), kMaxCheckParts);
}

TEST(CheckPairsTest, EachHasAPartner) {
  const GpuCheckTarget a{0, "a"}, b{1, "b"}, c{2, "c"}, d{3, "d"};
  const auto pairs = [](std::vector<GpuCheckTarget> passed,
                        std::optional<GpuCheckTarget> partner = {}) {
    std::string text;
    for (const auto& [one, other] : PairsOf(passed, partner)) {
      text += one.uuid + other.uuid + " ";
    }
    return text;
  };
  EXPECT_EQ(pairs({a, b, c, d}), "ab cd ");
  EXPECT_EQ(pairs({a, b, c}), "ab ca ");
  EXPECT_EQ(pairs({a}, d), "ad ");
  EXPECT_EQ(pairs({a}), "");
  EXPECT_EQ(pairs({}, d), "");
}

}  // namespace
}  // namespace lockstep::worker::agent
