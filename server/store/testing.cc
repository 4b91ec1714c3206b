#include "server/store/testing.h"

#include <chrono>

namespace lockstep {
namespace {

WallTime At(int64_t seconds) {
  return FromUnixNanos(seconds * 1'000'000'000 + 123'456'789);
}

JobSpec FullSpec() {
  JobSpec spec;
  spec.name = "full";
  spec.kind = JobKind::kProgram;
  spec.roles.push_back({TaskType::kChief,
                        1,
                        2,
                        {1.5, int64_t{3} << 30, 2, "T4"},
                        {"chief", "--x"},
                        {{"A", "1"}}});
  spec.roles.push_back({TaskType::kWorker, 3, 1, {0.1, 0, 0, ""}, {}, {}});
  spec.roles.push_back({TaskType::kPs, 1, 1, {1, 7, 0, ""}, {"ps"}, {}});
  spec.roles.push_back({TaskType::kEvaluator, 1, 1, {}, {"eval"}, {}});
  spec.argv = {"train", "", "a b\n"};
  spec.environment = {{"B", "\xc3\xa9"}, {"C", ""}};
  spec.output_directory = "/out/full";
  spec.checkpoint = {250, 7};
  spec.restart_budget = 0;
  spec.max_running_time = std::chrono::seconds(5);
  spec.max_wait_time = std::chrono::milliseconds(1500);
  spec.priority = 999;
  spec.labels = {{"team", "x-1"}, {"empty", ""}};
  spec.working_directory = "/work";
  spec.comment = "for people";
  return spec;
}

ExitStatus FullExit() {
  ExitStatus exit;
  exit.how = ExitStatus::How::kSignal;
  exit.value = 9;
  exit.message = "last words";
  exit.end_time = At(50);
  exit.victim = true;
  exit.out_of_memory = true;
  exit.reason = Reason::kDiverged;
  return exit;
}

RankStatus FullRank(int32_t rank) {
  RankStatus status;
  status.rank = rank;
  status.local_rank = 1;
  status.state = RankState::kExited;
  status.pid = 4321;
  status.exit = FullExit();
  status.progress = {11,
                     10,
                     100,
                     0.25,
                     12345,
                     0.5,
                     0.01,
                     {1, 2, 3, 4, 5, 6, 7, 8},
                     999,
                     1000,
                     2,
                     3,
                     {{"accuracy", 0.9}},
                     "compute"};
  status.usage = {12.5, 100, 200, 0.75, 30.5};
  return status;
}

TaskStatus FullTask() {
  return {TaskType::kWorker, 2,      "node-b",
          "10.0.0.2:7000",   {3, 1}, {FullRank(4), FullRank(5)}};
}

ClusterSpec FullCluster() {
  ClusterSpec cluster;
  cluster.job = "full";
  cluster.job_uid = "uid-1";
  cluster.generation = 7;
  cluster.world_size = 2;
  cluster.tasks = {{TaskType::kChief, 0, "a", "10.0.0.1:7000", {{0, 0, {0}}}},
                   {TaskType::kWorker, 0, "b", "10.0.0.2:7000", {{1, 0, {}}}},
                   {TaskType::kPs, 0, "b", "10.0.0.2:7001", {{2, 0, {}}}}};
  cluster.master_address = "10.0.0.1";
  cluster.master_port = 7999;
  cluster.services = {{"store", "10.0.0.1:1"}};
  return cluster;
}

}  // namespace

Job FullJob() {
  Job job;
  job.spec = FullSpec();
  job.uid = "uid-1";
  job.owner = "user/ann";
  job.resource_version = 77;
  job.create_time = At(1);
  job.start_time = At(2);
  job.end_time = At(3);
  job.state = JobState::kFinishing;
  job.state_time = At(4);
  job.cause = {Reason::kRankSignal, "because"};
  job.generation = 7;
  job.attempt = 6;
  job.failures_without_progress = 2;
  job.restarts = 5;
  for (const JobState state : kAllJobStates) {
    if (!IsFinal(state)) {
      job.phase_durations[state] =
          std::chrono::nanoseconds(1'500'000'001) * static_cast<int>(state);
    }
  }
  job.tasks = {FullTask()};
  job.attempts = {
      {5, 6, At(5), At(6), {Reason::kNodeLost, "gone"}, 40, {FullTask()}},
      {6, 7, At(7), At(8), {}, std::nullopt, {}}};
  job.last_checkpoint = Checkpoint{40, 6, "/out/full/40", At(9), 1234};
  job.committed_step = 41;
  job.artifacts = {{"model", "/out/full/model"}};
  job.events = {{At(10), 3, Reason::kNone, "hello"},
                {At(11), 4, Reason::kRunning, ""}};
  job.bill = {1.5, 2.5, 3.5, "EUR"};
  job.exit_code = 137;
  job.cluster = FullCluster();
  job.job_key = std::string("\0\xff key", 6);
  job.failing = Cause{Reason::kFormTimeout, "late"};
  job.outcome = JobState::kFailed;
  job.cancel_requested = true;
  job.attempt_start = At(12);
  job.committed_before = 39;
  job.lineage = {{6, 0}, {7, 40}};
  job.directives = {{2, DirectiveKind::kCheckpoint}, {3, DirectiveKind::kStop}};
  job.next_directive = 4;
  job.holds = {{"a", 7, {2, 5, 1, ""}, {0, 3}, At(13)}};
  job.not_before = At(14);
  job.failed_formings = 3;
  job.event_numbers = {{"a", 9}, {"b", 1}};
  job.free_restarts = {At(15), At(16)};
  job.first_failure = Cause{Reason::kRankExit, "first"};
  job.first_failure_code = 9;
  job.ended_ranks = {FullRank(0)};
  return job;
}

NodeRecord FullNode() {
  NodeRecord record;
  NodeInfo& node = record.info;
  node.name = "node-a";
  node.incarnation = {9, 0xfedcba9876543210};
  node.boot_id = "boot";
  node.hostname = "host.example";
  node.version = "1.2";
  node.address = "10.0.0.1";
  node.http_address = "10.0.0.1:9100";
  node.http_tls = true;
  node.capacity = {7.5, int64_t{64} << 30, 2, "T4"};
  node.gpus = {{0, "GPU-0", "NVIDIA T4", int64_t{16} << 30},
               {1, "GPU-1", "NVIDIA T4", int64_t{16} << 30}};
  node.limits_enforced = true;
  node.pool = "t4";
  record.drain =
      Drain{"user/ann", "new kernel", At(15), std::chrono::milliseconds(30500)};
  record.events = {{At(14), 0, Reason::kNodeRegistered, "registered"},
                   {At(15), 0, Reason::kNodeDrain, "drained"}};
  record.state_time = At(14);
  return record;
}

AnsweredRequest FullRequest() {
  return {"user/ann",
          "id-1",
          "SubmitJob",
          std::string("\x01\x00", 2),
          std::string("\xff\x00 bytes", 8),
          At(20)};
}

}  // namespace lockstep
