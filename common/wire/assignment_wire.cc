// What the coordinator says to a worker daemon.
#include <set>

#include "common/model/limits.h"
#include "common/model/names.h"
#include "common/wire/fields.h"
#include "common/wire/worker_wire.h"

namespace lockstep {
namespace {

constexpr auto kVariableName =
    Matching(IsEnvironmentName, " is not a variable name");
// Of a program that is started: Linux takes more names than a job may give.
constexpr auto kAnyVariableName = Matching(
    [](std::string_view name) {
      return !name.empty() && name.find('=') == std::string_view::npos;
    },
    " is not a variable name");

void CheckRanks(const GangSpec& spec, FieldChecker* check) {
  std::set<int32_t> ranks;
  for (const LocalTask& task : spec.tasks) {
    for (const RankSpec& rank : task.ranks) {
      check->Require(ranks.insert(rank.rank).second, "tasks",
                     fmt::format("rank {} is there twice", rank.rank));
    }
  }
}

void ReadCluster(const v1::Assignment& from, Assignment* to,
                 FieldChecker* check) {
  if (from.cluster().empty()) return;
  v1::ClusterSpec cluster;
  FieldChecker at(check, "cluster");
  if (!cluster.ParseFromString(from.cluster())) {
    return at.Fail("", fmt::format("{} bytes are no encoded ClusterSpec",
                                   from.cluster().size()));
  }
  ReadValue(cluster, &to->cluster.emplace(), &at);
  at.Require(to->cluster->job == from.job() &&
                 to->cluster->generation == from.generation(),
             "", "is of another job or generation");
}

void CheckGoal(const Assignment& assignment, FieldChecker* check) {
  const Goal goal = assignment.goal;
  const bool starts = goal == Goal::kLaunch || goal == Goal::kGo;
  check->Require(assignment.spec || !(starts || goal == Goal::kPrepare), "spec",
                 "is missing");
  check->Require(assignment.cluster || !starts, "cluster", "is missing");
}

}  // namespace

LOCKSTEP_FIELDS(WelcomeInfo, v1::Welcome) {
  LOCKSTEP_FIELD(epoch, kPositive);
  LOCKSTEP_FIELD(heartbeat_interval);
  LOCKSTEP_FIELD(lease);
  LOCKSTEP_FIELD(cluster, Text(256));
  LOCKSTEP_FIELD(history, EmptyOr(kHistory));
  LOCKSTEP_FIELD(replaced_histories, AtMost(10'000), Each(kHistory));
  LOCKSTEP_FIELD(epoch_id, EmptyOr(kHistory));
}

LOCKSTEP_FIELDS(LocalTask, v1::LocalTask) {
  LOCKSTEP_FIELD(type);
  LOCKSTEP_FIELD(index, kRank);
  LOCKSTEP_FIELD(resources);
  LOCKSTEP_FIELD(gpus, AtMost(4096), Each(Range(0, 4095)));
  LOCKSTEP_FIELD(argv, Each(Bytes(kMaxArgument)));
  LOCKSTEP_FIELD(container);
  LOCKSTEP_FIELD(restarts, kCounter);
  LOCKSTEP_FIELD(environment, Entries(kAnyVariableName, Bytes(kMaxArgument)));
  LOCKSTEP_FIELD(ranks, AtMost(kMaxRanks));
  v.Rule([](LocalTask* task, FieldChecker* check) {
    check->Require(task->argv.empty() ? task->container.has_value()
                                      : !task->argv[0].empty(),
                   "argv", "names no program");
    check->Require(!task->ranks.empty(), "ranks", "is empty");
  });
}

LOCKSTEP_FIELDS(GangSpec, v1::GangSpec) {
  LOCKSTEP_FIELD(kind);
  LOCKSTEP_FIELD(tasks, AtMost(kMaxRanks));
  LOCKSTEP_FIELD(output_directory, kPath);
  LOCKSTEP_FIELD(checkpoint);
  LOCKSTEP_FIELD(lineage, AtMost(100'000));
  LOCKSTEP_FIELD(attempt, kCounter);
  LOCKSTEP_FIELD(restart_count, kCounter);
  LOCKSTEP_FIELD(restart_budget, kCounter);
  LOCKSTEP_FIELD(working_directory, kPath);
  LOCKSTEP_FIELD(job_owner, Text(256));
  LOCKSTEP_FIELD(packages, AtMost(100));
  LOCKSTEP_FIELD(runtime, OmitDefault());
  LOCKSTEP_FIELD(inherited_environment, AtMost(4096), Each(kVariableName));
  LOCKSTEP_FIELD(services, AtMost(256), Each(Text(64)));
  LOCKSTEP_FIELD(images, AtMost(kMaxImages));
  LOCKSTEP_FIELD(reduction_plan, Text(kMaxReductionPlan));
  LOCKSTEP_FIELD(reduction_plan_pinned);
  LOCKSTEP_FIELD(output_identity, Text(kMaxOutputIdentity));
  LOCKSTEP_FIELD(known_checkpoint);
  LOCKSTEP_FIELD(restore);
  LOCKSTEP_FIELD(stall_after);
  LOCKSTEP_FIELD(progress_pattern, Text(kMaxProgressPattern));
  LOCKSTEP_FIELD(fence);
  LOCKSTEP_FIELD(warm_starts);
  v.Rule([](GangSpec* spec, FieldChecker* check) {
    check->Require(!spec->tasks.empty(), "tasks", "is empty");
    CheckRanks(*spec, check);
  });
}

LOCKSTEP_FIELDS(Assignment, v1::Assignment) {
  LOCKSTEP_FIELD(job, kJobName);
  LOCKSTEP_FIELD(job_uid, kUid);
  LOCKSTEP_FIELD(generation, kPositive);
  LOCKSTEP_FIELD(version, Range(0, kMaxVersion));
  LOCKSTEP_FIELD(epoch, kPositive);
  LOCKSTEP_FIELD(goal);
  LOCKSTEP_FIELD(spec);
  v.OnWrite([](const Assignment& from, v1::Assignment* to) {
    if (from.cluster) to->set_cluster(EncodeClusterSpec(*from.cluster));
  });
  v.OnRead(ReadCluster);
  LOCKSTEP_FIELD(
      job_key, EmptyOr([](FieldChecker* check, std::string_view field,
                          const std::string& key) {
        check->Require(key.size() == kJobKeyBytes, field, "must have 32 bytes");
      }));
  LOCKSTEP_FIELD(directives, AtMost(4095));
  LOCKSTEP_FIELD(grace, OmitDefault());
  LOCKSTEP_FIELD(stop_message, Bytes(kMaxReportText));
  LOCKSTEP_FIELD(evidence);
  LOCKSTEP_FIELD(keep_evidence);
  LOCKSTEP_FIELD(recovery);
  LOCKSTEP_FIELD(away_ranks, AtMost(kMaxRanks), Each(kRank));
  v.Rule([](Assignment* assignment, FieldChecker* check) {
    CheckGoal(*assignment, check);
  });
}

LOCKSTEP_FIELDS(LogAckInfo, v1::LogAck) {
  LOCKSTEP_FIELD(job, kJobName);
  LOCKSTEP_FIELD(generation);
  LOCKSTEP_FIELD(rank, kRank);
  LOCKSTEP_FIELD(offset);
  LOCKSTEP_FIELD(end);
}

}  // namespace lockstep
