#include "common/model/names.h"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

// Not <cctype>, because names do not depend on the locale.
bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// clang-format off
constexpr std::string_view kReserved[] = {
    "CLOUD_ML_JOB_ID", "CLUSTER_SPEC", "COORDINATOR_ADDRESS",
    "COORDINATOR_PORT", "CUDA_VISIBLE_DEVICES", "DMLC_NUM_WORKER",
    "DMLC_TASK_ID", "DMLC_TRACKER_PORT", "DMLC_TRACKER_URI", "GROUP_RANK",
    "GROUP_WORLD_SIZE", "JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_PORT",
    "JAX_LOCAL_DEVICE_IDS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "LOCAL_RANK",
    "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NUM_PROCESSES",
    "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES", "PET_NODE_RANK",
    "PET_NPROC_PER_NODE", "PROCESS_ID", "RANK", "ROLE_NAME", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "SLURM_GPUS_ON_NODE", "SLURM_JOBID", "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST", "SLURM_LOCALID", "SLURM_NNODES", "SLURM_NODEID",
    "SLURM_NODELIST", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_PROCID",
    "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES", "TF_CONFIG",
    "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID", "WORLD_SIZE",
};
// clang-format on

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1,
                         diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

bool IsJobName(std::string_view name) {
  return !name.empty() && name.size() <= 63 &&
         (IsUpper(name[0]) || IsLower(name[0])) &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return IsUpper(c) || IsLower(c) || IsDigit(c) || c == '_' ||
                  c == '-';
         });
}

bool IsPoolName(std::string_view name) {
  return !name.empty() && name.size() <= 63 &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return IsLower(c) || IsDigit(c) || c == '-';
         });
}

bool IsNodeName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && name.front() != '-' &&
         name.back() != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return IsLower(c) || IsDigit(c) || c == '-';
         });
}

bool IsEnvironmentName(std::string_view name) {
  return !name.empty() && name.size() <= 256 && !IsDigit(name[0]) &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return IsUpper(c) || IsLower(c) || IsDigit(c) || c == '_';
         });
}

bool IsReservedEnvironmentName(std::string_view name) {
  return name.starts_with("LD_") || name.starts_with("LOCKSTEP_") ||
         std::find(std::begin(kReserved), std::end(kReserved), name) !=
             std::end(kReserved);
}

std::string Nearest(std::string_view name,
                    const std::vector<std::string>& candidates) {
  std::string best;
  // One edit in a short word, two (a transposition) in a longer one.
  const size_t allowed =
      name.size() <= 3 ? 1 : std::max<size_t>(2, name.size() / 3);
  size_t best_distance = allowed + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > 256 || name.size() > 256) continue;
    // The lengths bound the distance. This is cheap, as callers may hold a
    // lock.
    const size_t longer = std::max(candidate.size(), name.size()) -
                          std::min(candidate.size(), name.size());
    if (longer >= best_distance) continue;
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace lockstep
