#include "common/wire/job_wire.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "common/model/limits.h"
#include "common/model/names.h"
#include "common/model/progress_pattern.h"
#include "common/wire/environment_fields.h"
#include "common/wire/fields.h"

namespace lockstep {
namespace {

// Beyond this, execve refuses on the smallest stack limit in use (8 MiB / 4).
constexpr size_t kMaxProgramBytes = 1 << 20;
constexpr size_t kMaxArguments = 16384;
constexpr size_t kMaxVariables = 4096;
constexpr size_t kMaxPackages = 100;
constexpr int32_t kMaxSpares = 16;

using Texts = std::map<std::string, std::string>;
using ProtoMap = google::protobuf::Map<std::string, std::string>;

void CheckProgramBytes(size_t bytes, FieldChecker* check,
                       std::string_view field) {
  if (bytes <= kMaxProgramBytes) return;
  check->Require(false, field,
                 fmt::format("has {} bytes; at most {} are allowed", bytes,
                             kMaxProgramBytes));
}

constexpr auto kArgv =
    [](FieldChecker* check, std::string_view field,
       const google::protobuf::RepeatedPtrField<std::string>& argv) {
      check->Count(field, static_cast<size_t>(argv.size()), kMaxArguments);
      Each(Bytes(kMaxArgument))(check, field, argv);
      size_t total = 0;
      for (const std::string& arg : argv) total += arg.size() + 1;
      CheckProgramBytes(total, check, field);
      check->Require(argv.empty() || !argv[0].empty(), field,
                     "names an empty program");
    };

constexpr auto kEnvironment = [](FieldChecker* check, std::string_view field,
                                 const ProtoMap& environment) {
  check->Count(field, environment.size(), kMaxVariables);
  const FieldChecker parent(check, field);
  size_t total = 0;
  // Ordered, so that of several faults always the same one is reported.
  const Texts ordered(environment.begin(), environment.end());
  for (const auto& [name, value] : ordered) {
    if (!check->ok()) return;
    if (!IsEnvironmentName(name)) {
      check->Require(false, field,
                     Quote(name) +
                         " is not a variable name: a letter or "
                         "\"_\", then letters, digits or \"_\"");
    } else if (IsReservedEnvironmentName(name)) {
      check->Require(false, field,
                     name + " is set by lockstep and cannot be given");
    }
    // "NAME=value" is one string to the kernel.
    FieldChecker(&parent, name)
        .Bytes("", value,
               kMaxArgument - std::min(kMaxArgument, name.size() + 1));
    total += name.size() + value.size() + 2;
  }
  CheckProgramBytes(total, check, field);
};

bool IsLabelPart(std::string_view text) {
  return text.size() <= 63 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
         });
}

constexpr auto kLabels = [](FieldChecker* check, std::string_view field,
                            const ProtoMap& labels) {
  check->Count(field, labels.size(), 64);
  const Texts ordered(labels.begin(), labels.end());
  for (const auto& [key, value] : ordered) {
    check->Require(!key.empty() && IsLabelPart(key), field,
                   Quote(key) +
                       " is not a key: 1 to 63 lower-case letters, "
                       "digits, \"_\" or \"-\"");
    check->Require(IsLabelPart(value), field,
                   Quote(value) +
                       " is not a value: at most 63 lower-case "
                       "letters, digits, \"_\" or \"-\"");
  }
};

constexpr auto kJobKind = [](FieldChecker* check, std::string_view field,
                             v1::JobKind kind) {
  if (kind == v1::JOB_KIND_UNSPECIFIED) {
    check->Fail(field, "is missing: say NATIVE or PROGRAM");
  }
};

constexpr auto kInheritedName = Matching(
    [](std::string_view name) {
      return IsEnvironmentName(name) && !IsReservedEnvironmentName(name);
    },
    " is not a variable that a job may inherit");

void CheckRoles(const std::vector<RoleSpec>& roles, JobKind kind,
                FieldChecker* check) {
  std::set<TaskType> types;
  int64_t ranks = 0;
  int64_t tasks = 0;
  for (const RoleSpec& role : roles) {
    check->Require(types.insert(role.type).second, "roles",
                   fmt::format("{} is there twice: give it once, with the "
                               "whole count",
                               Name(role.type)));
    check->Require(kind == JobKind::kProgram || !role.container, "roles",
                   "a native job runs in no container");
    check->Require(kind == JobKind::kProgram || role.type == TaskType::kChief ||
                       role.type == TaskType::kWorker,
                   "roles",
                   fmt::format("a native job has a chief and workers, no {}",
                               Name(role.type)));
    // A role of a stored job was not checked: no sum may overflow.
    ranks += std::clamp<int64_t>(int64_t{role.count} * role.ranks_per_task, 0,
                                 int64_t{kMaxRanks} + 1);
    tasks += role.count;
  }
  check->Require(
      types.count(TaskType::kChief) > 0 || types.count(TaskType::kWorker) > 0,
      "roles", "a job needs a chief or a worker");
  check->Require(ranks <= kMaxRanks, "roles",
                 fmt::format("ask for {} ranks; at most {} are possible", ranks,
                             kMaxRanks));
  check->Require(kind == JobKind::kNative || tasks <= kMaxTfConfigTasks,
                 "roles",
                 fmt::format("ask for {} tasks; TF_CONFIG has room for the "
                             "addresses of {}",
                             tasks, kMaxTfConfigTasks));
}

void CheckPrograms(const JobSpec& spec, FieldChecker* check) {
  if (!spec.argv.empty()) return;
  for (size_t i = 0; i < spec.roles.size(); ++i) {
    FieldChecker at(check, "roles", static_cast<int>(i));
    at.Require(!spec.roles[i].argv.empty() || spec.roles[i].container, "argv",
               "is empty, and spec.argv too: name the program to run, or a "
               "container");
  }
}

void CheckElastic(const JobSpec& spec, FieldChecker* check) {
  check->Require(!spec.rescale || spec.elastic_min_tasks > 0, "rescale",
                 "needs elastic_min_tasks: say how few tasks may run");
  if (spec.elastic_min_tasks == 0) return;
  check->Require(spec.kind == JobKind::kProgram || !spec.rescale, "rescale",
                 "is for a PROGRAM: a NATIVE job trains on in place");
  int64_t tasks = 0;
  for (const RoleSpec& role : spec.roles.get()) {
    if (role.type == TaskType::kChief || role.type == TaskType::kWorker) {
      tasks += role.count;
    }
  }
  check->Require(
      spec.elastic_min_tasks <= tasks, "elastic_min_tasks",
      fmt::format("is {}, and the job has {} tasks of chief and workers: give "
                  "a smaller number",
                  spec.elastic_min_tasks, tasks));
}

// What only one kind of jobs has.
void CheckKind(const JobSpec& spec, FieldChecker* check) {
  check->Require(spec.kind == JobKind::kProgram ||
                     (spec.packages.empty() && spec.runtime == Runtime() &&
                      !spec.restart_worker_alone),
                 "kind",
                 "is NATIVE: packages, runtime and restart_worker_alone are "
                 "for a PROGRAM");
  check->Require(spec.kind == JobKind::kNative || spec.reduction_plan.empty(),
                 "reduction_plan",
                 "is for NATIVE jobs: a PROGRAM reduces by itself");
  check->Require(spec.kind == JobKind::kProgram ||
                     (!spec.stall_after && spec.progress_pattern.empty()),
                 "kind",
                 "is NATIVE: stall_after and progress_pattern are for a "
                 "PROGRAM, and the steps of a native job show its progress");
  check->Require(spec.kind == JobKind::kProgram || !spec.warm_starts, "kind",
                 "is NATIVE: warm_starts is for a PROGRAM, and a native rank "
                 "starts within milliseconds");
  check->Require(
      spec.kind == JobKind::kProgram ||
          (spec.node_loss == NodeLoss::kUnspecified && !spec.node_lost_timeout),
      "kind",
      "is NATIVE: node_loss and node_lost_timeout are for a "
      "PROGRAM, and the steps of a native job show which of its "
      "hosts live");
}

// A host that is only slow must not lose its ranks, and they need some seconds
// to end.
constexpr Duration kLeastNodeLostTimeout = std::chrono::seconds(10);

void CheckNodeLoss(const JobSpec& spec, FieldChecker* check) {
  if (!spec.node_lost_timeout) return;
  check->Require(*spec.node_lost_timeout >= kLeastNodeLostTimeout,
                 "node_lost_timeout",
                 "must be 10 s or more; leave it out to let the coordinator "
                 "ask the host's neighbours");
  check->Require(spec.node_loss == NodeLoss::kUnspecified, "node_lost_timeout",
                 "is given, and node_loss too: give one of the two");
}

void CheckProgressPattern(const JobSpec& spec, FieldChecker* check) {
  if (spec.progress_pattern.empty()) return;
  if (const auto made = ProgressPattern::Make(spec.progress_pattern);
      !made.ok()) {
    check->Fail("progress_pattern", Message(made.status()));
  }
}

// Signs of progress are looked for each second.
constexpr Duration kLeastStallAfter = std::chrono::seconds(1);
// Less than SessionOptions::hold_timeout.
constexpr Duration kLongestHold = std::chrono::minutes(9);
// Several windows of IdleWatch.
constexpr Duration kLeastIdle = std::chrono::seconds(10);

void CheckTimes(const JobSpec& spec, FieldChecker* check) {
  const auto must_be_some = [&](std::string_view field,
                                const std::optional<Duration>& limit) {
    check->Require(!limit || *limit > Duration{}, field,
                   "must be longer than 0 s; leave it out for no limit");
  };
  check->Require(!spec.stall_after || *spec.stall_after >= kLeastStallAfter,
                 "stall_after",
                 "must be 1 s or more; leave it out for a learned time");
  const auto must_be_long = [&](std::string_view field,
                                const std::optional<Duration>& time) {
    check->Require(!time || *time == Duration{} || *time >= kLeastIdle, field,
                   "must be 10 s or more, or 0 for never; leave it out for the "
                   "site's time");
  };
  must_be_long("idle_notice", spec.idle_notice);
  must_be_long("idle_stop", spec.idle_stop);
  check->Require(!spec.hold || *spec.hold <= kLongestHold, "hold",
                 "must be 9 min or less: the ranks themselves hold for 10 min");
  must_be_some("max_running_time", spec.max_running_time);
  must_be_some("max_wait_time", spec.max_wait_time);
}

}  // namespace

LOCKSTEP_FIELDS(RoleSpec, v1::RoleSpec) {
  LOCKSTEP_FIELD(type);
  LOCKSTEP_FIELD(count, Range(1, kMaxRanks));
  LOCKSTEP_FIELD(ranks_per_task, Range(0, kMaxRanks));
  LOCKSTEP_FIELD(resources);
  LOCKSTEP_FIELD(argv, kArgv);
  LOCKSTEP_FIELD(environment, kEnvironment);
  LOCKSTEP_FIELD(container);
  LOCKSTEP_FIELD(machine);
  v.Rule([](RoleSpec* role, FieldChecker* check) {
    if (role->type == TaskType::kChief || role->type == TaskType::kEvaluator) {
      check->Range("count", role->count, 1, 1);
    }
    check->Require(role->resources.gpu_type.empty() || role->resources.gpus > 0,
                   "resources.gpu_type", "is given, but gpus is 0");
    role->ranks_per_task = std::max(1, role->ranks_per_task);
  });
}

LOCKSTEP_FIELDS(JobSpec, v1::JobSpec) {
  LOCKSTEP_FIELD(name, kJobName);
  LOCKSTEP_FIELD(kind, kJobKind);
  LOCKSTEP_FIELD(argv, kArgv);
  LOCKSTEP_FIELD(environment, kEnvironment);
  LOCKSTEP_FIELD(roles, AtMost(4));
  LOCKSTEP_FIELD(output_directory, kPath);
  LOCKSTEP_FIELD(checkpoint);
  LOCKSTEP_FIELD(restart_budget, Range(0, 1'000'000));
  LOCKSTEP_FIELD(max_running_time);
  LOCKSTEP_FIELD(max_wait_time);
  LOCKSTEP_FIELD(priority, Range(0, 1000));
  LOCKSTEP_FIELD(end_with);
  LOCKSTEP_FIELD(end_grace, OmitDefault());
  LOCKSTEP_FIELD(hang);
  LOCKSTEP_FIELD(stall_after);
  LOCKSTEP_FIELD(progress_pattern, Text(kMaxProgressPattern));
  LOCKSTEP_FIELD(node_loss);
  LOCKSTEP_FIELD(node_lost_timeout);
  LOCKSTEP_FIELD(idle_notice);
  LOCKSTEP_FIELD(idle_stop);
  LOCKSTEP_FIELD(warm_starts);
  LOCKSTEP_FIELD(spares, Range(0, kMaxSpares));
  LOCKSTEP_FIELD(hold);
  LOCKSTEP_FIELD(elastic_min_tasks, Range(0, kMaxRanks));
  LOCKSTEP_FIELD(rescale);
  LOCKSTEP_FIELD(labels, kLabels);
  LOCKSTEP_FIELD(working_directory, kPath);
  LOCKSTEP_FIELD(comment, Text(4096));
  LOCKSTEP_FIELD(pool,
                 EmptyOr(Matching(IsPoolName,
                                  " is not a pool name: at most 63 "
                                  "lower-case letters, digits or \"-\"")));
  LOCKSTEP_FIELD(reduction_plan, Text(kMaxReductionPlan));
  LOCKSTEP_FIELD(packages, AtMost(kMaxPackages));
  LOCKSTEP_FIELD(runtime, OmitDefault());
  LOCKSTEP_FIELD(inherited_environment, AtMost(kMaxVariables),
                 Each(kInheritedName));
  LOCKSTEP_FIELD(restart_worker_alone);
  LOCKSTEP_FIELD(job_dir, Text(4095));
  EnvironmentOptionsOf(v);
  v.Rule([](JobSpec* spec, FieldChecker* check) {
    CheckPrograms(*spec, check);
    CheckRoles(spec->roles, spec->kind, check);
    CheckTimes(*spec, check);
    CheckKind(*spec, check);
    CheckElastic(*spec, check);
    CheckNodeLoss(*spec, check);
    CheckProgressPattern(*spec, check);
    // One string of TF_CONFIG, and that one of the environment.
    check->Bytes("tf_config_job", spec->environment_options.tf_config_job,
                 kMaxArgument / 2);
    std::vector<RoleSpec>& roles = spec->roles.Edit();
    std::stable_sort(roles.begin(), roles.end(),
                     [](const RoleSpec& a, const RoleSpec& b) {
                       return a.type < b.type;  // In the order of ranks.
                     });
  });
}

Status CheckLabels(const ProtoMap& labels) {
  FieldChecker check("");
  kLabels(&check, "labels", labels);
  return check.status();
}

}  // namespace lockstep
