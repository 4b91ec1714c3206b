// What the tests of `lockstep top` show.
#ifndef LOCKSTEP_CLIENT_CLI_TOP_TEST_UTIL_H_
#define LOCKSTEP_CLIENT_CLI_TOP_TEST_UTIL_H_

#include <string>
#include <utility>
#include <vector>

#include "client/cli/top.h"

namespace lockstep::cli {

inline const WallTime kTopNow = FromUnixNanos(1'767'225'600'000'000'000);

inline v1::Job Training(const std::string& name, double compute, double wait) {
  v1::Job job;
  job.set_name(name);
  job.set_owner("user/ann");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_start_time()->set_seconds(1'767'225'500);
  job.mutable_state_time()->set_seconds(1'767'225'500);
  job.mutable_spec()->add_roles()->set_count(2);
  job.mutable_progress()->set_generation(1);
  job.mutable_progress()->set_samples_per_second(1234);
  v1::RankProgress* const chief = job.mutable_progress()->mutable_chief();
  chief->set_committed_step(500);
  chief->set_total_steps(1000);
  chief->set_loss(0.25);
  chief->mutable_phases()->set_compute(compute);
  chief->mutable_phases()->set_straggler_wait(wait);
  return job;
}

inline v1::Node Host(const std::string& name) {
  v1::Node node;
  node.set_name(name);
  node.set_state(v1::NODE_STATE_READY);
  node.mutable_capacity()->set_cpus(4);
  node.mutable_capacity()->set_memory_bytes(8ll << 30);
  node.mutable_capacity()->set_gpus(1);
  node.mutable_allocated()->set_cpus(2);
  node.mutable_allocated()->set_gpus(1);
  node.set_cpu_utilization(0.5);
  node.set_memory_available_bytes(6ll << 30);
  node.add_jobs("fashion");
  v1::Gpu* const gpu = node.add_gpus();
  gpu->set_model("Tesla T4");
  gpu->set_job("fashion");
  gpu->set_memory_bytes(16ll << 30);
  v1::GpuUsage* const usage = node.add_gpu_usage();
  usage->set_utilization(0.87);
  usage->set_memory_access(0.45);
  usage->set_memory_used_bytes(4ll << 30);
  usage->set_power_watts(65);
  return node;
}

inline TopState StateOf(std::vector<v1::Job> jobs,
                        std::vector<v1::Node> nodes) {
  TopState state;
  state.Take({kTopNow, std::move(jobs), std::move(nodes)});
  return state;
}

inline std::string JoinedLines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_TOP_TEST_UTIL_H_
