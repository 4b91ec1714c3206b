// lockstep-gpu-check: checks the first GPU of CUDA_VISIBLE_DEVICES, or with
// --all-reduce its first two, and prints what it finds, line by line
// (worker/agent/checks/check_output.h). No part fails because it is slow.
//
// A program of its own: a GPU that hangs, or takes its process down, takes no
// daemon along. It ends with its parent.
#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "worker/gpu_check/parts.h"

namespace lockstep::worker::gpu_check {
namespace {

// The daemon kills the program before that.
constexpr unsigned kLongest = 600;  // Seconds.

struct Flags {
  bool all_reduce = false;
  // Of all parts together.
  double seconds = 14;
  std::string spoil;
};

// False: they are none.
bool ParseFlags(int argc, char** argv, Flags* flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--all-reduce") {
      flags->all_reduce = true;
    } else if (flag == "--seconds" && i + 1 < argc) {
      char* end = nullptr;
      flags->seconds = std::strtod(argv[++i], &end);
      if (*end != '\0' || !(flags->seconds >= 0 && flags->seconds <= 300)) {
        return false;
      }
    } else if (flag == "--spoil" && i + 1 < argc) {
      flags->spoil = argv[++i];
    } else {
      return false;
    }
  }
  return true;
}

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// Why this host or this build can check no GPU; empty if it can. A GPU that
// does not answer is no such reason.
std::string WhyCannot() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    return "this host has no CUDA driver (libcuda.so.1)";
  }
  dlclose(driver);
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver) {
    int version = 0;
    (void)cudaDriverGetVersion(&version);
    return fmt::format(
        "the driver is for CUDA {}.{}, which is older than the CUDA {}.{} that "
        "the check is built with",
        version / 1000, version % 1000 / 10, CUDART_VERSION / 1000,
        CUDART_VERSION % 1000 / 10);
  }
  return "";
}

// Whether the build has code for device 0: it answers, and does not know it.
bool LacksCode(const Status& status) {
  return Message(status).find(cudaGetErrorString(
             cudaErrorNoKernelImageForDevice)) != std::string_view::npos;
}

// Returns false if the rest of the check makes no sense.
bool RunPart(const char* name, const char* unit, const Flags& flags,
             double seconds,
             const std::function<StatusOr<double>(const PartOptions&)>& part) {
  Say(std::string("begin\t") + name);
  const auto result = part({Seconds(seconds), flags.spoil == name});
  if (result.ok()) {
    Say(fmt::format("passed\t{}\t{:.6g}\t{}", name, *result, unit));
    return true;
  }
  if (result.status().code() == StatusCode::kNotFound) {
    Say(fmt::format("skipped\t{}\t{}", name, Message(result.status())));
    return true;
  }
  if (LacksCode(result.status())) {
    Say("cannot\tthe check is built without code for this GPU's model");
    return false;
  }
  Say(fmt::format("failed\t{}\t{}", name, Message(result.status())));
  // A wrong value does not end what CUDA can do; an error does.
  return result.status().code() == StatusCode::kAborted;
}

// The GPU answers, as far as CUDA needs it.
StatusOr<double> Begin(int devices) {
  int count = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cudaGetDeviceCount(&count), "finding the GPU"));
  if (count < devices) {
    return Unavailable("CUDA shows {} of {} GPUs", count, devices);
  }
  for (int device = devices - 1; device >= 0; --device) {
    LOCKSTEP_RETURN_IF_ERROR(Check(cudaSetDevice(device), "starting the GPU"));
    LOCKSTEP_RETURN_IF_ERROR(Check(cudaFree(nullptr), "starting the GPU"));
  }
  return 0.0;
}

int Run(const Flags& flags) {
  if (const std::string why = WhyCannot(); !why.empty()) {
    Say("cannot\t" + why);
    Say("end");
    return 0;
  }
  bool goes_on = false;
  if (flags.all_reduce) {
    goes_on = RunPart("all_reduce", "GB/s", flags, flags.seconds / 5,
                      [](const PartOptions& options) -> StatusOr<double> {
                        LOCKSTEP_RETURN_IF_ERROR(Begin(2).status());
                        return CheckAllReduce(options);
                      });
  } else {
    goes_on = RunPart("memory", "GB/s", flags, flags.seconds * 3 / 5,
                      [](const PartOptions& options) -> StatusOr<double> {
                        LOCKSTEP_RETURN_IF_ERROR(Begin(1).status());
                        return CheckMemory(options);
                      });
    if (goes_on) {
      goes_on = RunPart("matmul", "TFLOP/s", flags, flags.seconds * 2 / 5,
                        CheckMatmul);
    }
  }
  Say("end");
  // Without destructors of CUDA: they may wait for a GPU that hangs.
  std::_Exit(0);
}

}  // namespace
}  // namespace lockstep::worker::gpu_check

int main(int argc, char** argv) {
  using lockstep::worker::gpu_check::Flags;
  Flags flags;
  if (!lockstep::worker::gpu_check::ParseFlags(argc, argv, &flags)) {
    std::fprintf(stderr,
                 "usage: lockstep-gpu-check [--all-reduce] [--seconds S] "
                 "[--spoil PART]\n"
                 "Checks the first GPU of CUDA_VISIBLE_DEVICES, or an "
                 "all-reduce of its first two.\n"
                 "--spoil: for tests, changes a value of memory, matmul or "
                 "all_reduce\n");
    return 2;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(lockstep::worker::gpu_check::kLongest);
  return lockstep::worker::gpu_check::Run(flags);
}
