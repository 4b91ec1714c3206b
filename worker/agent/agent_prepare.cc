// Getting gangs ready, and giving back what they held.
#include <algorithm>
#include <system_error>
#include <utility>

#include "common/base/logging.h"
#include "common/base/random.h"
#include "worker/agent/agent.h"
#include "worker/agent/core/printable_text.h"
#include "worker/agent/host/stray_processes.h"

namespace lockstep {
namespace {

// A preparation that fetches nothing takes milliseconds, unless a file system
// hangs: then the coordinator must know in what.
constexpr Duration kSlow = std::chrono::seconds(1);
constexpr char kPath[] = "/usr/local/bin:/usr/bin:/bin";

// What pip may need to reach an index, where it may.
bool IsForAnIndex(const std::string& name) {
  static constexpr const char* kNames[] = {
      "http_proxy",   "https_proxy",   "no_proxy",          "all_proxy",
      "HTTP_PROXY",   "HTTPS_PROXY",   "NO_PROXY",          "ALL_PROXY",
      "SSL_CERT_DIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"};
  return name.starts_with("PIP_") ||
         std::find(std::begin(kNames), std::end(kNames), name) !=
             std::end(kNames);
}

// pip runs an sdist's own code, as the task's user and before the job has
// groups and limits of its own.
ToolLimits LimitsOfTools() {
  ToolLimits limits;
  limits.address_space_bytes = uint64_t{16} << 30;
  limits.cpu_time = std::chrono::minutes(20);
  limits.processes = 512;
  return limits;
}

// What a gang may use while it gets ready: its own, and what pip needs.
Resources ShareOfTools(const GangSpec& spec) {
  constexpr int64_t kLeast = int64_t{2} << 30;
  constexpr int64_t kUnsaid = int64_t{8} << 30;
  Resources share;
  for (const LocalTask& task : spec.tasks) {
    share.cpus += task.resources.cpus;
    share.memory_bytes += task.resources.memory_bytes;
  }
  share.cpus = std::max(share.cpus, 1.0);
  share.memory_bytes =
      share.memory_bytes == 0 ? kUnsaid : std::max(share.memory_bytes, kLeast);
  return share;
}

bool HasEnded(GangPhase phase) {
  return phase == GangPhase::kStopped || phase == GangPhase::kRefused;
}

}  // namespace

std::string Agent::CodeDirectory(const GangKey& key) const {
  return JoinPath(store_.GangDirectory(key), "code");
}

PreparationInput Agent::PreparationOf(const GangKey& key,
                                      const LocalGang& gang) {
  PreparationInput input;
  input.spec = *gang.assignment.spec;
  const auto path = config_.environment.find("PATH");
  PreflightInput& preflight = input.preflight;
  preflight.path = path == config_.environment.end() ? kPath : path->second;
  preflight.task_directory = store_.GangDirectory(key);
  preflight.user = config_.user;
  preflight.gpus = config_.node.gpus;
  preflight.state_directory = config_.dir;
  preflight.disk_floor = config_.disk_floor;
  for (const auto& [other, busy] : core_.gangs()) {
    if (other == key || !busy.assignment.spec || HasEnded(busy.status.phase)) {
      continue;
    }
    for (const LocalTask& task : busy.assignment.spec->tasks) {
      preflight.gpus_in_use.insert(task.gpus.begin(), task.gpus.end());
    }
  }
  input.packages = config_.packages;
  input.containers = engine_;
  input.images = images_.get();
  input.code_directory = CodeDirectory(key);
  input.tool_environment = {
      "PATH=" + preflight.path, "LANG=C.UTF-8",
      // A daemon that comes after this one finds what is left by it.
      fmt::format("{}={}", kTaskVariable,
                  TaskMark(mark_, "prepare-" + RandomHex(8)))};
  if (input.spec.runtime.allow_index) {
    for (const auto& [name, value] : config_.environment) {
      if (!IsForAnIndex(name)) continue;
      input.tool_environment.push_back(name + "=" + value);
    }
  }
  input.port_ranges = config_.port_ranges;
  input.hold_ports = !plain_binders_.contains(gang.assignment.job_uid);
  input.module_answers = &module_answers_;
  input.disk_space = config_.disk_space;
  input.output = config_.output_identity;
  return input;
}

void Agent::StartPreparing(const GangKey& key) {
  const LocalGang* gang = core_.Find(key);
  if (gang == nullptr) return;
  if (const auto it = preparing_.find(key); it != preparing_.end()) {
    // Of a gang of the same name that is forgotten: OnPrepareDone goes on.
    it->second->superseded = true;
    it->second->cancel.Cancel();
    return;
  }
  // Of such a gang, too.
  RemoveLater(CodeDirectory(key));
  auto preparing = std::make_shared<Preparing>();
  const uint64_t number = preparing->run = ++last_run_;
  preparing_[key] = preparing;
  auto input = std::make_shared<PreparationInput>(PreparationOf(key, *gang));
  input->tool_limits = LimitsOfTools();
  if (config_.cgroups != nullptr && !input->spec.packages.empty()) {
    const std::string id = "prepare-" + RandomHex(8);
    const auto group = config_.cgroups->Make(id, ShareOfTools(input->spec));
    if (group.ok()) {
      preparing->cgroup = id;
      input->tool_limits.cgroup = *group;
    } else {
      LOG_ERROR("{}: pip runs in no group of its own: {}", Describe(key),
                Message(group.status()));
    }
  }
  const auto run = [this, key, number, input, preparing, alive = alive_] {
    const auto say = [&](const TaskPreparation& preparation) {
      loop_->Post([this, key, number, preparation, alive] {
        if (*alive) OnPreparing(key, number, preparation);
      });
    };
    auto prepared = std::make_shared<Prepared>(
        Prepare(files_, std::move(*input), say, &preparing->cancel));
    loop_->Post([this, key, number, prepared, alive] {
      if (*alive) OnPrepareDone(key, number, std::move(*prepared));
    });
  };
  preparing->fetches = Fetches(*gang->assignment.spec);
  if (!preparing->fetches) ReportIfStillPreparing(key, number);
  if (!WaitsForOthers(*gang->assignment.spec)) {
    work_->Add(run);
    return;
  }
  RunAlone(preparing.get(), run, [this, key, number](const Status& status) {
    Prepared prepared;
    prepared.status = status;
    OnPrepareDone(key, number, std::move(prepared));
  });
}

// What waits for others must not hold up who does not.
void Agent::RunAlone(Preparing* preparing, const std::function<void()>& run,
                     const std::function<void(const Status&)>& failed) {
  try {
    preparing->thread = config_.start_thread(run);
  } catch (const std::system_error& error) {
    loop_->Post([failed, alive = alive_,
                 status = Unavailable(
                     "the worker cannot start a thread to prepare it: {}",
                     error.what())] {
      if (*alive) failed(status);
    });
  }
}

void Agent::StartCheckingOutput(const GangKey& key) {
  const LocalGang* gang = core_.Find(key);
  if (gang == nullptr) return;
  auto preparing = std::make_shared<Preparing>();
  const uint64_t number = preparing->run = ++last_run_;
  preparing_[key] = preparing;
  auto input = std::make_shared<PreparationInput>(PreparationOf(key, *gang));
  const TaskPreparation so_far =
      gangs_[key].preparation.value_or(TaskPreparation());
  const auto run = [this, key, number, input, so_far, preparing,
                    alive = alive_] {
    const auto say = [&](const TaskPreparation& preparation) {
      loop_->Post([this, key, number, preparation, alive] {
        if (*alive) OnPreparing(key, number, preparation);
      });
    };
    const OutputCheck check =
        CheckOutput(files_, *input, so_far, say, &preparing->cancel);
    loop_->Post([this, key, number, check, alive] {
      if (*alive) OnOutputCheckDone(key, number, check);
    });
  };
  ReportIfStillPreparing(key, number);
  RunAlone(preparing.get(), run, [this, key, number](const Status& status) {
    OnOutputCheckDone(key, number, {status, "", {}});
  });
}

void Agent::OnPreparing(const GangKey& key, uint64_t run,
                        const TaskPreparation& preparation) {
  const auto it = preparing_.find(key);
  if (it == preparing_.end() || it->second->run != run ||
      it->second->superseded) {
    return;
  }
  const LocalGang* gang = core_.Find(key);
  if (gang == nullptr || gang->status.phase != GangPhase::kPreparing) return;
  TaskPreparation& known = gangs_[key].preparation.emplace(preparation);
  known.detail = PrintableText(known.detail, kMaxReportedText);
  // Of what is over in a moment only the end is worth a message.
  if (it->second->fetches) Report(key);
}

void Agent::ReportIfStillPreparing(const GangKey& key, uint64_t run) {
  loop_->At(loop_->Now().mono + kSlow, [this, key, run, alive = alive_] {
    if (!*alive) return;
    const auto it = preparing_.find(key);
    if (it == preparing_.end() || it->second->run != run) return;
    const LocalGang* gang = core_.Find(key);
    if (gang == nullptr || gang->status.phase != GangPhase::kPreparing) return;
    if (!gangs_[key].preparation) {
      gangs_[key].preparation = TaskPreparation{
          {}, std::string(kPreflightPart), "waiting for another job's"};
    }
    Report(key);
  });
}

std::shared_ptr<Agent::Preparing> Agent::TakePreparing(const GangKey& key,
                                                       uint64_t run) {
  const auto it = preparing_.find(key);
  if (it == preparing_.end() || it->second->run != run) return nullptr;
  // This was its last word.
  if (it->second->thread.joinable()) it->second->thread.join();
  DropCgroup(it->second->cgroup);
  std::shared_ptr<Preparing> taken = std::move(it->second);
  preparing_.erase(it);
  return taken;
}

void Agent::OnOutputCheckDone(const GangKey& key, uint64_t run,
                              OutputCheck check) {
  const auto preparing = TakePreparing(key, run);
  if (preparing == nullptr) return;
  const LocalGang* gang = core_.Find(key);
  if (gang == nullptr || gang->status.phase != GangPhase::kPreparing) return;
  if (preparing->superseded) return StartPreparing(key);
  gangs_[key].preparation = std::move(check.preparation);
  Actions actions;
  if (!check.status.ok()) {
    LOG_WARN("{}: refused: {}", Describe(key), Message(check.status));
    Cause refusal = RefusalOf(check.status);
    refusal.message = PrintableText(refusal.message, kMaxReportedText);
    core_.OnRefused(key, std::move(refusal), &actions);
  } else {
    core_.OnOutputChecked(key, std::move(check.identity), &actions);
  }
  Execute(std::move(actions));
}

void Agent::OnPrepareDone(const GangKey& key, uint64_t run, Prepared prepared) {
  const auto preparing = TakePreparing(key, run);
  if (preparing == nullptr) return;
  const bool superseded = preparing->superseded;
  const LocalGang* gang = core_.Find(key);
  const bool wanted =
      gang != nullptr && gang->status.phase == GangPhase::kPreparing;
  if (superseded || !wanted) {
    if (prepared.status.ok() && !prepared.packages.empty()) {
      RemoveLater(CodeDirectory(key));
    }
    prepared = Prepared();  // Its ports are free for the next.
    if (wanted) StartPreparing(key);
    return;
  }
  GangInfo& info = gangs_[key];
  info.preparation = std::move(prepared.preparation);
  Actions actions;
  if (!prepared.status.ok()) {
    LOG_WARN("{}: refused: {}", Describe(key), Message(prepared.status));
    Cause refusal = RefusalOf(prepared.status);
    // Programs and names of others speak in it.
    refusal.message = PrintableText(refusal.message, kMaxReportedText);
    core_.OnRefused(key, std::move(refusal), &actions);
  } else {
    info.leases = std::move(prepared.leases);
    info.packages = std::move(prepared.packages);
    info.mounts = std::move(prepared.mounts);
    PreparedGang ready;
    ready.ports = std::move(prepared.ports);
    ready.master_port = prepared.master_port;
    ready.service_ports = std::move(prepared.service_ports);
    ready.images = std::move(prepared.images);
    ready.output_identity = std::move(prepared.output_identity);
    for (const std::string& note : prepared.notes) {
      ready.notes.push_back(PrintableText(note, kMaxReportedText));
    }
    core_.OnPrepared(key, std::move(ready), loop_->Now(), &actions);
  }
  Execute(std::move(actions));
}

void Agent::Release(const GangKey& key) {
  if (const auto it = preparing_.find(key); it != preparing_.end()) {
    it->second->cancel.Cancel();
  }
  const auto it = gangs_.find(key);
  if (it == gangs_.end()) return;
  it->second.leases.clear();
  it->second.packages.clear();
}

void Agent::NoteExec(const RankRef& ref) {
  const LocalGang* gang = core_.Find(ref.gang);
  const auto it = gangs_.find(ref.gang);
  if (gang == nullptr || !gang->assignment.spec || it == gangs_.end() ||
      !it->second.launched) {
    return;
  }
  const auto runs = [&](const RankSpec& rank) {
    return std::any_of(gang->status.ranks.begin(), gang->status.ranks.end(),
                       [&](const RankStatus& status) {
                         return status.rank == rank.rank &&
                                status.state >= RankState::kStarted;
                       });
  };
  const std::vector<LocalTask>& tasks = gang->assignment.spec->tasks;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const std::vector<RankSpec>& ranks = tasks[i].ranks;
    const bool own = std::any_of(
        ranks.begin(), ranks.end(),
        [&](const RankSpec& rank) { return rank.rank == ref.rank; });
    if (own && std::all_of(ranks.begin(), ranks.end(), runs)) {
      it->second.exec.try_emplace(i, loop_->Now().mono - *it->second.launched);
    }
  }
}

void Agent::AddPreparations(const GangKey& key, GangStatus* status) const {
  const LocalGang* gang = core_.Find(key);
  const auto it = gangs_.find(key);
  if (gang == nullptr || !gang->assignment.spec || it == gangs_.end() ||
      !it->second.preparation) {
    return;
  }
  const GangInfo& info = it->second;
  status->preparations.clear();
  for (size_t i = 0; i < gang->assignment.spec->tasks.size(); ++i) {
    TaskPreparation task = *info.preparation;
    const auto exec = info.exec.find(i);
    if (exec != info.exec.end()) {
      task.parts.push_back({std::string(kExecPart), exec->second});
    } else if (info.launched && status->phase == GangPhase::kLaunched) {
      task.parts.push_back(
          {std::string(kExecPart), loop_->Now().mono - *info.launched});
      task.current = kExecPart;
    }
    status->preparations.push_back(std::move(task));
  }
}

}  // namespace lockstep
