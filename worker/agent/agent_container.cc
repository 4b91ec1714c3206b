// Ranks in containers.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/base/logging.h"
#include "worker/agent/agent.h"
#include "worker/agent/host/stray_processes.h"
#include "worker/agent/prepare/python_command.h"
#include "worker/container/cli_engine.h"
#include "worker/container/find_engine.h"
#include "worker/container/reach.h"
#include "worker/container/run_arguments.h"
#include "worker/shim/shim_client.h"

namespace lockstep {
namespace {

constexpr Duration kRemoveTime = std::chrono::seconds(30);
// The event loop waits for it.
constexpr Duration kReachTime = std::chrono::seconds(1);
// Of a task's id, in the name of its container.
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

void AddMount(const std::string& path, bool read_only, ContainerPlan* plan) {
  if (path.empty()) return;
  for (const ContainerMount& mount : plan->mounts) {
    if (mount.path == path) return;
  }
  plan->mounts.push_back({path, read_only});
}

// Of the host nothing but what the job has asked for.
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

}  // namespace

void Agent::SetContainerEngine(std::shared_ptr<ContainerEngine> engine) {
  engine_ = std::move(engine);
  config_.node.container_engine = engine_->version();
  LOG_INFO("containers run by {} ({}), {}", engine_->version(),
           engine_->program(),
           engine_->can_limit() ? "with limits" : "without limits");
  if (client_ == nullptr) return;  // Start does the rest.
  SweepContainers();
  // Register says what this node can: say it anew.
  if (open_) client_->Disconnect();
}

Status Agent::PutInContainer(const RankRef& ref, const Assignment& assignment,
                             const LocalTask& task, task::ShimSpec* spec) {
  if (engine_ == nullptr) {
    return FailedPrecondition("no container engine works on node {} any more",
                              config_.node.name);
  }
  const RankPaths paths = store_.PathsOf(ref.gang, ref.rank);
  // Kept for the job's whole life; the rank's own holds its page and error.
  const std::string work = assignment.spec->working_directory.empty()
                               ? WorkOf(ref, assignment, task)
                               : paths.work;
  const std::string id = TaskIdOf(spec->socket_path);
  ContainerPlan plan;
  plan.name = ContainerName(ref.gang.job, ref.gang.generation, ref.rank,
                            id.substr(0, kIdInName));
  plan.labels = {{kContainerMarkLabel, mark_},
                 {kContainerDaemonLabel,
                  std::to_string(config_.node.incarnation.counter)}};
  plan.image = ImageToRun(ref.gang, assignment, task.container->image);
  plan.command = task.container->command;
  plan.args = task.argv;

  const std::string mark = TaskMark(mark_, id);
  plan.environment = ContainerEnvironment(
      EnvironmentInput(ref, assignment, task), config_.environment);
  plan.environment[kTaskVariable] = mark;
  plan.gpus = GpusIn(plan.environment["CUDA_VISIBLE_DEVICES"]);
  plan.environment["CUDA_VISIBLE_DEVICES"] = NumbersInside(plan.gpus);
  plan.user = UserIn(*engine_, config_.user);
  if (plan.user) {
    // Which the image may not know: its home is the one place that is its own.
    plan.environment.try_emplace("HOME", work);
  }
  plan.environment_file = JoinPath(paths.directory, "container.env");

  plan.working_directory = assignment.spec->working_directory;
  AddMount(paths.work, false, &plan);
  AddMount(work, false, &plan);
  AddMount(assignment.spec->output_directory, false, &plan);
  AddMount(plan.working_directory, false, &plan);
  // At the paths that they have on the host, unpacked for this gang.
  const std::vector<std::string> code =
      CodePathOf(CodeDirectory(ref.gang), assignment.spec->packages);
  for (const std::string& path : code) AddMount(path, true, &plan);
  PutPythonPath(code, &plan.environment);

  const auto ranks =
      static_cast<int64_t>(std::max<size_t>(1, task.ranks.size()));
  const int64_t memory = task.resources.memory_bytes / ranks;
  if (config_.cgroups != nullptr) {
    plan.cpus = CpusPerRank(task);
    plan.memory_bytes = memory;
  }
  plan.shm_bytes =
      (memory > 0 ? memory : config_.node.capacity.memory_bytes) / 2;
  if (plan.user) {
    for (ContainerMount& mount : plan.mounts) {
      LOCKSTEP_ASSIGN_OR_RETURN(ReachedDirectory reached,
                                ReachMount(ref.gang, *plan.user, mount.path));
      mount.source = std::move(reached.path);
      mount.device = reached.device;
      mount.inode = reached.inode;
    }
    if (engine_->reports()) {
      for (auto& [name, value] : MountVariables(plan.mounts)) {
        plan.environment[name] = value;
      }
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckPlan(plan));
  LOCKSTEP_RETURN_IF_ERROR(
      WritePrivate(plan.environment_file, EnvironmentFile(plan.environment)));

  // The engine's client is ours, and nothing of the job tells it what to do.
  spec->argv = engine_->RunArguments(plan);
  spec->env = engine_->Environment();
  for (const char* name :
       {"LOCKSTEP_JOB", "LOCKSTEP_GENERATION", "LOCKSTEP_RANK"}) {
    spec->env.push_back(fmt::format("{}={}", name, plan.environment[name]));
  }
  spec->env.push_back(fmt::format("{}={}", kTaskVariable, mark));
  spec->cwd = "/";
  spec->set_ids = false;
  spec->groups.clear();
  spec->container.name = plan.name;
  spec->container.signal = engine_->SignalArguments(plan.name);
  spec->container.inspect = engine_->InspectArguments(plan.name);
  spec->container.remove = engine_->RemoveArguments(plan.name);
  spec->container.reports = engine_->reports();
  return OkStatus();
}

std::string Agent::ImageToRun(const GangKey& key, const Assignment& assignment,
                              const std::string& image) const {
  const LocalGang* gang = core_.Find(key);
  // By its id: what the name stands for may have changed since. A gang that an
  // earlier daemon has prepared is known by what was settled.
  if (gang != nullptr) {
    for (const ImageContent& content : gang->status.images) {
      if (content.image == image) return content.id;
    }
  }
  for (const ImageContent& content : assignment.spec->images) {
    if (content.image == image && !content.id.empty()) return content.id;
  }
  return image;
}

StatusOr<ReachedDirectory> Agent::ReachMount(const GangKey& key,
                                             const ContainerUser& user,
                                             const std::string& path) {
  const auto& known = gangs_[key].mounts;
  if (const auto it = known.find(path); it != known.end()) return it->second;
  // A directory of our own, or of a gang that an earlier daemon has prepared.
  return ReachWithin(user, path, kReachTime);
}

void Agent::RemoveContainer(const task::TaskRecord& record,
                            std::function<void()> done) {
  TryRemoval(record.container, record.engine,
             [this, record, done = std::move(done)](const Status& removed) {
               if (removed.ok()) {
                 LOG_WARN(
                     "the container {}, which nobody held any more, is removed",
                     record.container);
               } else {
                 LOG_ERROR("{}", Message(removed));
                 left_containers_[record.container] = record.engine;
                 SweepContainersLater();
               }
               done();
             });
}

void Agent::TryRemoval(const std::string& name, const std::string& program,
                       std::function<void(const Status&)> done) {
  auto engine = engine_;
  if (engine != nullptr && engine->program() != program) engine.reset();
  container_work_->Add([this, engine, name, program, done = std::move(done),
                        env = ClientEnvironment(config_.environment),
                        alive = alive_] {
    const MonoTime deadline = MonotonicNow() + kRemoveTime;
    const Status status = engine != nullptr
                              ? engine->Remove(name, deadline)
                              // An earlier daemon's engine.
                              : RemoveContainerBy(program, env, name, deadline);
    loop_->Post([alive, status, done] {
      if (*alive) done(status);
    });
  });
}

void Agent::SweepContainersLater() {
  if (sweep_is_due_) return;
  sweep_is_due_ = true;
  loop_->At(loop_->Now().mono + config_.container_sweep_every,
            [this, alive = alive_] {
              if (!*alive) return;
              sweep_is_due_ = false;
              SweepContainers();
            });
}

void Agent::SweepContainers() {
  if (engine_ == nullptr && left_containers_.empty()) return;
  // One at a time: what is found when, decides whose container is dead.
  if (sweeping_) return SweepContainersLater();
  sweeping_ = true;
  if (engine_ == nullptr) return RemoveDead({});
  container_work_->Add([this, engine = engine_, mark = mark_, alive = alive_] {
    auto found = std::make_shared<StatusOr<std::vector<FoundContainer>>>(
        engine->List(mark, MonotonicNow() + kRemoveTime));
    loop_->Post([this, found, alive] {
      if (!*alive) return;
      if (!found->ok()) {
        LOG_WARN("{}", Message(found->status()));
        SweepContainersLater();
      }
      RemoveDead(found->ok() ? **found : std::vector<FoundContainer>());
    });
  });
}

bool Agent::MayHold(const std::string& container) const {
  // A rank is known here before its container is made, and its own shim
  // removes that. Of one whose record could not be read any is its.
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& entry) {
    const auto& [ref, info] = entry;
    return !info.ended && container.starts_with(ContainerName(
                              ref.gang.job, ref.gang.generation, ref.rank,
                              info.task_id.substr(0, kIdInName)));
  });
}

void Agent::RemoveDead(const std::vector<FoundContainer>& found) {
  std::map<std::string, std::string> dead = std::exchange(left_containers_, {});
  for (const FoundContainer& container : found) {
    if (!MayHold(container.name)) dead[container.name] = engine_->program();
  }
  RemoveNext(
      std::make_shared<std::map<std::string, std::string>>(std::move(dead)));
}

void Agent::RemoveNext(
    std::shared_ptr<std::map<std::string, std::string>> dead) {
  if (dead->empty()) {
    sweeping_ = false;
    return;
  }
  const auto [name, program] = *dead->begin();
  dead->erase(dead->begin());
  // Each by itself, so that what hangs holds up neither the others for good
  // nor a rank whose end waits for its container.
  TryRemoval(
      name, program,
      [this, name = name, program = program, dead](const Status& removed) {
        LOG_WARN("the container {}, which no rank holds, {}", name,
                 removed.ok() ? "is removed" : "stays: " + Message(removed));
        if (!removed.ok()) {
          left_containers_[name] = program;
          SweepContainersLater();
        }
        RemoveNext(dead);
      });
}

}  // namespace lockstep
