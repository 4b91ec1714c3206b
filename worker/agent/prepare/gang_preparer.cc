#include "worker/agent/prepare/gang_preparer.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "common/base/logging.h"
#include "common/base/random.h"
#include "worker/agent/core/printable_text.h"
#include "worker/agent/host/stray_processes.h"

namespace lockstep::worker::agent {
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
package::ToolLimits LimitsOfTools() {
  package::ToolLimits limits;
  limits.address_space_bytes = uint64_t{16} << 30;
  limits.cpu_time = std::chrono::minutes(20);
  limits.processes = 512;
  return limits;
}

// Resources for the preparation of a gang: its own plus those of pip.
Resources ShareOfTools(const GangSpec& spec) {
  constexpr int64_t kLeast = int64_t{2} << 30;
  constexpr int64_t kDefaultMemory = int64_t{8} << 30;
  Resources share;
  for (const LocalTask& task : spec.tasks) {
    share.cpus += task.resources.cpus;
    share.memory_bytes += task.resources.memory_bytes;
  }
  share.cpus = std::max(share.cpus, 1.0);
  share.memory_bytes = share.memory_bytes == 0
                           ? kDefaultMemory
                           : std::max(share.memory_bytes, kLeast);
  return share;
}

}  // namespace

GangPreparer::GangPreparer(const Parts& parts,
                           std::function<void(const GangKey&)> report)
    : parts_(parts), report_(std::move(report)) {}

GangPreparer::~GangPreparer() {
  CancelAll();
  thread_.reset();  // Its jobs use the rest.
}

void GangPreparer::CancelAll() {
  for (const auto& [key, run] : running_) run->cancel.Cancel();
  for (const auto& [key, run] : running_) {
    if (run->thread.joinable()) run->thread.join();
  }
}

std::shared_ptr<GangPreparer::Run> GangPreparer::Begin(const GangKey& key) {
  auto run = std::make_shared<Run>();
  run->number = ++last_number_;
  running_[key] = run;
  return run;
}

PreparationInput GangPreparer::InputOf(const GangKey& key,
                                       const LocalGang& gang) {
  const DaemonSetup& setup = *parts_.setup;
  PreparationInput input;
  input.spec = *gang.assignment.spec;
  const auto path = setup.environment.find("PATH");
  PreflightInput& preflight = input.preflight;
  preflight.path = path == setup.environment.end() ? kPath : path->second;
  preflight.task_directory = parts_.store->GangDirectory(key);
  preflight.user = setup.user;
  preflight.gpus = setup.node.gpus;
  preflight.state_directory = setup.dir;
  preflight.disk_floor = parts_.options->disk_floor;
  for (const auto& [other, busy] : parts_.core->core().gangs()) {
    if (other == key || !busy.assignment.spec || IsOver(busy.status.phase)) {
      continue;
    }
    for (const LocalTask& task : busy.assignment.spec->tasks) {
      preflight.gpus_in_use.insert(task.gpus.begin(), task.gpus.end());
    }
  }
  input.packages = parts_.options->packages;
  input.containers = parts_.containers->engine();
  input.images = parts_.containers->images();
  input.code_directory = parts_.store->CodeDirectory(key);
  input.tool_environment = {
      "PATH=" + preflight.path, "LANG=C.UTF-8",
      // A daemon that comes after this one finds what is left by it.
      fmt::format("{}={}", kTaskVariable,
                  TaskMark(setup.mark, "prepare-" + RandomHex(8)))};
  if (input.spec.runtime.allow_index) {
    for (const auto& [name, value] : setup.environment) {
      if (!IsForAnIndex(name)) continue;
      input.tool_environment.push_back(name + "=" + value);
    }
  }
  input.port_ranges = parts_.options->port_ranges;
  input.hold_ports = !parts_.ports->IsPlainBinder(gang.assignment.job_uid);
  input.module_answers = &module_answers_;
  input.disk_space = parts_.options->disk_space;
  input.output = parts_.options->output_identity;
  return input;
}

void GangPreparer::LimitTools(const GangKey& key, Run* run,
                              PreparationInput* input) {
  input->tool_limits = LimitsOfTools();
  if (!parts_.cgroups->enabled() || input->spec.packages.empty()) return;
  const std::string id = "prepare-" + RandomHex(8);
  const auto group = parts_.cgroups->Make(id, ShareOfTools(input->spec));
  if (group.ok()) {
    run->cgroup = id;
    input->tool_limits.cgroup = *group;
  } else {
    LOG_ERROR("{}: pip runs without its own cgroup: {}", Describe(key),
              Message(group.status()));
  }
}

std::function<void(const TaskPreparation&)> GangPreparer::Sayer(
    const GangKey& key, uint64_t number) {
  return [this, key, number](const TaskPreparation& preparation) {
    parts_.loop->Post(lifetime_.Guard([this, key, number, preparation] {
      OnProgress(key, number, preparation);
    }));
  };
}

void GangPreparer::Prepare(const GangKey& key) {
  const LocalGang* gang = parts_.core->Find(key);
  if (gang == nullptr) return;
  if (const auto it = running_.find(key); it != running_.end()) {
    // It is for a gang of the same name that is forgotten: OnPrepared goes on.
    it->second->superseded = true;
    it->second->cancel.Cancel();
    return;
  }
  // Such a gang may have left packages, too.
  parts_.removal->RemoveLater(parts_.store->CodeDirectory(key));
  const std::shared_ptr<Run> run = Begin(key);
  const uint64_t number = run->number;
  auto input = std::make_shared<PreparationInput>(InputOf(key, *gang));
  LimitTools(key, run.get(), input.get());
  const auto work = [this, key, number, input, run] {
    auto prepared = std::make_shared<Prepared>(agent::Prepare(
        parts_.files, std::move(*input), Sayer(key, number), &run->cancel));
    parts_.loop->Post(lifetime_.Guard([this, key, number, prepared] {
      OnPrepared(key, number, std::move(*prepared));
    }));
  };
  run->fetches = Fetches(*gang->assignment.spec);
  if (!run->fetches) ReportIfStillRunning(key, number);
  if (!WaitsForOthers(*gang->assignment.spec)) {
    thread_->Add(work);
    return;
  }
  RunAlone(run.get(), work, [this, key, number](const Status& status) {
    Prepared prepared;
    prepared.status = status;
    OnPrepared(key, number, std::move(prepared));
  });
}

// What waits for others must not hold up those that do not.
void GangPreparer::RunAlone(Run* run, const std::function<void()>& work,
                            const std::function<void(const Status&)>& failed) {
  try {
    run->thread = parts_.options->start_thread(work);
  } catch (const std::system_error& error) {
    parts_.loop->Post(lifetime_.Guard(
        [failed, status = Unavailable(
                     "the worker cannot start a preparation thread: {}",
                     error.what())] { failed(status); }));
  }
}

void GangPreparer::CheckOutput(const GangKey& key) {
  const LocalGang* gang = parts_.core->Find(key);
  if (gang == nullptr) return;
  const std::shared_ptr<Run> run = Begin(key);
  const uint64_t number = run->number;
  auto input = std::make_shared<PreparationInput>(InputOf(key, *gang));
  const TaskPreparation so_far = times_.Get(key).value_or(TaskPreparation());
  const auto work = [this, key, number, input, so_far, run] {
    const OutputCheck check = agent::CheckOutput(
        parts_.files, *input, so_far, Sayer(key, number), &run->cancel);
    parts_.loop->Post(lifetime_.Guard(
        [this, key, number, check] { OnOutputChecked(key, number, check); }));
  };
  ReportIfStillRunning(key, number);
  RunAlone(run.get(), work, [this, key, number](const Status& status) {
    OnOutputChecked(key, number, {status, "", {}});
  });
}

bool GangPreparer::IsWanted(const GangKey& key) const {
  const LocalGang* gang = parts_.core->Find(key);
  return gang != nullptr && gang->status.phase == GangPhase::kPreparing;
}

void GangPreparer::OnProgress(const GangKey& key, uint64_t number,
                              const TaskPreparation& preparation) {
  const auto it = running_.find(key);
  if (it == running_.end() || it->second->number != number ||
      it->second->superseded || !IsWanted(key)) {
    return;
  }
  TaskPreparation known = preparation;
  known.detail = PrintableText(known.detail, kMaxReportedText);
  times_.Set(key, std::move(known));
  // A preparation that is over in a moment is reported at its end only.
  if (it->second->fetches) report_(key);
}

void GangPreparer::ReportIfStillRunning(const GangKey& key, uint64_t number) {
  parts_.loop->At(parts_.loop->Now().mono + kSlow, lifetime_.Guard([this, key,
                                                                    number] {
    const auto it = running_.find(key);
    if (it == running_.end() || it->second->number != number ||
        !IsWanted(key)) {
      return;
    }
    if (!times_.Get(key)) {
      times_.Set(key, TaskPreparation{{},
                                      std::string(kPreflightPart),
                                      "waiting for another job's preparation"});
    }
    report_(key);
  }));
}

std::shared_ptr<GangPreparer::Run> GangPreparer::Take(const GangKey& key,
                                                      uint64_t number) {
  const auto it = running_.find(key);
  if (it == running_.end() || it->second->number != number) return nullptr;
  // This was its last word.
  if (it->second->thread.joinable()) it->second->thread.join();
  parts_.cgroups->Drop(it->second->cgroup);
  std::shared_ptr<Run> taken = std::move(it->second);
  running_.erase(it);
  return taken;
}

void GangPreparer::Refuse(const GangKey& key, const Status& status) {
  LOG_WARN("{}: refused: {}", Describe(key), Message(status));
  Cause refusal = RefusalOf(status);
  // It may quote programs, and names that others chose.
  refusal.message = PrintableText(refusal.message, kMaxReportedText);
  parts_.core->Tell([&](AgentCore* core, Actions* out) {
    core->OnRefused(key, std::move(refusal), out);
  });
}

void GangPreparer::OnOutputChecked(const GangKey& key, uint64_t number,
                                   OutputCheck check) {
  const auto run = Take(key, number);
  if (run == nullptr || !IsWanted(key)) return;
  if (run->superseded) return Prepare(key);
  times_.Set(key, std::move(check.preparation));
  if (!check.status.ok()) return Refuse(key, check.status);
  parts_.core->Tell([&](AgentCore* core, Actions* out) {
    core->OnOutputChecked(key, std::move(check.identity), out);
  });
}

void GangPreparer::OnPrepared(const GangKey& key, uint64_t number,
                              Prepared prepared) {
  const auto run = Take(key, number);
  if (run == nullptr) return;
  const bool wanted = IsWanted(key);
  if (run->superseded || !wanted) {
    if (prepared.status.ok() && !prepared.packages.empty()) {
      parts_.removal->RemoveLater(parts_.store->CodeDirectory(key));
    }
    prepared = Prepared();  // Its ports are free for the next.
    if (wanted) Prepare(key);
    return;
  }
  times_.Set(key, std::move(prepared.preparation));
  if (!prepared.status.ok()) return Refuse(key, prepared.status);
  parts_.ports->SetLeases(key, std::move(prepared.leases));
  held_[key] = {std::move(prepared.packages), std::move(prepared.mounts)};
  PreparedGang ready;
  ready.ports = std::move(prepared.ports);
  ready.master_port = prepared.master_port;
  ready.service_ports = std::move(prepared.service_ports);
  ready.images = std::move(prepared.images);
  ready.output_identity = std::move(prepared.output_identity);
  for (const std::string& note : prepared.notes) {
    ready.notes.push_back(PrintableText(note, kMaxReportedText));
  }
  parts_.core->Tell([&](AgentCore* core, Actions* out) {
    core->OnPrepared(key, std::move(ready), parts_.loop->Now(), out);
  });
}

void GangPreparer::Release(const GangKey& key) {
  if (const auto it = running_.find(key); it != running_.end()) {
    it->second->cancel.Cancel();
  }
  parts_.ports->Release(key);
  if (const auto it = held_.find(key); it != held_.end()) {
    it->second.packages.clear();
  }
}

void GangPreparer::Forget(const GangKey& key) {
  parts_.ports->Release(key);
  held_.erase(key);
  times_.Forget(key);
}

std::optional<container::ReachedDirectory> GangPreparer::MountOf(
    const GangKey& key, const std::string& path) const {
  const auto held = held_.find(key);
  if (held == held_.end()) return std::nullopt;
  const auto it = held->second.mounts.find(path);
  if (it == held->second.mounts.end()) return std::nullopt;
  return it->second;
}

}  // namespace lockstep::worker::agent
