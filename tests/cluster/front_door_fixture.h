// A cluster for jobs in AI Platform's words, and the commands that submit them.
#ifndef LOCKSTEP_TESTS_CLUSTER_FRONT_DOOR_FIXTURE_H_
#define LOCKSTEP_TESTS_CLUSTER_FRONT_DOOR_FIXTURE_H_

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "tests/cluster/image_fixture.h"

namespace lockstep {

// Its tables.
inline constexpr char kFrontDoorSite[] = R"(defaults: true
machines:
  n1-standard-4: {request: {cpus: 0.5, memory: 16MiB}}
  n1-standard-8: {request: {cpus: 1, memory: 16MiB}}
images:
  gcr.io/my-project/: localhost/
runtimes:
  here: {python: /usr/bin/python3, versions: ["2.*"]}
)";

class FrontDoorTest : public ImageClusterTest {
 protected:
  void SetUp() override {
    ImageClusterTest::SetUp();
    if (!manual_start_) UseSite(kFrontDoorSite);
  }
  void Gpus(const char* model, int count) {
    setenv("FAKE_NVML_GPUS", std::to_string(count).c_str(), 1);
    setenv("FAKE_NVML_MODEL", model, 1);
    options_.gpus = count;
    for (const char* worker : {"worker-0", "worker-1"}) {
      options_.extra_arguments[worker] = {"--nvml-library", LOCKSTEP_FAKE_NVML};
    }
  }
  void TearDown() override {
    ImageClusterTest::TearDown();
    unsetenv("FAKE_NVML_GPUS");
    unsetenv("FAKE_NVML_MODEL");
  }

  // Of a command that must succeed.
  std::string Ok(const std::vector<std::string>& arguments) {
    const CommandResult result = Lockstep(arguments);
    EXPECT_EQ(result.code, 0)
        << fmt::format("{}", fmt::join(arguments, " ")) << "\n"
        << result.out << result.err;
    return result.out;
  }
  // "jobs submit training NAME ARGS".
  static std::vector<std::string> Training(const std::string& name,
                                           std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"jobs", "submit", "training", name});
    return arguments;
  }
  // A folder with the package `trainer` whose module task is `program`.
  std::string Package(const std::string& program) {
    const std::string dir = Path("code/trainer");
    EXPECT_TRUE(RealFileSystem()->MakeDirs(dir).ok());
    WriteFile(dir + "/__init__.py", "");
    WriteFile(dir + "/task.py", program);
    return dir;
  }
  size_t Jobs() {
    const auto jobs = client()->ListJobs();
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    return jobs.ok() ? jobs->size() : 0;
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_CLUSTER_FRONT_DOOR_FIXTURE_H_
