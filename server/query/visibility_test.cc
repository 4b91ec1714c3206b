#include "server/query/visibility.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <set>

#include "server/core/testing.h"
#include "server/service/messages.h"
#include "server/store/testing.h"

namespace lockstep::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;
using testing::HasSubstr;
using Paths = std::set<std::string>;

Paths Under(const std::string& prefix, const Paths& paths) {
  Paths out;
  for (const std::string& path : paths) out.insert(prefix + path);
  return out;
}

void Add(Paths paths, Paths* out) { out->merge(std::move(paths)); }

// What others than the owner and admins see, each value by itself.
Paths OpenPaths() {
  const Paths resources = {"cpus", "memory_bytes", "gpus", "gpu_type"};
  Paths progress = {
      "step",        "committed_step",         "total_steps", "epoch",
      "samples",     "allreduce_bytes",        "collectives", "skipped_steps",
      "checkpoints", "allreduce_busy_seconds", "change_time"};
  Add(Under("phases.",
            {"input", "compute", "allreduce", "straggler_wait", "optimizer",
             "checkpoint", "evaluation", "other", "compile"}),
      &progress);
  Add(Under("straggler.", {"rank", "steps", "late_steps", "cost"}), &progress);
  Add(Under("signs.",
            {"source", "still", "usual", "limit", "log_step", "log_total"}),
      &progress);
  Add(Under("collective_wait.", {"responsive", "waiting", "peer", "waits"}),
      &progress);
  Paths task = {"type",
                "index",
                "node",
                "former_nodes",
                "gpus",
                "preparation.parts.phase",
                "preparation.parts.duration",
                "preparation.current"};
  Add(Under("ranks.", {"rank", "local_rank", "state", "restarts", "recoverable",
                       "recovery", "parked", "elastic", "away", "returned"}),
      &task);
  Add(Under("ranks.exit.", {"code", "signal", "exec_errno", "end_time",
                            "victim", "out_of_memory", "reason"}),
      &task);
  Add(Under("ranks.usage.", {"cpu_seconds", "memory_bytes", "memory_peak_bytes",
                             "gpu_utilization", "seconds", "cpu_peak_cores",
                             "gpu_utilization_peak", "gpu_memory_peak_bytes",
                             "network_sent_bytes", "network_received_bytes",
                             "disk_bytes", "log_bytes"}),
      &task);
  Add(Under("ranks.progress.", progress), &task);
  Paths open = {"name",           "resource_version",
                "owner",          "create_time",
                "start_time",     "end_time",
                "state",          "state_time",
                "cause.reason",   "generation",
                "attempt",        "failures_without_progress",
                "restarts",       "recoveries",
                "phases.phase",   "phases.duration",
                "committed_step", "exit_code",
                "queue_position", "resumed_step",
                "restore.step",   "restore.from_start",
                "details_hidden", "expected_start_time",
                "spare_nodes",    "wanted_tasks"};
  Add(Under("in_place_recoveries.",
            {"generation", "number", "start_time", "end_time", "cause.reason",
             "replaced_ranks", "away_ranks", "returned_ranks", "step"}),
      &open);
  Add(Under("spec.", {"name",
                      "kind",
                      "roles.type",
                      "roles.count",
                      "roles.ranks_per_task",
                      "roles.machine.type",
                      "roles.machine.ml_units_per_hour",
                      "checkpoint.interval_steps",
                      "checkpoint.keep",
                      "restart_budget",
                      "max_running_time",
                      "max_wait_time",
                      "priority",
                      "restart_worker_alone",
                      "pool",
                      "end_with",
                      "end_grace",
                      "hang",
                      "stall_after",
                      "node_loss",
                      "node_lost_timeout",
                      "idle_notice",
                      "idle_stop",
                      "warm_starts",
                      "spares",
                      "hold",
                      "elastic_min_tasks",
                      "rescale"}),
      &open);
  Add(Under("spec.roles.resources.", resources), &open);
  Add(Under("spec.roles.machine.nominal.", resources), &open);
  Add(Under("tasks.", task), &open);
  Add(Under("attempts.", {"ordinal", "generation", "start_time", "end_time",
                          "end_cause.reason", "resumed_step"}),
      &open);
  Add(Under("attempts.tasks.", task), &open);
  Add(Under("last_checkpoint.", {"step", "generation", "time", "bytes"}),
      &open);
  Add(Under("events.", {"time", "generation", "reason"}), &open);
  Add(Under("progress.", {"job", "generation", "samples_per_second",
                          "steps_per_second", "eta", "time"}),
      &open);
  Add(Under("progress.chief.", progress), &open);
  Add(Under("bill.",
            {"core_seconds", "gpu_seconds", "cost", "currency", "ml_units"}),
      &open);
  open.insert("training.job_id");
  Add(Under("training.training_input.",
            {"scale_tier", "region", "master_type", "worker_type",
             "worker_count", "parameter_server_type", "parameter_server_count",
             "evaluator_type", "evaluator_count"}),
      &open);
  for (const char* role :
       {"master", "worker", "parameter_server", "evaluator"}) {
    Add(Under(fmt::format("training.training_input.{}_config.", role),
              {"accelerator_config.count", "accelerator_config.type",
               "disk_config.boot_disk_size_gb", "disk_config.boot_disk_type"}),
        &open);
  }
  return open;
}

// The rest; a message stands for all in it.
Paths HiddenPaths() {
  const Paths progress = {"loss", "learning_rate", "values", "phase"};
  Paths task = {"address",   "preparation.detail", "work",
                "ranks.pid", "ranks.exit.message", "ranks.exit.location"};
  Add(Under("ranks.progress.", progress), &task);
  Paths hidden = {"uid",
                  "cause.message",
                  "last_checkpoint.path",
                  "events.message",
                  "artifacts",
                  "outputs",
                  "images",
                  "reduction_plan",
                  "output_identity",
                  "attempts.end_cause.message",
                  "in_place_recoveries.cause.message",
                  "training.labels",
                  "training.lockstep"};
  Add(Under("spec.", {"roles.argv", "roles.environment", "roles.container",
                      "argv", "environment", "output_directory", "labels",
                      "working_directory", "comment", "packages", "runtime",
                      "inherited_environment", "master_in_tf_config",
                      "slurm_environment", "tf_config_job", "job_dir",
                      "empty_tf_config", "reduction_plan", "progress_pattern"}),
      &hidden);
  Add(Under("tasks.", task), &hidden);
  Add(Under("attempts.tasks.", task), &hidden);
  Add(Under("progress.chief.", progress), &hidden);
  Add(Under("training.training_input.",
            {"package_uris", "python_module", "python_version",
             "runtime_version", "args", "job_dir", "use_chief_in_tf_config",
             "scheduling", "service_account", "network", "enable_web_access",
             "encryption_config"}),
      &hidden);
  for (const char* role :
       {"master", "worker", "parameter_server", "evaluator"}) {
    Add(Under(fmt::format("training.training_input.{}_config.", role),
              {"image_uri", "container_command", "container_args",
               "tpu_tf_version"}),
        &hidden);
  }
  return hidden;
}

bool IsValue(const FieldDescriptor* field) {
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
      field->is_map()) {
    return true;
  }
  return field->message_type()->full_name().starts_with("google.protobuf.");
}

// Every value that a message may have.
void Walk(const Descriptor* type, const std::string& prefix, Paths* out) {
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    const std::string path = prefix + field->name();
    if (IsValue(field)) {
      out->insert(path);
    } else {
      Walk(field->message_type(), path + ".", out);
    }
  }
}

// Calls `on` with each message that has the last field of `path`.
void Visit(google::protobuf::Message* message, const std::string& path,
           const std::function<void(google::protobuf::Message*,
                                    const FieldDescriptor*)>& on) {
  const size_t dot = path.find('.');
  const FieldDescriptor* const field =
      message->GetDescriptor()->FindFieldByName(path.substr(0, dot));
  ASSERT_NE(field, nullptr) << path;
  if (dot == path.npos) return on(message, field);
  const Reflection* const reflection = message->GetReflection();
  const std::string rest = path.substr(dot + 1);
  if (!field->is_repeated()) {
    if (!reflection->HasField(*message, field)) return;
    return Visit(reflection->MutableMessage(message, field), rest, on);
  }
  for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
    Visit(reflection->MutableRepeatedMessage(message, field, i), rest, on);
  }
}

bool Has(const v1::Job& job, const std::string& path) {
  v1::Job copy = job;
  bool has = false;
  Visit(&copy, path,
        [&](google::protobuf::Message* message, const FieldDescriptor* field) {
          const Reflection* const reflection = message->GetReflection();
          has = has || (field->is_repeated()
                            ? reflection->FieldSize(*message, field) > 0
                            : reflection->HasField(*message, field));
        });
  return has;
}

// A job with a value in every field.
JobSnapshot FullSnapshot() {
  Job job = FullJob();
  job.spec.reduction_plan = "plan";
  job.spec.hang = HangPolicy::kRestart;
  job.spec.stall_after = std::chrono::seconds(60);
  job.spec.idle_notice = std::chrono::seconds(60);
  job.spec.idle_stop = std::chrono::seconds(120);
  job.spec.warm_starts = true;
  job.spec.spares = 2;
  job.spec.hold = std::chrono::seconds(60);
  job.spec.elastic_min_tasks = 1;
  job.spec.rescale = true;
  job.spec.progress_pattern = "pattern";
  job.spec.node_loss = NodeLoss::kNever;
  job.spec.node_lost_timeout = std::chrono::seconds(90);
  const auto fill = [](TaskStatus* task) {
    task->work = WorkDirectory{1, 2, {{"model.pt", 3, {}, false}}, true};
    for (RankStatus& rank : task->ranks) {
      rank.exit->location = "train.py:12";
      rank.progress.straggler = Straggler{1, 2, 3, 0.5};
      rank.progress.allreduce_busy_seconds = 1;
      rank.progress.change_time = WallTime(std::chrono::seconds(5));
      rank.progress.collective_wait = CollectiveWait{true, true, 1, 2};
      rank.progress.signs = ProgressSigns{SignSource::kLog,
                                          std::chrono::seconds(1),
                                          std::chrono::seconds(2),
                                          std::chrono::seconds(3),
                                          4,
                                          5};
    }
  };
  fill(&job.tasks.at(0));
  fill(&job.attempts.at(0).tasks.at(0));
  JobSnapshot snapshot;
  snapshot.progress.emplace();
  snapshot.progress->generation = 7;
  snapshot.progress->chief = job.tasks[0].ranks[0].progress;
  snapshot.progress->samples_per_second = 1;
  snapshot.progress->steps_per_second = 2;
  snapshot.progress->eta = std::chrono::seconds(3);
  snapshot.progress->time = WallTime(std::chrono::seconds(4));
  snapshot.bill = job.bill;
  snapshot.queue_position = 2;
  snapshot.expected_start = WallTime(std::chrono::seconds(6));
  snapshot.job = std::make_shared<const Job>(std::move(job));
  return snapshot;
}

const JobReader kStranger = {.name = "user/bob"};

TEST(VisibilityTest, EveryFieldIsEitherOpenOrHidden) {
  Paths values;
  Walk(v1::Job::descriptor(), "", &values);
  const Paths open = OpenPaths();
  const Paths hidden = HiddenPaths();
  for (const std::string& value : values) {
    int listed = open.contains(value) ? 1 : 0;
    for (size_t dot = 0; dot != value.npos;) {
      dot = value.find('.', dot + 1);
      if (hidden.contains(value.substr(0, dot))) ++listed;
    }
    EXPECT_EQ(listed, 1) << value
                         << " of Job is on both lists or none: may everybody "
                            "see it?";
  }
  for (const std::string& path : open) {
    EXPECT_TRUE(values.contains(path)) << path << " is no more";
  }
}

TEST(VisibilityTest, StrangersSeeTheOpenFieldsAndNoOther) {
  const JobSnapshot snapshot = FullSnapshot();
  v1::Job expected = ToMessage(snapshot);
  // Of alternatives there is one, and the last is what this is about.
  Paths absent = {"restore.from_start", "details_hidden"};
  for (const char* task : {"tasks", "attempts.tasks"}) {
    absent.insert(fmt::format("{}.ranks.exit.code", task));
    absent.insert(fmt::format("{}.ranks.exit.exec_errno", task));
  }
  for (const Paths& paths : {OpenPaths(), HiddenPaths()}) {
    for (const std::string& path : paths) {
      EXPECT_NE(Has(expected, path), absent.contains(path))
          << path << ": give it a value in FullSnapshot";
    }
  }
  for (const std::string& path : HiddenPaths()) {
    Visit(&expected, path,
          [](google::protobuf::Message* message, const FieldDescriptor* field) {
            message->GetReflection()->ClearField(message, field);
          });
  }
  expected.set_details_hidden(true);
  const v1::Job shown = ToMessage(ShownTo(kStranger, snapshot));
  EXPECT_TRUE(
      google::protobuf::util::MessageDifferencer::Equivalent(expected, shown))
      << "wanted:\n"
      << expected.DebugString() << "\ngot:\n"
      << shown.DebugString();
}

TEST(VisibilityTest, WhatIsOnlyKnownNowIsHiddenToo) {
  JobSnapshot snapshot = FullSnapshot();
  Job job = *snapshot.job;
  RankStatus rank = job.tasks[0].ranks[0];
  job.tasks[0].ranks[0].exit.reset();
  snapshot.job = std::make_shared<const Job>(job);
  snapshot.waiting = Cause{Reason::kNoCapacity, "s3cret"};
  rank.exit->message = rank.progress.phase = "s3cret";
  rank.progress.values = {{"s3cret", 1}};
  snapshot.live[rank.rank] = rank;
  EXPECT_THAT(ToMessage(snapshot).DebugString(), HasSubstr("s3cret"));
  const v1::Job shown = ToMessage(ShownTo(kStranger, snapshot));
  EXPECT_THAT(shown.DebugString(), testing::Not(HasSubstr("s3cret")));
  EXPECT_EQ(shown.cause().reason(), v1::REASON_NO_CAPACITY);
  EXPECT_EQ(shown.tasks(0).ranks(0).exit().signal(), 9);
}

TEST(VisibilityTest, WhoSeesAllGetsTheSameJobWithoutACopy) {
  const JobSnapshot snapshot = FullSnapshot();
  for (const JobReader& reader :
       {JobReader{.name = "user/ann"},
        ReaderOf("user/adam", true, Visibility::kOwner),
        ReaderOf("user/bob", false, Visibility::kCluster)}) {
    EXPECT_EQ(ShownTo(reader, snapshot).job, snapshot.job);
    EXPECT_FALSE(ToMessage(ShownTo(reader, snapshot)).details_hidden());
    EXPECT_EQ(ShownTo(reader, "user/ann", *snapshot.progress).chief.loss, 0.5);
    EXPECT_TRUE(CheckSees(reader, "full", "user/ann", "logs").ok());
  }
  for (const JobReader& reader :
       {ReaderOf("user/bob", false, Visibility::kOwner),
        // Another kind of certificate with the owner's name, and nobody.
        ReaderOf("worker/ann", false, Visibility::kOwner),
        ReaderOf("", false, Visibility::kOwner)}) {
    EXPECT_TRUE(ShownTo(reader, snapshot).details_hidden);
    EXPECT_EQ(ShownTo(reader, "user/ann", *snapshot.progress).chief.loss, 0);
    const Status refused = CheckSees(reader, "full", "user/ann", "logs");
    EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
    EXPECT_THAT(lockstep::Message(refused),
                testing::AllOf(HasSubstr("job full belongs to user/ann"),
                               HasSubstr("may read its logs"),
                               HasSubstr("visibility: cluster")));
  }
  // A job without an owner is not nobody's.
  EXPECT_FALSE(ReaderOf("", false, Visibility::kOwner).Sees(""));
}

}  // namespace
}  // namespace lockstep::server
