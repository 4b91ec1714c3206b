#include "worker/agent/ranks/rank_starter.h"

#include <errno.h>

#include <algorithm>
#include <utility>

#include "common/base/fault_point.h"
#include "common/base/logging.h"
#include "common/base/random.h"
#include "worker/agent/host/data_interface.h"
#include "worker/agent/host/stray_processes.h"
#include "worker/agent/prepare/python_command.h"
#include "worker/agent/ranks/container_rank.h"
#include "worker/package/code_folder.h"

namespace lockstep::worker::agent {
namespace {

constexpr uint32_t kNonceFd = 3;
// The event loop waits for it.
constexpr Duration kReachTime = std::chrono::seconds(1);

// The limits of one of the task's ranks.
Resources ShareOf(const LocalTask& task) {
  Resources share;
  const auto ranks =
      static_cast<int64_t>(std::max<size_t>(1, task.ranks.size()));
  share.cpus = CpusPerRank(task);
  share.memory_bytes = task.resources.memory_bytes / ranks;
  return share;
}

}  // namespace

LogShare ShareOfLogs(uint64_t total, size_t ranks) {
  constexpr uint64_t kMiB = 1 << 20;
  const uint64_t each = total / std::max<size_t>(1, ranks);
  const uint64_t head = std::clamp(each / 5, kMiB, 16 * kMiB);
  return {head, std::clamp(each - std::min(each, head), 4 * kMiB, 64 * kMiB)};
}

RankStarter::RankStarter(const RankParts& parts, const RankHooks* hooks,
                         FileSystem* files)
    : parts_(parts),
      hooks_(hooks),
      warm_({parts.loop, parts.core, files, parts.cgroups,
             parts.options->shim_program, JoinPath(parts.setup->dir, "warm"),
             [this](const RankRef& ref) { return Sample(ref); }}) {}

void RankStarter::BeginGang(const GangKey& key) {
  const LocalGang* gang = parts_.core->Find(key);
  if (gang == nullptr) return;
  parts_.links->MakeNonces(key, gang->status.ranks);
  hooks_->save(key);
  hooks_->launching(key);
  (void)FaultPoint("worker.before_start");
}

std::string RankStarter::WorkOf(const RankRef& ref, const LocalGang& gang,
                                const LocalTask& task) const {
  const auto path =
      parts_.work->PathOf(gang.assignment.job_uid, task.type, task.index);
  return path.ok() ? *path : parts_.store->PathsOf(ref.gang, ref.rank).work;
}

RankEnvironmentInput RankStarter::EnvironmentOf(const RankRef& ref,
                                                const LocalGang& gang,
                                                const LocalTask& task) const {
  const DaemonSetup& setup = *parts_.setup;
  RankEnvironmentInput input;
  input.daemon = setup.environment;
  input.inherit = parts_.options->inherit;
  input.assignment = &gang.assignment;
  input.task = &task;
  input.rank = ref.rank;
  if (setup.user) input.home = setup.user->home;
  input.data_interface = InterfaceOf(setup.node.address);
  input.error_file = parts_.store->PathsOf(ref.gang, ref.rank).error_file;
  if (!task.gpus.empty() && !IsNative(gang.assignment)) {
    input.flight_directory = parts_.store->PathsOf(ref.gang, ref.rank).work;
  }
  if (IsNative(gang.assignment)) {
    input.link = parts_.links->path();
    input.nonce_fd = kNonceFd;
  } else if (!task.container || !parts_.links->directory().empty()) {
    input.link_file = parts_.store->PathsOf(ref.gang, ref.rank).link_file;
  }
  return input;
}

task::ShimSpec RankStarter::SpecOf(const RankRef& ref, const LocalGang& gang,
                                   const LocalTask& task) const {
  const DaemonSetup& setup = *parts_.setup;
  const GangSpec& job = *gang.assignment.spec;
  const RankPaths paths = parts_.store->PathsOf(ref.gang, ref.rank);
  const RankStatus* status = FindRank(gang, ref.rank);
  task::ShimSpec spec;
  spec.log_append = status != nullptr && status->restarts > 0;
  spec.job = ref.gang.job;
  spec.generation = ref.gang.generation;
  spec.rank = static_cast<uint32_t>(ref.rank);
  spec.argv = CommandOf(job, task);
  Environment env = MakeRankEnvironment(EnvironmentOf(ref, gang, task));
  PutPythonPath(
      package::CodePathOf(parts_.store->CodeDirectory(ref.gang), job.packages),
      &env);
  spec.env = ToStrings(env);
  spec.cwd = job.working_directory.empty() ? WorkOf(ref, gang, task)
                                           : job.working_directory;
  if (setup.user) {
    spec.set_ids = true;
    spec.uid = setup.user->uid;
    spec.gid = setup.user->gid;
    spec.groups = {setup.user->groups.begin(), setup.user->groups.end()};
  }
  spec.log_path = paths.log;
  spec.task_record_path = paths.task_record;
  spec.exit_record_path = paths.exit_record;
  spec.page_path = paths.page;
  spec.socket_path = JoinPath(setup.runtime_dir, RandomHex(8) + ".sock");
  spec.nonce = RandomHex(16);
  spec.fence_nanos = parts_.fences->Until(ref.gang);
  if (IsNative(gang.assignment)) {
    spec.secret = parts_.links->NonceOf(ref);
    spec.secret_fd = kNonceFd;
  }
  // By it what the rank starts is known as ours, wherever it goes.
  spec.env.push_back(
      fmt::format("{}={}", kTaskVariable,
                  TaskMark(setup.mark, TaskIdOf(spec.socket_path))));
  const LogShare share =
      ShareOfLogs(parts_.options->log_bytes, parts_.table->all().size());
  spec.log_head_bytes = share.head;
  spec.log_tail_bytes = share.tail;
  return spec;
}

Status RankStarter::MakeDirectories(const RankRef& ref, const LocalGang& gang,
                                    const LocalTask& task) {
  const auto& user = parts_.setup->user;
  LOCKSTEP_RETURN_IF_ERROR(parts_.store->MakeRankDirectories(
      ref.gang, ref.rank, OwnerId(user), OwnerGroup(user)));
  if (!IsNative(gang.assignment)) {
    // Most programs do without.
    const Status written = parts_.store->WriteLinkFile(
        ref.gang, ref.rank, parts_.links->LinkFileOf(ref), OwnerId(user),
        OwnerGroup(user));
    if (!written.ok()) {
      LOG_WARN("{}: it cannot join: {}", Describe(ref), Message(written));
    }
  }
  return parts_.work->Make(gang.assignment, task);
}

void RankStarter::MakeCgroup(const RankRef& ref, const Resources& share,
                             task::ShimSpec* spec) {
  if (!parts_.cgroups->enabled()) return;
  const auto path = parts_.cgroups->Make(TaskIdOf(spec->socket_path), share);
  if (!path.ok()) {
    // A rank without limits is better than a job that cannot start.
    LOG_ERROR("{}: runs without limits: {}", Describe(ref),
              Message(path.status()));
    return;
  }
  spec->cgroup = *path;
}

StatusOr<WarmSample> RankStarter::Sample(const RankRef& ref) {
  const LocalGang* gang = parts_.core->Find(ref.gang);
  if (gang == nullptr || !gang->assignment.spec || !gang->assignment.cluster) {
    return FailedPrecondition("it is not known yet how it starts");
  }
  const LocalTask* task = TaskOf(*gang->assignment.spec, ref.rank);
  if (task == nullptr || task->container || IsNative(gang->assignment)) {
    return FailedPrecondition("only programs outside containers can");
  }
  LOCKSTEP_RETURN_IF_ERROR(parts_.work->Make(gang->assignment, *task));
  return WarmSample{SpecOf(ref, *gang, *task), ShareOf(*task)};
}

Status RankStarter::EnterContainer(const RankRef& ref, const LocalGang& gang,
                                   const LocalTask& task,
                                   task::ShimSpec* spec) {
  const auto engine = parts_.containers->engine();
  if (engine == nullptr) {
    return FailedPrecondition(
        "node {} no longer has a working container engine",
        parts_.setup->node.name);
  }
  const GangSpec& job = *gang.assignment.spec;
  ContainerRankInput input;
  input.ref = ref;
  input.setup = parts_.setup;
  input.gang = &gang;
  input.task = &task;
  input.engine = engine.get();
  input.paths = parts_.store->PathsOf(ref.gang, ref.rank);
  input.work = job.working_directory.empty() ? WorkOf(ref, gang, task)
                                             : input.paths.work;
  input.code =
      package::CodePathOf(parts_.store->CodeDirectory(ref.gang), job.packages);
  input.environment = EnvironmentOf(ref, gang, task);
  input.limits = parts_.cgroups->enabled();
  input.link_directory = parts_.links->directory();
  input.reach =
      [&](const container::ContainerUser& user,
          const std::string& path) -> StatusOr<container::ReachedDirectory> {
    if (auto known = hooks_->mount_of(ref.gang, path)) return *known;
    // A directory of our own, or of a gang that an earlier daemon prepared.
    return ReachWithin(user, path, kReachTime);
  };
  return PutInContainer(input, spec);
}

void RankStarter::Start(const RankRef& ref) {
  const LocalGang* gang = parts_.core->Find(ref.gang);
  if (gang == nullptr || !gang->assignment.spec) return;
  const LocalTask* task = TaskOf(*gang->assignment.spec, ref.rank);
  if (task == nullptr) return;
  Rank& rank = parts_.table->Get(ref);
  parts_.logs->Add(ref, gang->assignment.job_uid, rank.paths.log);
  if (const Status made = MakeDirectories(ref, *gang, *task); !made.ok()) {
    return parts_.exits->OnNotStarted(ref, EIO, Message(made));
  }
  parts_.links->Expect(ref, rank.paths.page);
  WarmSample sample{SpecOf(ref, *gang, *task), ShareOf(*task)};
  std::optional<shim::WarmShim> warm;
  if (!task->container) {
    warm = warm_.Take(gang->assignment.job_uid, &sample);
  }
  warm_.NoteStart(gang->assignment.job_uid);
  task::ShimSpec& spec = sample.spec;
  rank.task_id = TaskIdOf(spec.socket_path);
  std::vector<int> held = parts_.ports->Hold(ref, *gang);
  const std::set<int32_t>& ports = parts_.ports->Of(ref);
  spec.ports = {ports.begin(), ports.end()};
  // The start would fail later with another error; RankExits names the holder
  // of the port.
  if (parts_.ports->IsTaken(ref)) {
    return parts_.exits->OnNotStarted(ref, EADDRINUSE, "");
  }
  if (task->container) {
    if (const Status put = EnterContainer(ref, *gang, *task, &spec);
        !put.ok()) {
      const bool denied = put.code() == StatusCode::kPermissionDenied;
      return parts_.exits->OnNotStarted(ref, denied ? EACCES : EIO,
                                        Message(put));
    }
    // Its listeners are indistinguishable from others.
    if (!parts_.containers->engine()->in_tree()) parts_.ports->Unwatch(ref);
  } else {
    if (!warm) MakeCgroup(ref, sample.share, &spec);
    if (!spec.cgroup.empty()) parts_.sampler->SetCgroup(ref, spec.cgroup);
  }
  parts_.supervisor->Start(ref, spec, rank.paths, std::move(held),
                           std::move(warm));
}

}  // namespace lockstep::worker::agent
