// What the coordinator says to a worker daemon.
#include <set>

#include "common/model/limits.h"
#include "common/model/names.h"
#include "common/wire/field_checker.h"
#include "common/wire/job_wire.h"
#include "common/wire/worker_wire.h"

namespace lockstep {

v1::Goal ToProto(Goal value) { return static_cast<v1::Goal>(value); }

StatusOr<Goal> FromProto(v1::Goal value, std::string_view path) {
  if (value == 0 || !v1::Goal_IsValid(value)) {
    return InvalidArgument("{}: {} is not a value that is known here", path,
                           static_cast<int>(value));
  }
  return static_cast<Goal>(value);
}

v1::Welcome ToProto(const WelcomeInfo& value) {
  v1::Welcome out;
  out.set_epoch(value.epoch);
  *out.mutable_heartbeat_interval() = ToProto(value.heartbeat_interval);
  *out.mutable_lease() = ToProto(value.lease);
  out.set_cluster(value.cluster);
  out.set_history(value.history);
  for (const std::string& history : value.replaced_histories) {
    out.add_replaced_histories(history);
  }
  out.set_epoch_id(value.epoch_id);
  return out;
}

StatusOr<WelcomeInfo> FromProto(const v1::Welcome& value,
                                std::string_view path) {
  FieldChecker check(path);
  WelcomeInfo out;
  check.Require(value.epoch() > 0, "epoch", "must be 1 or more");
  check.Take(
      FromProto(value.heartbeat_interval(), check.At("heartbeat_interval")),
      &out.heartbeat_interval);
  check.Take(FromProto(value.lease(), check.At("lease")), &out.lease);
  check.Text("cluster", value.cluster(), 256);
  check.Require(value.history().empty() || IsHistory(value.history()),
                "history", Quote(value.history()) + " is not 32 hex digits");
  check.Count("replaced_histories", value.replaced_histories_size(), 10'000);
  for (const std::string& history : value.replaced_histories()) {
    check.Require(IsHistory(history), "replaced_histories",
                  Quote(history) + " is not 32 hex digits");
  }
  check.Require(value.epoch_id().empty() || IsHistory(value.epoch_id()),
                "epoch_id", Quote(value.epoch_id()) + " is not 32 hex digits");
  if (!check.ok()) return check.status();
  out.epoch_id = value.epoch_id();
  out.history = value.history();
  out.replaced_histories = {value.replaced_histories().begin(),
                            value.replaced_histories().end()};
  out.epoch = value.epoch();
  out.cluster = value.cluster();
  return out;
}

v1::LocalTask ToProto(const LocalTask& value) {
  v1::LocalTask out;
  out.set_type(ToProto(value.type));
  out.set_index(value.index);
  *out.mutable_resources() = ToProto(value.resources);
  for (const int32_t gpu : value.gpus) out.add_gpus(gpu);
  for (const std::string& arg : value.argv) out.add_argv(arg);
  out.mutable_environment()->insert(value.environment.begin(),
                                    value.environment.end());
  for (const RankSpec& rank : value.ranks) *out.add_ranks() = ToProto(rank);
  if (value.container) *out.mutable_container() = ToProto(*value.container);
  out.set_restarts(value.restarts);
  return out;
}

StatusOr<LocalTask> FromProto(const v1::LocalTask& value,
                              std::string_view path) {
  FieldChecker check(path);
  LocalTask out;
  check.Take(FromProto(value.type(), check.At("type")), &out.type);
  check.Range("index", value.index(), 0, kMaxRanks - 1);
  check.Take(FromProto(value.resources(), check.At("resources")),
             &out.resources);
  check.Count("gpus", value.gpus_size(), 4096);
  for (const int32_t gpu : value.gpus()) check.Range("gpus", gpu, 0, 4095);
  check.Require(
      value.argv_size() > 0 ? !value.argv(0).empty() : value.has_container(),
      "argv", "names no program");
  if (value.has_container()) {
    check.Take(FromProto(value.container(), check.At("container")),
               &out.container.emplace());
  }
  check.Range("restarts", value.restarts(), 0, INT32_MAX);
  for (const std::string& arg : value.argv()) {
    check.Bytes("argv", arg, kMaxArgument);
  }
  for (const auto& [name, text] : value.environment()) {
    check.Require(!name.empty() && name.find('=') == std::string::npos,
                  "environment", Quote(name) + " is no name of a variable");
    check.Bytes("environment", name, 256);
    check.Bytes("environment", text, kMaxArgument);
  }
  check.Require(value.ranks_size() > 0, "ranks", "is empty");
  check.Count("ranks", value.ranks_size(), kMaxRanks);
  for (int i = 0; check.ok() && i < value.ranks_size(); ++i) {
    check.Take(FromProto(value.ranks(i), check.At("ranks", i)),
               &out.ranks.emplace_back());
  }
  if (!check.ok()) return check.status();
  out.restarts = value.restarts();
  out.index = value.index();
  out.gpus = {value.gpus().begin(), value.gpus().end()};
  out.argv = {value.argv().begin(), value.argv().end()};
  out.environment = {value.environment().begin(), value.environment().end()};
  return out;
}

v1::GangSpec ToProto(const GangSpec& value) {
  v1::GangSpec out;
  out.set_kind(ToProto(value.kind));
  for (const LocalTask& task : value.tasks) *out.add_tasks() = ToProto(task);
  out.set_output_directory(value.output_directory);
  *out.mutable_checkpoint() = ToProto(value.checkpoint);
  for (const LineageEntry& entry : value.lineage) {
    *out.add_lineage() = ToProto(entry);
  }
  out.set_attempt(value.attempt);
  out.set_restart_count(value.restart_count);
  out.set_restart_budget(value.restart_budget);
  out.set_working_directory(value.working_directory);
  out.set_job_owner(value.job_owner);
  for (const Package& package : value.packages) {
    *out.add_packages() = ToProto(package);
  }
  if (value.runtime != Runtime()) {
    *out.mutable_runtime() = ToProto(value.runtime);
  }
  for (const std::string& name : value.inherited_environment) {
    out.add_inherited_environment(name);
  }
  for (const std::string& name : value.services) out.add_services(name);
  for (const ImageContent& image : value.images) {
    *out.add_images() = ToProto(image);
  }
  out.set_reduction_plan(value.reduction_plan);
  out.set_reduction_plan_pinned(value.reduction_plan_pinned);
  out.set_output_identity(value.output_identity);
  if (value.known_checkpoint) {
    *out.mutable_known_checkpoint() = ToProto(*value.known_checkpoint);
  }
  if (value.restore) *out.mutable_restore() = ToProto(*value.restore);
  return out;
}

StatusOr<GangSpec> FromProto(const v1::GangSpec& value, std::string_view path) {
  FieldChecker check(path);
  GangSpec out;
  check.Take(FromProto(value.kind(), check.At("kind")), &out.kind);
  check.Require(value.tasks_size() > 0, "tasks", "is empty");
  check.Count("tasks", value.tasks_size(), kMaxRanks);
  std::set<int32_t> ranks;
  for (int i = 0; check.ok() && i < value.tasks_size(); ++i) {
    check.Take(FromProto(value.tasks(i), check.At("tasks", i)),
               &out.tasks.emplace_back());
    for (const RankSpec& rank : out.tasks.back().ranks) {
      check.Require(ranks.insert(rank.rank).second, "tasks",
                    fmt::format("rank {} is there twice", rank.rank));
    }
  }
  check.Path("output_directory", value.output_directory());
  check.Take(FromProto(value.checkpoint(), check.At("checkpoint")),
             &out.checkpoint);
  check.Count("lineage", value.lineage_size(), 100'000);
  for (int i = 0; check.ok() && i < value.lineage_size(); ++i) {
    check.Take(FromProto(value.lineage(i), check.At("lineage", i)),
               &out.lineage.emplace_back());
  }
  check.Range("attempt", value.attempt(), 0, INT32_MAX);
  check.Range("restart_count", value.restart_count(), 0, INT32_MAX);
  check.Range("restart_budget", value.restart_budget(), 0, INT32_MAX);
  check.Path("working_directory", value.working_directory());
  check.Text("job_owner", value.job_owner(), 256);
  check.Count("packages", value.packages_size(), 100);
  for (int i = 0; check.ok() && i < value.packages_size(); ++i) {
    check.Take(FromProto(value.packages(i), check.At("packages", i)),
               &out.packages.emplace_back());
  }
  check.Take(FromProto(value.runtime(), check.At("runtime")), &out.runtime);
  check.Count("inherited_environment", value.inherited_environment_size(),
              4096);
  for (const std::string& name : value.inherited_environment()) {
    check.Require(IsEnvironmentName(name), "inherited_environment",
                  Quote(name) + " is no name of a variable");
  }
  check.Count("services", value.services_size(), 256);
  for (const std::string& name : value.services()) {
    check.Text("services", name, 64);
  }
  check.Count("images", value.images_size(), kMaxImages);
  for (int i = 0; check.ok() && i < value.images_size(); ++i) {
    check.Take(FromProto(value.images(i), check.At("images", i)),
               &out.images.emplace_back());
  }
  check.Text("reduction_plan", value.reduction_plan(), kMaxReductionPlan);
  check.Text("output_identity", value.output_identity(), kMaxOutputIdentity);
  if (value.has_known_checkpoint()) {
    check.Take(
        FromProto(value.known_checkpoint(), check.At("known_checkpoint")),
        &out.known_checkpoint.emplace());
  }
  if (value.has_restore()) {
    check.Take(FromProto(value.restore(), check.At("restore")),
               &out.restore.emplace());
  }
  if (!check.ok()) return check.status();
  out.output_identity = value.output_identity();
  out.reduction_plan = value.reduction_plan();
  out.reduction_plan_pinned = value.reduction_plan_pinned();
  out.inherited_environment = {value.inherited_environment().begin(),
                               value.inherited_environment().end()};
  out.services = {value.services().begin(), value.services().end()};
  out.output_directory = value.output_directory();
  out.attempt = value.attempt();
  out.restart_count = value.restart_count();
  out.restart_budget = value.restart_budget();
  out.working_directory = value.working_directory();
  out.job_owner = value.job_owner();
  return out;
}

v1::Assignment ToProto(const Assignment& value) {
  v1::Assignment out;
  out.set_job(value.job);
  out.set_job_uid(value.job_uid);
  out.set_generation(value.generation);
  out.set_epoch(value.epoch);
  out.set_version(value.version);
  out.set_goal(ToProto(value.goal));
  if (value.spec) *out.mutable_spec() = ToProto(*value.spec);
  if (value.cluster) out.set_cluster(EncodeClusterSpec(*value.cluster));
  out.set_job_key(value.job_key);
  for (const Directive& directive : value.directives) {
    *out.add_directives() = ToProto(directive);
  }
  if (value.grace != Duration{}) {
    *out.mutable_grace() = ToProto(value.grace);
  }
  out.set_stop_message(value.stop_message);
  return out;
}

StatusOr<Assignment> FromProto(const v1::Assignment& value,
                               std::string_view path) {
  FieldChecker check(path);
  Assignment out;
  check.JobName("job", value.job());
  check.Text("job_uid", value.job_uid(), 64);
  check.Require(value.generation() > 0, "generation", "must be 1 or more");
  check.Number("version", value.version(), 0, 1e18);
  check.Require(value.epoch() > 0, "epoch", "must be 1 or more");
  check.Take(FromProto(value.goal(), check.At("goal")), &out.goal);
  if (value.has_spec()) {
    check.Take(FromProto(value.spec(), check.At("spec")), &out.spec.emplace());
  }
  const bool has_cluster = !value.cluster().empty();
  if (has_cluster) {
    check.Take(DecodeClusterSpec(value.cluster(), check.At("cluster")),
               &out.cluster.emplace());
    check.Require(out.cluster->job == value.job() &&
                      out.cluster->generation == value.generation(),
                  "cluster", "is of another job or generation");
  }
  const bool starts = out.goal == Goal::kLaunch || out.goal == Goal::kGo;
  check.Require(value.has_spec() || !(starts || out.goal == Goal::kPrepare),
                "spec", "is missing");
  check.Require(has_cluster || !starts, "cluster", "is missing");
  check.Require(
      value.job_key().empty() || value.job_key().size() == kJobKeyBytes,
      "job_key", "must have 32 bytes");
  check.Count("directives", value.directives_size(), 4095);
  for (int i = 0; check.ok() && i < value.directives_size(); ++i) {
    check.Take(FromProto(value.directives(i), check.At("directives", i)),
               &out.directives.emplace_back());
  }
  check.Take(FromProto(value.grace(), check.At("grace")), &out.grace);
  check.Bytes("stop_message", value.stop_message(), 8192);
  if (!check.ok()) return check.status();
  out.job = value.job();
  out.job_uid = value.job_uid();
  out.generation = value.generation();
  out.epoch = value.epoch();
  out.version = value.version();
  out.job_key = value.job_key();
  out.stop_message = value.stop_message();
  return out;
}

v1::LogAck ToProto(const LogAckInfo& value) {
  v1::LogAck out;
  out.set_job(value.job);
  out.set_generation(value.generation);
  out.set_rank(value.rank);
  out.set_offset(value.offset);
  out.set_end(value.end);
  return out;
}

StatusOr<LogAckInfo> FromProto(const v1::LogAck& value, std::string_view path) {
  FieldChecker check(path);
  check.JobName("job", value.job());
  check.Range("rank", value.rank(), 0, kMaxRanks - 1);
  if (!check.ok()) return check.status();
  return LogAckInfo{value.job(), value.generation(), value.rank(),
                    value.offset(), value.end()};
}

}  // namespace lockstep
