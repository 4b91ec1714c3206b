#include "worker/agent/prepare/preparation.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/model/output_identity.h"
#include "worker/agent/prepare/python_command.h"
#include "worker/package/python.h"

namespace lockstep::worker::agent {
namespace {

constexpr Duration kSayEvery = std::chrono::seconds(1);
constexpr char kShm[] = "/dev/shm";
constexpr std::string_view kPartsInOrder[] = {kFetchPart, kPortsPart,
                                              kPreflightPart, kOutputPart};

std::optional<package::PackageUser> OwnerOf(
    const std::optional<TaskUser>& user) {
  if (!user) return std::nullopt;
  return package::PackageUser{user->uid, user->gid, user->groups};
}

// Its settled content, or any.
ImageContent WantedOf(const GangSpec& spec, const std::string& image) {
  for (const ImageContent& settled : spec.images) {
    if (settled.image == image) return settled;
  }
  return {image, "", "", ""};
}

// Measures the parts and reports progress.
class Timer {
 public:
  explicit Timer(const std::function<void(const TaskPreparation&)>& say,
                 TaskPreparation so_far = {})
      : say_(say), state_(std::move(so_far)) {}

  void Begin(std::string_view part) {
    End();
    state_.current = part;
    Current();
    since_ = MonotonicNow();
    Tell();
  }
  void End() {
    if (state_.current.empty()) return;
    Current().duration += MonotonicNow() - since_;
    state_.current.clear();
    state_.detail.clear();
  }
  void Detail(const std::string& text) {
    state_.detail = text;
    if (text != said_ && MonotonicNow() - told_ >= kSayEvery) Tell();
  }
  const TaskPreparation& state() const { return state_; }

 private:
  // The part that goes on, in the order of the list, not of time.
  TimedPart& Current() {
    const auto order = [](std::string_view part) {
      return std::find(std::begin(kPartsInOrder), std::end(kPartsInOrder),
                       part) -
             std::begin(kPartsInOrder);
    };
    auto it = state_.parts.begin();
    while (it != state_.parts.end() && order(it->part) < order(state_.current))
      ++it;
    if (it == state_.parts.end() || it->part != state_.current) {
      it = state_.parts.insert(it, TimedPart{state_.current, {}});
    }
    return *it;
  }
  void Tell() {
    told_ = MonotonicNow();
    said_ = state_.detail;
    TaskPreparation said = state_;
    for (TimedPart& part : said.parts) {
      if (part.part == said.current) part.duration += told_ - since_;
    }
    say_(said);
  }

  const std::function<void(const TaskPreparation&)>& say_;
  TaskPreparation state_;
  MonoTime since_{};
  MonoTime told_{};
  std::string said_;  // The detail reported last.
};

// Empty where the host of rank 0 has not named one yet.
StatusOr<std::string> LookAtOutput(FileSystem* files,
                                   const PreparationInput& input, Timer* timer,
                                   package::Cancellation* cancel) {
  const GangSpec& spec = input.spec;
  if (spec.output_directory.empty()) return std::string();
  timer->Begin(kOutputPart);
  OutputIdentityInput look;
  look.directory = spec.output_directory;
  look.expected = spec.output_identity;
  look.has_first_rank = HasFirstRank(spec);
  look.user = input.preflight.user;
  look.options = input.output;
  if (look.expected.empty() && !look.has_first_rank) return std::string();
  return OutputIdentity(
      files, look,
      [&] {
        timer->Detail(fmt::format("waiting for {} in {}", kOutputIdentityFile,
                                  look.directory));
      },
      cancel);
}

class Preparer {
 public:
  Preparer(FileSystem* files, PreparationInput* input, Timer* timer,
           package::Cancellation* cancel)
      : files_(files), input_(*input), timer_(*timer), cancel_(cancel) {}

  Status Run(Prepared* out) {
    // Check a known directory first: the preflight creates a missing one.
    const bool known = !input_.spec.output_identity.empty();
    if (known) {
      LOCKSTEP_ASSIGN_OR_RETURN(out->output_identity,
                                LookAtOutput(files_, input_, &timer_, cancel_));
    }
    timer_.Begin(kPreflightPart);
    LOCKSTEP_RETURN_IF_ERROR(LookAtHost());
    LOCKSTEP_RETURN_IF_ERROR(ReachMounts(out));
    if (!known) {
      LOCKSTEP_ASSIGN_OR_RETURN(out->output_identity,
                                LookAtOutput(files_, input_, &timer_, cancel_));
    }
    if (Fetches(input_.spec)) {
      timer_.Begin(kFetchPart);
      LOCKSTEP_RETURN_IF_ERROR(FetchPackages(out));
      LOCKSTEP_RETURN_IF_ERROR(FetchImages(out));
    }
    timer_.Begin(kPortsPart);
    LOCKSTEP_RETURN_IF_ERROR(Lease(out));
    timer_.Begin(kPreflightPart);
    LOCKSTEP_RETURN_IF_ERROR(LookForModules());
    return cancel_->Check();
  }

 private:
  Status LookAtHost() {
    if (auto space = input_.disk_space(input_.preflight.state_directory);
        space.ok()) {
      // Later downloads need space, too.
      for (const Package& package : input_.spec.packages) {
        const auto bytes = static_cast<uint64_t>(package.bytes);
        space->free -= std::min(space->free, bytes);
      }
      input_.preflight.disk = *space;
    }
    if (auto space = input_.disk_space(kShm); space.ok()) {
      input_.preflight.shm = *space;
    }
    input_.preflight.spec = &input_.spec;
    return Preflight(files_, input_.preflight);
  }

  // Here, for a file system may hang, which the event loop must not.
  Status ReachMounts(Prepared* out) {
    const bool any = std::any_of(
        input_.spec.tasks.begin(), input_.spec.tasks.end(),
        [](const LocalTask& task) { return task.container.has_value(); });
    if (!any || input_.containers == nullptr) return OkStatus();
    const auto user = UserIn(*input_.containers, input_.preflight.user);
    if (!user) return OkStatus();
    for (const std::string& path :
         {input_.spec.output_directory, input_.spec.working_directory}) {
      if (path.empty()) continue;
      auto reached = ReachAs(*user, path);
      if (!reached.ok()) {
        return FailedPrecondition("{}", Message(reached.status()));
      }
      out->mounts[path] = *std::move(reached);
    }
    return OkStatus();
  }

  // Where the gang's interpreter is; "": it has none.
  StatusOr<std::string> FindInterpreter() {
    const std::string name = InterpreterOf(input_.spec);
    if (name.empty()) return name;
    auto found = FindProgram(name, input_.preflight.path,
                             input_.preflight.task_directory);
    if (found.ok()) return found;
    const std::string& runtime = input_.spec.runtime.name;
    if (runtime.empty()) {
      return FailedPrecondition("{}", Message(found.status()));
    }
    return FailedPrecondition("runtime {}: {}", runtime,
                              Message(found.status()));
  }

  Status FetchPackages(Prepared* out) {
    if (input_.spec.packages.empty()) return OkStatus();
    if (input_.packages == nullptr) {
      return FailedPrecondition("this node fetches no packages");
    }
    package::CodeFolderInput code;
    code.directory = input_.code_directory;
    code.packages = input_.spec.packages;
    code.runtime = input_.spec.runtime;
    code.user = OwnerOf(input_.preflight.user);
    code.env = input_.tool_environment;
    code.limits = input_.tool_limits;
    LOCKSTEP_ASSIGN_OR_RETURN(code.python, FindInterpreter());
    if (const auto& disk = input_.preflight.disk) {
      const uint64_t floor = BytesOf(input_.preflight.disk_floor, disk->size);
      code.max_bytes =
          std::min(code.max_bytes, disk->free - std::min(disk->free, floor));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        package::CodeFolder made,
        MakeCodeFolder(
            code, input_.packages,
            [this](const std::string& what) { timer_.Detail(what); }, cancel_));
    out->packages = std::move(made.leases);
    out->notes = std::move(made.notes);
    return OkStatus();
  }

  Status FetchImages(Prepared* out) {
    std::set<std::string> images;
    for (const LocalTask& task : input_.spec.tasks) {
      if (task.container) images.insert(task.container->image);
    }
    if (images.empty()) return OkStatus();
    if (input_.containers == nullptr) {
      return FailedPrecondition(
          "this node cannot run containers: it has neither podman nor docker");
    }
    const MonoTime deadline = MonotonicNow() + input_.image_time;
    for (const std::string& image : images) {
      timer_.Detail("image " + image);
      LOCKSTEP_ASSIGN_OR_RETURN(
          container::ImageHere here,
          input_.images->Get(input_.containers, WantedOf(input_.spec, image),
                             deadline, [&](const std::string& line) {
                               timer_.Detail(line.empty()
                                                 ? "image " + image
                                                 : fmt::format("image {}: {}",
                                                               image, line));
                               return !cancel_->cancelled();
                             }));
      out->images.push_back(std::move(here.content));
    }
    return OkStatus();
  }

  Status Lease(Prepared* out) {
    const GangSpec& spec = input_.spec;
    const size_t tasks = spec.tasks.size();
    const bool first = HasFirstRank(spec);
    const size_t count = tasks + (first ? 1 + spec.services.size() : 0);
    LOCKSTEP_ASSIGN_OR_RETURN(
        out->leases, LeasePorts(static_cast<int>(count), input_.port_ranges));
    if (!input_.hold_ports) {
      for (PortLease& lease : out->leases) lease.LetBind();
    }
    for (size_t i = 0; i < tasks; ++i) {
      out->ports.push_back(out->leases[i].port());
    }
    if (!first) return OkStatus();
    out->master_port = out->leases[tasks].port();
    for (size_t i = 0; i < spec.services.size(); ++i) {
      out->service_ports[spec.services[i]] = out->leases[tasks + 1 + i].port();
    }
    return OkStatus();
  }

  // Of code that came as a package: a command that was on the node before is
  // its owner's.
  Status LookForModules() {
    if (input_.spec.packages.empty()) return OkStatus();
    std::set<std::vector<std::string>> asked;
    for (const LocalTask& task : input_.spec.tasks) {
      const std::vector<std::string> argv = CommandOf(input_.spec, task);
      const std::string module = ModuleOf(argv);
      if (module.empty() || task.container) continue;
      std::vector<std::string> path;
      // It is the first of sys.path.
      if (!input_.spec.working_directory.empty()) {
        path.push_back(input_.spec.working_directory);
      }
      for (const std::string& part :
           package::CodePathOf(input_.code_directory, input_.spec.packages)) {
        path.push_back(part);
      }
      if (const auto own = task.environment.find("PYTHONPATH");
          own != task.environment.end()) {
        for (const std::string& part : SplitPath(own->second)) {
          path.push_back(part);
        }
      }
      std::vector<std::string> question = {argv[0], module};
      question.insert(question.end(), path.begin(), path.end());
      if (!asked.insert(std::move(question)).second) continue;
      timer_.Detail("searching for module " + module);
      LOCKSTEP_RETURN_IF_ERROR(LookForModule(task, argv[0], module, path));
    }
    return OkStatus();
  }

  Status LookForModule(const LocalTask& task, const std::string& program,
                       const std::string& module,
                       const std::vector<std::string>& path) {
    const auto own = task.environment.find("PATH");
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::string found,
        FindProgram(
            program,
            own == task.environment.end() ? input_.preflight.path : own->second,
            input_.preflight.task_directory));
    const auto key = AnswerKey(task, found, module);
    if (key && input_.module_answers->WasFound(*key)) return OkStatus();
    package::Python python;
    python.program = found;
    python.user = OwnerOf(input_.preflight.user);
    python.env = input_.tool_environment;
    python.limits = input_.tool_limits;
    // Nothing is written there.
    python.scratch = input_.code_directory;
    const Status status = CheckModule(python, module, path, cancel_);
    if (status.ok() && key) input_.module_answers->Found(*key);
    return status;
  }

  // Nothing: what the answer hangs on may change any time.
  std::optional<std::string> AnswerKey(const LocalTask& task,
                                       const std::string& interpreter,
                                       const std::string& module) const {
    if (input_.module_answers == nullptr ||
        !input_.spec.working_directory.empty() ||
        task.environment.contains("PYTHONPATH")) {
      return std::nullopt;
    }
    ModuleQuestion question;
    question.interpreter = interpreter;
    if (const auto& user = input_.preflight.user) question.user = user->uid;
    question.module = module;
    question.packages = input_.spec.packages;
    question.allow_index = input_.spec.runtime.allow_index;
    return KeyOf(question);
  }

  FileSystem* const files_;
  PreparationInput& input_;
  Timer& timer_;
  package::Cancellation* const cancel_;
};

}  // namespace

std::optional<container::ContainerUser> UserIn(
    const container::ContainerEngine& engine,
    const std::optional<TaskUser>& user) {
  if (user) {
    return container::ContainerUser{
        user->uid, user->gid, {user->groups.begin(), user->groups.end()}};
  }
  // As root it runs containers only where the site allows them all rights.
  if (engine.confines_root() || geteuid() == 0) return std::nullopt;
  container::ContainerUser own{geteuid(), getegid(), {}};
  own.groups.resize(NGROUPS_MAX);
  const int count =
      getgroups(static_cast<int>(own.groups.size()), own.groups.data());
  own.groups.resize(static_cast<size_t>(std::max(count, 0)));
  return own;
}

bool HasFirstRank(const GangSpec& spec) {
  return std::any_of(
      spec.tasks.begin(), spec.tasks.end(), [](const LocalTask& task) {
        return std::any_of(task.ranks.begin(), task.ranks.end(),
                           [](const RankSpec& rank) { return rank.rank == 0; });
      });
}

bool Fetches(const GangSpec& spec) {
  return !spec.packages.empty() ||
         std::any_of(
             spec.tasks.begin(), spec.tasks.end(),
             [](const LocalTask& task) { return task.container.has_value(); });
}

bool WaitsForOthers(const GangSpec& spec) {
  return Fetches(spec) ||
         (!spec.output_directory.empty() && !spec.output_identity.empty() &&
          !HasFirstRank(spec));
}

OutputCheck CheckOutput(FileSystem* files, const PreparationInput& input,
                        const TaskPreparation& so_far,
                        const std::function<void(const TaskPreparation&)>& say,
                        package::Cancellation* cancel) {
  Timer timer(say, so_far);
  OutputCheck check;
  auto seen = LookAtOutput(files, input, &timer, cancel);
  timer.End();
  check.status = seen.status();
  if (seen.ok()) check.identity = *std::move(seen);
  check.preparation = timer.state();
  return check;
}

Prepared Prepare(FileSystem* files, PreparationInput input,
                 const std::function<void(const TaskPreparation&)>& say,
                 package::Cancellation* cancel) {
  Timer timer(say);
  Prepared prepared;
  prepared.status = Preparer(files, &input, &timer, cancel).Run(&prepared);
  timer.End();
  if (!prepared.status.ok()) {
    const Status status = prepared.status;
    prepared = Prepared();
    prepared.status = status;
    if (!input.spec.packages.empty()) {
      (void)files->RemoveAll(input.code_directory);
      // The gang's, where nothing else is in it.
      (void)rmdir(input.preflight.task_directory.c_str());
    }
  }
  prepared.preparation = timer.state();
  return prepared;
}

Cause RefusalOf(const Status& status) {
  if (ReasonOf(status) == kOutputNotShared) {
    return {Reason::kOutputNotShared, Message(status)};
  }
  if (ReasonOf(status) == kOutputMissing) {
    return {Reason::kOutputMissing, Message(status)};
  }
  switch (status.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kResourceExhausted:
    case StatusCode::kInternal:
    case StatusCode::kCancelled:
      // What passes costs the job a wait, not its life.
      return {Reason::kNoCapacity, Message(status)};
    case StatusCode::kDeadlineExceeded:
      return {Reason::kPrepareTimeout, Message(status)};
    default:
      return {Reason::kPrepareRefused, Message(status)};
  }
}

}  // namespace lockstep::worker::agent
