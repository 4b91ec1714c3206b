#include "worker/agent/rank_environment.h"

#include <algorithm>
#include <cmath>

#include "common/model/cluster_spec.h"
#include "worker/task/shim_spec.h"

namespace lockstep {
namespace {

// What a program may need of the host, and nothing that says who the daemon
// is or how its libraries are loaded.
constexpr const char* kInherited[] = {
    "HOME", "HOSTNAME", "LANG",   "LANGUAGE", "LOGNAME",
    "PATH", "SHELL",    "TMPDIR", "TZ",       "USER"};

bool IsInherited(const std::string& name) {
  return name.starts_with("LC_") ||
         std::find(std::begin(kInherited), std::end(kInherited), name) !=
             std::end(kInherited);
}

std::string Join(const std::vector<int32_t>& numbers) {
  std::string text;
  for (const int32_t number : numbers) {
    if (!text.empty()) text += ',';
    text += std::to_string(number);
  }
  return text;
}

}  // namespace

double CpusPerRank(const LocalTask& task) {
  return task.ranks.empty()
             ? 0
             : task.resources.cpus / static_cast<double>(task.ranks.size());
}

std::vector<int32_t> GpusOfRank(const Assignment& assignment, int32_t rank) {
  if (!assignment.cluster) return {};
  for (const TaskSpec& task : assignment.cluster->tasks) {
    for (const RankSpec& spec : task.ranks) {
      if (spec.rank == rank) return spec.gpus;
    }
  }
  return {};
}

Environment MakeRankEnvironment(const RankEnvironmentInput& input) {
  const Assignment& assignment = *input.assignment;
  Environment env;
  for (const auto& [name, value] : input.daemon) {
    if (IsInherited(name)) env[name] = value;
  }
  env.try_emplace("PATH", "/usr/local/bin:/usr/bin:/bin");
  if (!input.home.empty()) env["HOME"] = input.home;

  env["PYTHONUNBUFFERED"] = std::string("1");
  // As many threads as cores: two ranks with two each on two cores thrash.
  if (const double cpus = CpusPerRank(*input.task); cpus > 0) {
    const std::string threads = std::to_string(
        std::max<int64_t>(1, static_cast<int64_t>(std::floor(cpus))));
    env["OMP_NUM_THREADS"] = threads;
    env["OPENBLAS_NUM_THREADS"] = threads;
  }
  for (const auto& [name, value] : input.task->environment) env[name] = value;

  // Of a host with GPUs a rank sees its own only; "" hides them all.
  env["CUDA_VISIBLE_DEVICES"] = Join(GpusOfRank(assignment, input.rank));
  for (auto& [name, value] : RankEnvironment(*assignment.cluster, input.rank)) {
    env[name] = std::move(value);
  }
  // The addresses of very many tasks do not fit one variable. Programs with so
  // many are refused at submission; native ranks do not read it.
  if (const auto it = env.find("TF_CONFIG");
      it != env.end() &&
      it->first.size() + 1 + it->second.size() >= task::kMaxArgBytes) {
    env.erase(it);
  }
  env["LOCKSTEP_JOB"] = assignment.job;
  env["LOCKSTEP_GENERATION"] = std::to_string(assignment.generation);
  env["LOCKSTEP_RANK"] = std::to_string(input.rank);
  if (assignment.spec && !assignment.spec->output_directory.empty()) {
    env["LOCKSTEP_OUTPUT_DIRECTORY"] = assignment.spec->output_directory;
  }
  if (!input.link.empty()) {
    env["LOCKSTEP_LINK"] = input.link;
    env["LOCKSTEP_NONCE_FD"] = std::to_string(input.nonce_fd);
  }
  return env;
}

std::vector<std::string> ToStrings(const Environment& environment) {
  std::vector<std::string> strings;
  for (const auto& [name, value] : environment) {
    strings.push_back(name + "=" + value);
  }
  return strings;
}

Environment FromStrings(const std::vector<std::string>& strings) {
  Environment environment;
  for (const std::string& text : strings) {
    const size_t at = text.find('=');
    if (at == std::string::npos || at == 0) continue;
    environment.emplace(text.substr(0, at), text.substr(at + 1));
  }
  return environment;
}

}  // namespace lockstep
