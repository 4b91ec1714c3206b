#include "worker/agent/warm/warm_spec.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "worker/agent/prepare/python_command.h"
#include "worker/agent/warm/warm_start_text.h"

namespace lockstep::worker::agent {
namespace {

// The interpreter's descriptor with warm_start.py.
constexpr uint32_t kProgramFd = 4;
constexpr char kProgramPath[] = "/dev/fd/4";

// The variables that say which rank of which generation a process is, where its
// peers are, and which GPUs are its own.
constexpr std::string_view kOfTheRank[] = {
    "RANK",        "LOCAL_RANK",  "GROUP_RANK",          "ROLE_RANK",
    "ROLE_NAME",   "WORLD_SIZE",  "NUM_PROCESSES",       "PROCESS_ID",
    "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG",           "CLUSTER_SPEC",
    "no_proxy",    "NO_PROXY",    "CUDA_VISIBLE_DEVICES"};
constexpr std::string_view kOfTheRankPrefixes[] = {
    "LOCKSTEP_",    "COORDINATOR_",
    "DMLC_",        "JAX_",
    "OMPI_",        "PET_",
    "SLURM_",       "TORCHELASTIC_",
    "TORCH_FR_",    "TORCH_NCCL_DEBUG_INFO_",
    "LOCAL_WORLD_", "GROUP_WORLD_",
    "ROLE_WORLD_"};

bool IsOfTheRank(std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('='));
  return std::find(std::begin(kOfTheRank), std::end(kOfTheRank), name) !=
             std::end(kOfTheRank) ||
         std::any_of(
             std::begin(kOfTheRankPrefixes), std::end(kOfTheRankPrefixes),
             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::vector<std::string> SharedVariables(const task::ShimSpec& spec) {
  std::vector<std::string> shared;
  for (const std::string& variable : spec.env) {
    if (!IsOfTheRank(variable)) shared.push_back(variable);
  }
  std::sort(shared.begin(), shared.end());
  return shared;
}

}  // namespace

bool MakeWarm(task::ShimSpec* spec) {
  const size_t at = ProgramArgument(spec->argv);
  if (at == 0 || !spec->container.name.empty() || !spec->secret.empty()) {
    return false;
  }
  spec->argv.insert(spec->argv.begin() + static_cast<std::ptrdiff_t>(at),
                    kProgramPath);
  spec->secret = kWarmStartText;
  spec->secret_fd = kProgramFd;
  spec->ports.clear();
  spec->fence_nanos = 0;
  return true;
}

bool MayBecome(const WarmSample& sample, const WarmSample& rank) {
  const task::ShimSpec& a = sample.spec;
  const task::ShimSpec& b = rank.spec;
  return a.argv == b.argv && a.set_ids == b.set_ids && a.uid == b.uid &&
         a.gid == b.gid && a.groups == b.groups && a.umask == b.umask &&
         a.core_limit == b.core_limit && b.secret.empty() &&
         b.container.name.empty() && sample.share == rank.share &&
         SharedVariables(a) == SharedVariables(b);
}

}  // namespace lockstep::worker::agent
