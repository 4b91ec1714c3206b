// The time in which PyTorch and JAX compile is a phase of a rank that has
// joined, without a word of its program.
#include <stdlib.h>

#include <cstdio>

#include "tests/cluster/fixture.h"

namespace lockstep {
namespace {

constexpr Duration kCompileTime = std::chrono::seconds(180);

class CompileTest : public ClusterTest {
 protected:
  void SetUp() override {
    const char* const frameworks = getenv("LOCKSTEP_FRAMEWORKS");
    manual_start_ = frameworks == nullptr;  // No cluster for a skipped test.
    ClusterTest::SetUp();
    if (frameworks == nullptr) {
      GTEST_SKIP() << "run tests/frameworks/setup DIR and set "
                      "LOCKSTEP_FRAMEWORKS=DIR";
    }
    frameworks_ = frameworks;
  }

  // The compiling seconds of the job's only rank, compared with what its
  // program measured.
  void Run(const std::string& framework, const std::string& environment) {
    v1::JobSpec spec = Program(framework, 1,
                               {frameworks_ + "/" + environment + "/bin/python",
                                std::string(getenv("LOCKSTEP_SOURCE")) +
                                    "/tests/frameworks/programs/compiles.py",
                                framework});
    auto& variables = *spec.mutable_environment();
    variables["PYTHONPATH"] = Binary("../python");
    variables["PYTHONDONTWRITEBYTECODE"] = "1";
    variables["JAX_PLATFORMS"] = "cpu";
    const v1::Job job = RunJob(spec, v1::JOB_STATE_SUCCEEDED, kCompileTime);
    const std::string line = Line(framework, 0, "compiled");
    double first = 0;
    double again = 0;
    ASSERT_EQ(sscanf(line.c_str(), "compiled %lf again %lf", &first, &again), 2)
        << line;
    const v1::PhaseSeconds& phases =
        job.attempts(0).tasks(0).ranks(0).progress().phases();
    std::cout << framework << ": " << line << ", phases " << phases.compile()
              << " s compile, " << phases.compute() << " s compute\n";
    ASSERT_GT(first, 5 * again) << "it did not compile";
    // What the first calls took longer, except for what is around a
    // compilation: guards, dispatching, the first use of a library.
    EXPECT_GT(phases.compile(), 0.5 * (first - again));
    // JAX compiles small functions before, to make the arrays.
    EXPECT_LT(phases.compile(), first + 5);
    EXPECT_GT(phases.compute(), 0);
  }

  std::string frameworks_;
};

TEST_F(CompileTest, OfPyTorch) { Run("torch", "torch"); }

TEST_F(CompileTest, OfJax) { Run("jax", "tensorflow"); }

}  // namespace
}  // namespace lockstep
