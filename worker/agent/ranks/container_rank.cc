#include "worker/agent/ranks/container_rank.h"

#include <algorithm>
#include <utility>

#include "common/base/file.h"
#include "common/base/logging.h"
#include "worker/agent/host/stray_processes.h"
#include "worker/agent/prepare/preparation.h"
#include "worker/agent/prepare/python_command.h"
#include "worker/container/run_arguments.h"
#include "worker/rank_link/packet.h"

namespace lockstep::worker::agent {
namespace {

// Characters of a task's id in the name of its container.
constexpr size_t kIdInName = 8;

// "2,0" is GPUs 2 and 0 of the host.
std::vector<int32_t> GpusIn(const std::string& text) {
  std::vector<int32_t> gpus;
  for (size_t at = 0; at < text.size();) {
    size_t used = 0;
    gpus.push_back(std::stoi(text.substr(at), &used));
    at += used + 1;
  }
  return gpus;
}

// In the container there are no others: they have numbers from 0, in the
// host's order.
std::string NumbersInside(const std::vector<int32_t>& gpus) {
  std::vector<int32_t> sorted = gpus;
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (const int32_t gpu : gpus) {
    const auto at = std::find(sorted.begin(), sorted.end(), gpu);
    if (!text.empty()) text += ',';
    text += std::to_string(at - sorted.begin());
  }
  return text;
}

void AddMount(const std::string& path, bool read_only,
              container::ContainerPlan* plan) {
  if (path.empty()) return;
  for (const container::ContainerMount& mount : plan->mounts) {
    if (mount.path == path) return;
  }
  plan->mounts.push_back({path, read_only});
}

// Nothing of the host, but what the job has asked for.
Environment ContainerEnvironment(RankEnvironmentInput input,
                                 const Environment& daemon) {
  input.daemon.clear();
  input.home.clear();
  for (const std::string& name :
       input.assignment->spec->inherited_environment) {
    if (const auto it = daemon.find(name); it != daemon.end()) {
      input.daemon.insert(*it);
    }
  }
  const bool has_path =
      input.daemon.contains("PATH") || input.task->environment.contains("PATH");
  Environment env = MakeRankEnvironment(input);
  if (!has_path) env.erase("PATH");
  return env;
}

// Readable for the engine's client alone, before it holds anything.
Status WritePrivate(const std::string& path, const std::string& text) {
  return RealFileSystem()->WriteAtomic(path, text, 0600);
}

// By its id: what the name stands for may have changed since. A gang that an
// earlier daemon has prepared is known by what was settled.
std::string ImageToRun(const LocalGang& gang, const std::string& image) {
  for (const ImageContent& content : gang.status.images) {
    if (content.image == image) return content.id;
  }
  for (const ImageContent& content : gang.assignment.spec->images) {
    if (content.image == image && !content.id.empty()) return content.id;
  }
  return image;
}

void PlanEnvironment(const ContainerRankInput& input, const std::string& mark,
                     container::ContainerPlan* plan) {
  plan->environment =
      ContainerEnvironment(input.environment, input.setup->environment);
  plan->environment[kTaskVariable] = mark;
  plan->gpus = GpusIn(plan->environment["CUDA_VISIBLE_DEVICES"]);
  plan->environment["CUDA_VISIBLE_DEVICES"] = NumbersInside(plan->gpus);
  plan->user = UserIn(*input.engine, input.setup->user);
  if (plan->user) {
    // The image may not know this user, whose only own place is `work`.
    plan->environment.try_emplace("HOME", input.work);
  }
  plan->environment_file = JoinPath(input.paths.directory, "container.env");
}

// As the user in the container reaches it.
Status Reach(const ContainerRankInput& input,
             const container::ContainerPlan& plan,
             container::ContainerMount* mount) {
  if (!plan.user) return OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(container::ReachedDirectory reached,
                            input.reach(*plan.user, mount->path));
  mount->source = std::move(reached.path);
  mount->device = reached.device;
  mount->inode = reached.inode;
  return OkStatus();
}

// The directories of the daemon's socket and of the rank's link file. The
// socket's and not the socket: the next daemon makes another one there. A rank
// runs without a link if they cannot be had.
void MountLink(const ContainerRankInput& input,
               container::ContainerPlan* plan) {
  if (!plan->environment.contains(rank_link::kLinkFileVariable)) return;
  // A connection needs no right to write to the directory.
  std::vector<container::ContainerMount> mounts = {
      {input.link_directory, true}, {input.paths.link_directory, true}};
  for (container::ContainerMount& mount : mounts) {
    if (const Status reached = Reach(input, *plan, &mount); !reached.ok()) {
      LOG_WARN("{}: it cannot join: {}", Describe(input.ref), Message(reached));
      plan->environment.erase(rank_link::kLinkFileVariable);
      return;
    }
  }
  plan->mounts.insert(plan->mounts.end(), mounts.begin(), mounts.end());
}

Status PlanMounts(const ContainerRankInput& input,
                  container::ContainerPlan* plan) {
  const GangSpec& spec = *input.gang->assignment.spec;
  plan->working_directory = spec.working_directory;
  AddMount(input.paths.work, false, plan);
  AddMount(input.work, false, plan);
  AddMount(spec.output_directory, false, plan);
  AddMount(plan->working_directory, false, plan);
  // At the paths that they have on the host, unpacked for this gang.
  for (const std::string& path : input.code) AddMount(path, true, plan);
  PutPythonPath(input.code, &plan->environment);
  for (container::ContainerMount& mount : plan->mounts) {
    LOCKSTEP_RETURN_IF_ERROR(Reach(input, *plan, &mount));
  }
  MountLink(input, plan);
  if (!plan->user) return OkStatus();
  if (input.engine->reports()) {
    for (auto& [name, value] : MountVariables(plan->mounts)) {
      plan->environment[name] = value;
    }
  }
  return OkStatus();
}

void PlanLimits(const ContainerRankInput& input,
                container::ContainerPlan* plan) {
  const LocalTask& task = *input.task;
  const auto ranks =
      static_cast<int64_t>(std::max<size_t>(1, task.ranks.size()));
  const int64_t memory = task.resources.memory_bytes / ranks;
  if (input.limits) {
    plan->cpus = CpusPerRank(task);
    plan->memory_bytes = memory;
  }
  plan->shm_bytes =
      (memory > 0 ? memory : input.setup->node.capacity.memory_bytes) / 2;
}

// The engine's client is trusted; the job cannot control it.
void RunClient(const container::ContainerEngine& engine,
               const container::ContainerPlan& plan, const std::string& mark,
               task::ShimSpec* spec) {
  spec->argv = engine.RunArguments(plan);
  spec->env = engine.Environment();
  for (const char* name :
       {"LOCKSTEP_JOB", "LOCKSTEP_GENERATION", "LOCKSTEP_RANK"}) {
    spec->env.push_back(fmt::format("{}={}", name, plan.environment.at(name)));
  }
  spec->env.push_back(fmt::format("{}={}", kTaskVariable, mark));
  spec->cwd = "/";
  spec->set_ids = false;
  spec->groups.clear();
  spec->container.name = plan.name;
  spec->container.signal = engine.SignalArguments(plan.name);
  spec->container.inspect = engine.InspectArguments(plan.name);
  spec->container.remove = engine.RemoveArguments(plan.name);
  spec->container.reports = engine.reports();
}

}  // namespace

std::string RankContainerName(const RankRef& ref, const std::string& task_id) {
  return container::ContainerName(ref.gang.job, ref.gang.generation, ref.rank,
                                  task_id.substr(0, kIdInName));
}

Status PutInContainer(const ContainerRankInput& input, task::ShimSpec* spec) {
  const std::string id = TaskIdOf(spec->socket_path);
  const std::string mark = TaskMark(input.setup->mark, id);
  container::ContainerPlan plan;
  plan.name = RankContainerName(input.ref, id);
  plan.labels = {{container::kContainerMarkLabel, input.setup->mark},
                 {container::kContainerDaemonLabel,
                  std::to_string(input.setup->node.incarnation.counter)}};
  plan.image = ImageToRun(*input.gang, input.task->container->image);
  plan.command = input.task->container->command;
  plan.args = input.task->argv;
  PlanEnvironment(input, mark, &plan);
  PlanLimits(input, &plan);
  LOCKSTEP_RETURN_IF_ERROR(PlanMounts(input, &plan));
  LOCKSTEP_RETURN_IF_ERROR(CheckPlan(plan));
  LOCKSTEP_RETURN_IF_ERROR(WritePrivate(
      plan.environment_file, container::EnvironmentFile(plan.environment)));
  RunClient(*input.engine, plan, mark, spec);
  return OkStatus();
}

bool MayHold(const RankTable& table, const std::string& container) {
  // The table has a rank before its container exists, and its own shim removes
  // the container. A rank without a readable record may own any container.
  return std::any_of(
      table.all().begin(), table.all().end(), [&](const auto& entry) {
        const auto& [ref, rank] = entry;
        return !rank.ended &&
               container.starts_with(RankContainerName(ref, rank.task_id));
      });
}

}  // namespace lockstep::worker::agent
