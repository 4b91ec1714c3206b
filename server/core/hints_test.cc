#include "server/core/hints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>

namespace lockstep::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

JobSpec Spec() {
  JobSpec spec;
  spec.roles.Edit().emplace_back();
  return spec;
}

ExitStatus ExitWith(const std::string& message, int32_t value = 1) {
  ExitStatus exit;
  exit.value = value;
  exit.message = message;
  return exit;
}

std::string Hint(const std::string& message) {
  return std::string(HintFor(Spec(), ExitWith(message)));
}

TEST(HintsTest, AnOrdinaryFailureHasNone) {
  EXPECT_THAT(Hint(""), IsEmpty());
  EXPECT_THAT(Hint("ValueError: 3"), IsEmpty());
  ExitStatus killed;
  killed.how = ExitStatus::How::kSignal;
  killed.value = SIGSEGV;
  EXPECT_THAT(std::string(HintFor(Spec(), killed)), IsEmpty());
}

TEST(HintsTest, PerReplicaOfKeras3) {
  const std::string hint =
      Hint("ValueError: Attempt to convert a value (PerReplica:{ 0: ...");
  EXPECT_THAT(hint, HasSubstr("--env TF_USE_LEGACY_KERAS=1"));
  EXPECT_THAT(hint, HasSubstr("tf_keras"));
}

TEST(HintsTest, NoGpuWasAskedFor) {
  for (const char* words :
       {"RuntimeError: No CUDA GPUs are available",
        "RuntimeError: Found no NVIDIA driver on your system. Please check",
        "failed call to cuInit: CUDA_ERROR_NO_DEVICE",
        "RuntimeError: CUDA error: no CUDA-capable device is detected",
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs "
        "found!",
        "RuntimeError: Unable to initialize backend 'cuda': "}) {
    EXPECT_THAT(Hint(words), HasSubstr("give --gpus N")) << words;
  }
  // With GPUs it is something else.
  JobSpec spec = Spec();
  spec.roles.Edit()[0].resources.gpus = 1;
  EXPECT_THAT(
      std::string(HintFor(spec, ExitWith("No CUDA GPUs are available"))),
      IsEmpty());
}

TEST(HintsTest, GoogleCloudStorage) {
  for (const char* words :
       {"FileNotFoundError: [Errno 2] No such file: 'gs://bucket/train'",
        "UnimplementedError: File system scheme 'gs' not implemented",
        "google.auth.exceptions.DefaultCredentialsError: Your default"}) {
    EXPECT_THAT(Hint(words), HasSubstr("a path that the hosts share")) << words;
  }
}

TEST(HintsTest, AFullSharedMemory) {
  ExitStatus bus;
  bus.how = ExitStatus::How::kSignal;
  bus.value = SIGBUS;
  EXPECT_THAT(std::string(HintFor(Spec(), bus)), HasSubstr("df -h /dev/shm"));
  EXPECT_THAT(std::string(HintFor(Spec(), ExitWith("", 135))),
              HasSubstr("df -h /dev/shm"));
  for (const char* words :
       {"RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus "
        "error.",
        "Error while creating shared memory segment /dev/shm/nccl-x"}) {
    EXPECT_THAT(Hint(words), HasSubstr("remount,size=")) << words;
  }
}

TEST(HintsTest, APortOfTheProgramsOwn) {
  ExitStatus exit = ExitWith("OSError: [Errno 98] Address already in use");
  EXPECT_THAT(std::string(HintFor(Spec(), exit)), HasSubstr("MASTER_PORT"));
  // One of the lease is chosen anew.
  exit.reason = Reason::kPortTaken;
  EXPECT_THAT(std::string(HintFor(Spec(), exit)), IsEmpty());
}

TEST(HintsTest, AMasterThatTensorFlow2DoesNotTake) {
  const ExitStatus exit =
      ExitWith("ValueError: Disallowed task type found in cluster spec.");
  JobSpec spec = Spec();
  EXPECT_THAT(std::string(HintFor(spec, exit)), IsEmpty());
  spec.environment_options.master_in_tf_config = true;
  EXPECT_THAT(std::string(HintFor(spec, exit)),
              HasSubstr("set useChiefInTfConfig: true"));
  spec.packages.emplace_back();
  EXPECT_THAT(std::string(HintFor(spec, exit)),
              HasSubstr("runtimeVersion 1.x makes the first task master"));
  spec.roles.Edit()[0].container.emplace();
  EXPECT_THAT(std::string(HintFor(spec, exit)),
              HasSubstr("set useChiefInTfConfig: true"));
}

TEST(HintsTest, AHintIsShortAndGoesOnWithASentence) {
  for (const char* words : {"PerReplica", "No CUDA GPUs are available", "gs://",
                            "EADDRINUSE", "killed by signal: Bus error"}) {
    const std::string hint = Hint(words);
    EXPECT_EQ(hint.substr(0, 2), "; ") << words;
    EXPECT_LE(hint.size(), kMaxHint);
  }
}

}  // namespace
}  // namespace lockstep::server
