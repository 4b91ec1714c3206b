// The module as a host loads it, whatever that host has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "worker/collective/factory/form_communicator.h"
#include "worker/collective/module.h"
#include "worker/collective/testing.h"

namespace lockstep::worker::collective::nccl {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// In a child: what is opened stays open, and environments differ.
template <typename Body>
void InChild(Body body) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    body();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

CommunicatorOptions OneRank() {
  CommunicatorOptions options = TestOptions(0, 1, nullptr);
  options.backend = "nccl";
  options.device = 0;
  return options;
}

bool HasDriver() { return access("/dev/nvidiactl", F_OK) == 0; }

TEST(NcclModuleTest, LoadsAndFormsOrSaysInOneSentenceWhatIsMissing) {
  InChild([] {
    const auto formed = FormCommunicator(OneRank());
    if (formed.ok()) {
      EXPECT_EQ((*formed)->backend(), "nccl");
      return;
    }
    EXPECT_EQ(formed.status().code(), StatusCode::kFailedPrecondition);
    const std::string message = Message(formed.status());
    EXPECT_THAT(message, HasSubstr("job test g1: backend nccl cannot be used: "
                                   "this rank "));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    if (!HasDriver()) {
      EXPECT_THAT(message, AnyOf(HasSubstr("no libcuda.so.1"),
                                 HasSubstr("driver"), HasSubstr("no GPU")));
    }
  });
}

TEST(NcclModuleTest, NoVisibleGpuIsSaid) {
  InChild([] {
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    const Status status = FormCommunicator(OneRank()).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status),
                AnyOf(HasSubstr("CUDA shows 0"), HasSubstr("driver")));
  });
}

TEST(NcclModuleTest, AutoWithADeviceFallsBackWhereNcclCannotBeUsed) {
  if (HasDriver()) GTEST_SKIP() << "there is a driver";
  MapRendezvousStore store;
  signal(SIGPIPE, SIG_IGN);
  SpawnRanks(2, [&](int rank) {
    std::string why;
    auto options = TestOptions(rank, 2, &store);
    options.backend = "auto";
    options.device = 0;
    const auto formed = FormCommunicator(options, &why);
    ASSERT_TRUE(formed.ok()) << formed.status();
    EXPECT_EQ((*formed)->backend(), "shm");
    EXPECT_THAT(why, HasSubstr("; not nccl: rank 0 "));
    EXPECT_THAT(why, HasSubstr("driver"));
  });
}

// Nothing of CUDA or NCCL may be needed to load it.
TEST(NcclModuleTest, NeedsNoLibraryOfNvidiaToLoad) {
  const char* bin = std::getenv("LOCKSTEP_BIN");
  if (bin == nullptr) GTEST_SKIP() << "LOCKSTEP_BIN is not set";
  const std::string command =
      std::string("readelf -d ") + bin + "/../lib/lockstep/collective-nccl.so";
  FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string dynamic;
  char buffer[4096];
  while (fgets(buffer, sizeof(buffer), pipe) != nullptr) dynamic += buffer;
  if (pclose(pipe) != 0) GTEST_SKIP() << "there is no readelf";
  EXPECT_THAT(dynamic, HasSubstr("NEEDED"));
  for (const char* library : {"libcuda", "libnccl", "libcudart"}) {
    EXPECT_THAT(dynamic, Not(HasSubstr(library)));
  }
}

}  // namespace
}  // namespace lockstep::worker::collective::nccl
