// The tree holds the rules, and each rule meets a file that breaks it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/layering_rules.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::filesystem::path Root() {
  const char* root = std::getenv("LOCKSTEP_SOURCE");
  return root == nullptr ? "." : root;
}

std::string Contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(LayeringTest, TheTreeHoldsTheRules) {
  std::vector<std::string> found;
  int files = 0;
  for (const char* top : {"client", "common", "server", "tests", "worker"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(Root() / top)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc") continue;
      ++files;
      for (const std::string& violation : LayeringViolations(
               std::filesystem::relative(entry.path(), Root()).string(),
               Contents(entry.path()))) {
        found.push_back(violation);
      }
    }
  }
  EXPECT_GT(files, 100) << "looked in " << Root();
  EXPECT_THAT(found, IsEmpty());
}

struct Case {
  std::string name;
  std::string path;
  std::string text;
  std::string violation;
};

class LayeringCaseTest : public testing::TestWithParam<Case> {};

TEST_P(LayeringCaseTest, IsFound) {
  EXPECT_THAT(LayeringViolations(GetParam().path, GetParam().text),
              ElementsAre(HasSubstr(GetParam().violation)));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, LayeringCaseTest,
    testing::Values(
        Case{"ServerKnowsWorker", "server/service/a.cc",
             "#include \"worker/task/rank_page.h\"\n",
             "server/ must not know worker/"},
        Case{"WorkerKnowsClient", "worker/agent/a.cc",
             "#include \"client/lib/client.h\"\n",
             "worker/ must not know client/"},
        Case{"MainKnowsOtherSide", "server/main.cc",
             "#include \"client/lib/client.h\"\n",
             "server/ must not know client/"},
        Case{"UnitTestKnowsOtherSide", "server/core/a_test.cc",
             "#include \"client/lib/client.h\"\n",
             "server/ must not know client/"},
        Case{"CodeKnowsTests", "common/base/a.cc",
             "#include \"tests/support/cluster.h\"\n",
             "common/ must not know tests/"},
        Case{"CodeKnowsTestHelper", "worker/runtime/a.cc",
             "#include \"worker/collective/testing.h\"\n", "is for tests"},
        Case{"Upwards", "server/store/a.cc",
             "  #  include \"server/coordinator/coordinator.h\"\n",
             "not built on server/coordinator/"},
        Case{"RankKnowsRpc", "worker/runtime/a.cc",
             "#include \"common/rpc/channel.h\"\n", "not built on common/rpc/"},
        Case{"CollectiveApiKnowsBackend", "worker/collective/a.cc",
             "#include \"worker/collective/shm/engine.h\"\n",
             "not built on worker/collective/shm/"},
        Case{"BackendKnowsFactory", "worker/collective/hierarchical/a.cc",
             "#include \"worker/collective/factory/host_identity.h\"\n",
             "not built on worker/collective/factory/"},
        Case{"UnknownFolder", "server/new/a.cc",
             "#include \"common/base/status.h\"\n", "without a place"},
        Case{"RelativePath", "server/core/a.cc", "#include \"job.h\"\n",
             "not by its path from the root"},
        Case{"SqliteElsewhere", "server/coordinator/a.cc",
             "#include <sqlite3.h>\n", "has other places"},
        Case{"GlooInTheProduct",
             "worker/collective/factory/form_communicator.cc",
             "#include <gloo/context.h>\n", "has other places"},
        Case{"TorchElsewhere", "worker/runtime/a.cc",
             "#include <torch/torch.h>\n", "has other places"},
        Case{"GrpcInCli", "client/cli/a.cc", "#include <grpcpp/grpcpp.h>\n",
             "has other places"},
        Case{"PureWithMutex", "server/core/a.cc", "#include <mutex>\n",
             "is pure and includes mutex"},
        Case{"PureWithOurMutex", "server/core/a.cc",
             "#include \"common/base/mutex.h\"\n", "is pure and includes"},
        Case{"PureWithFile", "worker/checkpoint/manifest.cc",
             "#include \"common/base/file.h\"\n", "is pure and includes"},
        Case{"PureWithSyscall", "worker/agent/core/agent_core.cc",
             "#include <sys/socket.h>\n", "is pure and includes"},
        Case{"PureReadsClock", "worker/runtime/step_controller.cc",
             "auto t = std::chrono::steady_clock::now();\n",
             "is pure and says _clock::now("},
        Case{"PureReadsEnvironment", "common/model/a.cc",
             "auto* home = getenv(\"HOME\");\n", "is pure and says getenv("},
        Case{"ShimWithAbseil", "worker/shim/launch.cc",
             "#include \"common/base/status.h\"\n", "of libc only"},
        Case{"ShimWithFmt", "worker/task/bytes.cc", "#include <fmt/format.h>\n",
             "of libc only"},
        Case{"Guard", "common/base/a.h", "#ifndef A_H_\n#define A_H_\n#endif\n",
             "lacks the guard LOCKSTEP_COMMON_BASE_A_H_"}),
    [](const auto& info) { return info.param.name; });

TEST(LayeringTest, NoFalseAlarms) {
  // What a pure file may say in comments, and what tests may do.
  EXPECT_THAT(LayeringViolations("server/core/a.cc",
                                 "// Not steady_clock::now() here.\n"
                                 "#include <map>\n"
                                 "#include \"common/base/status.h\"\n"
                                 "#include \"common/model/job.h\"\n"
                                 "#include \"server/core/job.h\"\n"),
              IsEmpty());
  EXPECT_THAT(LayeringViolations("server/core/a_test.cc",
                                 "#include <fstream>\n#include <thread>\n"),
              IsEmpty());
  EXPECT_THAT(LayeringViolations("tests/cluster/a_test.cc",
                                 "#include \"client/lib/client.h\"\n"
                                 "#include \"worker/task/rank_page.h\"\n"),
              IsEmpty());
  EXPECT_THAT(LayeringViolations("common/base/a_b.h",
                                 "// What it is.\n"
                                 "#ifndef LOCKSTEP_COMMON_BASE_A_B_H_\n"
                                 "#define LOCKSTEP_COMMON_BASE_A_B_H_\n"
                                 "#endif  // LOCKSTEP_COMMON_BASE_A_B_H_\n"),
              IsEmpty());
}

}  // namespace
}  // namespace lockstep
