// What step_model was asked, and its answer as text. Pure.
#ifndef LOCKSTEP_TESTS_BENCH_MODEL_OPTIONS_H_
#define LOCKSTEP_TESTS_BENCH_MODEL_OPTIONS_H_

#include <string>
#include <vector>

#include "common/base/status.h"
#include "tests/bench/model/model.h"

namespace lockstep::model {

struct ModelOptions {
  // One row each.
  std::vector<int> hosts = {1, 8, 64, 512};
  // `hosts` aside. 8 GPUs that exchange 200 Gbit/s, a line of 100 Gbit/s.
  Cluster cluster = {.hosts = 1,
                     .gpus_per_host = 8,
                     .intra = {3e-6, 8 / 200e9},
                     .inter = {15e-6, 8 / 100e9}};
  // ResNet-50 in float32 on one GPU.
  Training training = {.compute_seconds = 0.1,
                       .gradient_bytes = uint64_t{98} << 20};
  bool help = false;
};

// InvalidArgument names the option.
StatusOr<ModelOptions> ParseModelOptions(
    const std::vector<std::string>& arguments);
std::string ModelHelp();
std::string ModelTable(const ModelOptions& options);

}  // namespace lockstep::model

#endif  // LOCKSTEP_TESTS_BENCH_MODEL_OPTIONS_H_
