#include "server/store/testing.h"

#include <chrono>
#include <utility>
#include <vector>

#include "server/store/job_tables.h"
#include "server/store/schema.h"
#include "server/store/sqlite.h"

namespace lockstep::server {
namespace {

WallTime At(int64_t seconds) {
  return FromUnixNanos(seconds * 1'000'000'000 + 123'456'789);
}

JobSpec FullSpec() {
  JobSpec spec;
  spec.name = "full";
  spec.kind = JobKind::kProgram;
  spec.roles.push_back(
      {TaskType::kChief,
       1,
       2,
       {1.5, int64_t{3} << 30, 2, "T4"},
       {"chief", "--x"},
       {{"A", "1"}},
       Container{"registry/trainer:1", {"python3"}},
       MachineType{"n1-standard-8", {8, int64_t{30} << 30, 2, "T4"}, 1.5}});
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
  spec.packages = {{"sha256:" + std::string(64, 'a'), 1234,
                    PackageFormat::kSdist, "trainer-0.1.tar.gz"}};
  spec.runtime = {"tf-2.21", "/opt/tf/bin/python3", true};
  spec.inherited_environment = {"HTTP_PROXY"};
  spec.environment_options.master_in_tf_config = true;
  spec.restart_worker_alone = true;
  spec.environment_options.slurm_environment = true;
  spec.environment_options.tf_config_job = "{\"scale_tier\":\"CUSTOM\"}";
  spec.job_dir = "gs://bucket/dir";
  spec.pool = "t4";
  spec.environment_options.empty_tf_config = true;
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

ReplicaInput FullReplica(std::optional<int64_t> count) {
  ReplicaInput replica{"n1-standard-8", count, {}};
  replica.config = {AcceleratorConfig{2, "NVIDIA_TESLA_T4"},
                    DiskConfig{100, "pd-ssd"},
                    "registry/trainer:1",
                    {"python3"},
                    {"task.py"},
                    "2.1"};
  return replica;
}

TrainingJob FullTraining() {
  TrainingJob job;
  job.job_id = "full";
  job.labels = {{"team", "x-1"}};
  TrainingInput& in = job.training_input;
  in.scale_tier = "CUSTOM";
  in.region = "us-central1";
  in.master = FullReplica(std::nullopt);
  in.worker = FullReplica(3);
  in.parameter_server = FullReplica(0);
  in.evaluator = FullReplica(1);
  in.package_uris = {"trainer.tar.gz"};
  in.python_module = "trainer.task";
  in.python_version = "3.7";
  in.runtime_version = "2.11";
  in.args = {"--x", ""};
  in.job_dir = "gs://bucket/dir";
  in.use_chief_in_tf_config = false;
  in.scheduling = {std::chrono::seconds(7200), std::chrono::seconds(3600), 0,
                   false, "ON_DEMAND"};
  in.service_account = "a@b";
  in.network = "net";
  in.enable_web_access = false;
  in.kms_key_name = "key";
  job.lockstep.env = {{"A", "1"}};
  job.lockstep.ranks_per_task = 2;
  job.lockstep.restart_budget = 0;
  job.lockstep.runtime = "tf-2.21";
  job.lockstep.images = {{"gcr.io", "registry"}};
  job.lockstep.inherited_environment = {"HTTP_PROXY"};
  job.lockstep.slurm_environment = true;
  return job;
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
                     {1, 2, 3, 4, 5, 6, 7, 8, 9},
                     999,
                     1000,
                     2,
                     3,
                     {{"accuracy", 0.9}},
                     "compute"};
  status.usage = {12.5, 100,  200,  0.75, 30.5, 1.75,
                  0.9,  5000, 6000, 7000, 8000, 9000};
  status.restarts = 2;
  status.recoverable = true;
  status.recovery = 3;
  status.parked = 4;
  status.elastic = true;
  status.away = true;
  status.returned = 2;
  return status;
}

TaskStatus FullTask() {
  return {TaskType::kWorker,
          2,
          "node-b",
          "10.0.0.2:7000",
          {3, 1},
          {FullRank(4), FullRank(5)},
          {{{"fetch", std::chrono::seconds(3)}}, "ports", "two of three"},
          std::nullopt,
          {"node-a", "node-c"}};
}

ClusterSpec FullCluster() {
  ClusterSpec cluster;
  cluster.job = "full";
  cluster.job_uid = "uid-1";
  cluster.generation = 7;
  cluster.world_size = 2;
  cluster.tasks = {
      {TaskType::kChief, 0, "a", "10.0.0.1:7000", {{0, 0, {0}, 1}}},
      {TaskType::kWorker, 0, "b", "10.0.0.2:7000", {{1, 0, {}}}},
      {TaskType::kPs, 0, "b", "10.0.0.2:7001", {{2, 0, {}}}}};
  cluster.master_address = "10.0.0.1";
  cluster.master_port = 7999;
  cluster.services = {{"store", "10.0.0.1:1"}};
  cluster.environment_options.master_in_tf_config = true;
  cluster.environment_options.slurm_environment = true;
  cluster.environment_options.tf_config_job = "{}";
  cluster.environment_options.empty_tf_config = true;
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
  job.recoveries = 9;
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
  job.in_place_recoveries = {
      {7, 1, At(5), At(6), {Reason::kRankSignal, "gone"}, {1}, {1}, {}, 30},
      {7, 2, At(7), std::nullopt, {}, {}, {}, {1}, std::nullopt}};
  job.last_checkpoint = Checkpoint{40, 6, "/out/full/40", At(9), 1234};
  job.committed_step = 41;
  job.artifacts = {{"model", "/out/full/model"}};
  job.events = {{At(10), 3, Reason::kNone, "hello"},
                {At(11), 4, Reason::kRunning, ""}};
  job.bill = {1.5, 2.5, 3.5, "EUR", 4.5};
  job.training.Edit() = FullTraining();
  job.outputs = {{"model.keras", "keras", 77}};
  job.images = {{"registry/trainer:1", "sha256:" + std::string(64, 'a'),
                 "sha256:" + std::string(64, 'b'), "node-a"}};
  job.reduction_plan = "lockstep-reduction-plan 1\nranks 2\n";
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
  job.holds = {{"a",
                7,
                {2, 5, 1, ""},
                {0, 3},
                At(13),
                Fence{std::chrono::minutes(4), true}}};
  job.not_before = At(14);
  job.failed_formings = 3;
  job.event_numbers = {{"a", 9}, {"b", 1}};
  job.free_restarts = {At(15), At(16)};
  job.recovery = 4;
  job.recovery_start = At(18);
  job.replacements = {{"a",
                       true,
                       {Reason::kNodeLost, "gone"},
                       At(19),
                       "c",
                       {{0, 3}, {}},
                       {"d"},
                       At(21),
                       true},
                      {"b",
                       false,
                       {Reason::kNodeDrained, "leave"},
                       At(20),
                       "",
                       {},
                       {},
                       {},
                       false,
                       true}};
  job.spares = {{"e", "a", {{1, 2}, {}}}, {"f", "b", {{}}}};
  job.refused_spares = {"g", "h"};
  job.uncharged_failures = {At(13), At(17)};
  job.generation_floor = 1003;
  job.failure_signature = "ZeroDivisionError at train.py:12";
  job.output_identity = std::string(32, 'a');
  job.restore = RestoreTarget{40};
  job.output_hold = OutputHold{Reason::kNoCheckpoint, 3, At(18)};
  job.wanted_tasks = 3;
  job.resize = Resize{3, "room for 3 tasks", At(22)};
  job.spec.end_with = EndWith::kChief;
  job.spec.end_grace = std::chrono::seconds(7);
  job.lone_ranks = {{1, {true, At(17), FullRank(1).usage, 2, At(18)}}, {2, {}}};
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
  node.checks_gpus = true;
  node.gpus[0].lift_end = At(40);
  node.gpus[1].fault = "Xid 79 at 12:00:03 UTC";
  node.gpus[1].fault_end = At(41);
  node.limits_enforced = true;
  node.pool = "t4";
  node.limits_message = "cgroup v1";
  node.certificate_end_time = At(99);
  node.container_engine = "podman 4.3.1";
  record.drain =
      Drain{"user/ann", "new kernel", At(15), std::chrono::milliseconds(30500)};
  record.events = {{At(14), 0, Reason::kNodeRegistered, "registered"},
                   {At(15), 0, Reason::kNodeDrain, "drained"}};
  record.state_time = At(14);
  record.missing_gpus = {{2, "GPU-2", "NVIDIA T4", int64_t{16} << 30}};
  record.approved = Resources{7.5, int64_t{64} << 30, 3, "T4"};
  record.offered = Resources{8.5, int64_t{64} << 30, 4, "T4"};
  record.withheld_gpus = {{3, "GPU-3", "NVIDIA T4", int64_t{16} << 30}};
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

Job WideJob(int tasks) {
  Job job = FullJob();
  job.tasks.clear();
  job.holds.clear();
  for (int i = 0; i < tasks; ++i) {
    TaskStatus task = FullTask();
    task.index = i;
    task.node = fmt::format("node-{:04}", i);
    job.tasks.push_back(task);
    job.holds.push_back({task.node, 7, {2, 5, 1, ""}, {0}, At(13)});
  }
  return job;
}

StatusOr<v1::StoredJob> MergedRows(const Job& job) {
  v1::StoredJob merged;
  for (const JobRow& row : ChangesOf(nullptr, job).written) {
    LOCKSTEP_RETURN_IF_ERROR(AddRow(row.table, row.record, &merged));
  }
  return merged;
}

StatusOr<Job> ReadAgain(const Job& job) {
  LOCKSTEP_ASSIGN_OR_RETURN(const v1::StoredJob merged, MergedRows(job));
  return DecodeJob(merged);
}

std::string RecordOfSchema4(const Job& job) {
  return MergedRows(job).value().SerializeAsString();
}

Status MakeSchema4(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      Database db, Database::Open(path, Database::Access::kWrite, true));
  std::vector<std::pair<JobName, std::string>> jobs;
  LOCKSTEP_RETURN_IF_ERROR(ForEachJob(&db, [&](const StoredVersion& version) {
    jobs.emplace_back(version.job->spec.name, RecordOfSchema4(*version.job));
    return OkStatus();
  }));
  LOCKSTEP_RETURN_IF_ERROR(db.Execute("BEGIN"));
  for (const JobTable table : kAllJobTables) {
    const std::string drop = fmt::format(
        "DROP TABLE {0}; DELETE FROM digests WHERE name = '{0}'", Name(table));
    LOCKSTEP_RETURN_IF_ERROR(db.Execute(drop.c_str()));
  }
  LOCKSTEP_RETURN_IF_ERROR(db.Execute(
      "CREATE TABLE jobs (name TEXT PRIMARY KEY, record BLOB NOT NULL,"
      " digest INTEGER NOT NULL DEFAULT 0)"));
  TableDigest all;
  for (const auto& [name, record] : jobs) {
    const uint64_t digest = RowDigest(name, record);
    all.Add(digest);
    Statement put(db.get(), "INSERT INTO jobs VALUES (?, ?, ?)");
    put.BindText(1, name);
    put.Bind(2, record);
    put.Bind(3, static_cast<int64_t>(digest));
    LOCKSTEP_RETURN_IF_ERROR(db.Finish(&put));
  }
  LOCKSTEP_RETURN_IF_ERROR(StoreDigest(&db, "jobs", all));
  return db.Execute("PRAGMA user_version = 4; COMMIT");
}

}  // namespace lockstep::server
