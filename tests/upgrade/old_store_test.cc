// The database of an older coordinator, and a coordinator that goes on with it.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <memory>

#include "common/base/file.h"
#include "common/wire/worker_wire.h"
#include "server/coordinator/coordinator.h"
#include "server/store/job_record.h"
#include "server/store/sqlite_store.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_daemon.h"
#include "tests/upgrade/testdata.h"
#include "worker/task/bytes.h"

namespace lockstep {
namespace {

using testing::Contains;
using testing::SizeIs;

// What the store keeps of what is shown: no progress, and nothing that time
// alone changes.
std::string Stored(v1::Job job) {
  job.clear_progress();
  job.clear_queue_position();
  job.clear_phases();
  job.clear_bill();
  job.clear_training();
  // Why it waits is found anew.
  if (job.state() == v1::JOB_STATE_QUEUED) job.clear_cause();
  for (v1::TaskStatus& task : *job.mutable_tasks()) {
    for (v1::RankStatus& rank : *task.mutable_ranks()) {
      rank.clear_progress();
      rank.clear_usage();
    }
  }
  return job.DebugString();
}

// docs/formats/task-files.md. The daemon's own reader is in old_files_test.cc:
// no program has the daemon's names and the coordinator's.
FakeDaemon::Gang GangOf(const std::string& bytes) {
  std::string_view payload;
  std::string error;
  FakeDaemon::Gang gang;
  EXPECT_TRUE(
      worker::task::Unseal("gang", "LSGANG01", 1, bytes, &payload, &error))
      << error;
  worker::task::ByteReader reader(payload);
  v1::Assignment assignment;
  v1::GangStatus status;
  EXPECT_TRUE(assignment.ParseFromString(reader.Str(1 << 20)));
  EXPECT_TRUE(status.ParseFromString(reader.Str(1 << 20)));
  const auto a = FromProto(assignment);
  const auto s = FromProto(status);
  EXPECT_TRUE(a.ok() && s.ok()) << a.status() << s.status();
  if (a.ok()) gang.assignment = *a;
  if (s.ok()) gang.status = *s;
  return gang;
}

class OldStoreTest : public OldProgramTest {
 protected:
  std::string Db() const { return Path("store/coordinator.db"); }
  // Of a SQLite file: its schema (PRAGMA user_version).
  static int SchemaOf(const std::string& bytes) {
    return bytes.size() < 64 ? -1 : static_cast<unsigned char>(bytes[63]);
  }

  void Open() {
    auto store = server::OpenSqliteStore(Db());
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  void Load() {
    Open();
    ASSERT_NE(store_, nullptr);
    auto snapshot = store_->Load();
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    snapshot_ = *std::move(snapshot);
  }
  // A coordinator on the store, a minute after the old one ended.
  void Start() {
    Load();
    ASSERT_FALSE(snapshot_.jobs.empty());
    WallTime last{};
    for (const auto& job : snapshot_.jobs) {
      last = std::max(last, job->state_time);
    }
    clock_.JumpWall(last + std::chrono::minutes(1) - clock_.Now().wall);
    server::CoordinatorOptions options;
    options.new_uid = [] { return std::string("new"); };
    options.new_key = [] { return std::string(32, 'k'); };
    coordinator_ = std::make_unique<server::Coordinator>(options, store_.get(),
                                                         &clock_, &hub_);
    const Status loaded = coordinator_->Load();
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  // On node-a. Only the oldest programs took a job with gloo.
  std::vector<std::string> Running() const {
    std::vector<std::string> names;
    for (const auto& job : snapshot_.jobs) {
      if (job->state == JobState::kRunning) names.push_back(job->spec.name);
    }
    return names;
  }
  // What the old daemon finds of its own, at a later start.
  void Adopt(FakeDaemon* daemon) {
    for (const std::string& name : Running()) {
      const FakeDaemon::Gang gang =
          GangOf(Read(fmt::format("worker/tasks/{}.g1/gang", name)));
      daemon->gangs[{gang.assignment.job, gang.assignment.generation}] = gang;
    }
    const auto node =
        std::find_if(snapshot_.nodes.begin(), snapshot_.nodes.end(),
                     [&](const server::NodeRecord& record) {
                       return record.info.name == daemon->info.name;
                     });
    ASSERT_NE(node, snapshot_.nodes.end());
    daemon->info = node->info;
    ++daemon->info.incarnation.counter;
    const Status connected = daemon->Connect(coordinator_.get());
    ASSERT_TRUE(connected.ok()) << connected;
  }
  void Run(FakeDaemon* daemon) {
    for (int i = 0; i < 40; ++i) {
      PumpAll({daemon});
      clock_.Advance(std::chrono::milliseconds(500));
      EXPECT_TRUE(daemon->Beat().ok());
      coordinator_->Tick();
    }
    PumpAll({daemon});
  }
  server::Job Get(const std::string& name) {
    const auto job = coordinator_->queries()->GetJob(name);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job->job : server::Job();
  }

  void EndGloo(FakeDaemon* daemon);

  FakeClock clock_;
  server::WatchHub hub_;
  server::StoreSnapshot snapshot_;
  std::unique_ptr<server::Store> store_;
  std::unique_ptr<server::Coordinator> coordinator_;
};
LOCKSTEP_FOR_OLD_COMMITS(OldStoreTest, "store");

// The backend of its next generation is another, and it says so.
void OldStoreTest::EndGloo(FakeDaemon* daemon) {
  daemon->Exit("gloo", 1, KilledBy(SIGKILL));
  Run(daemon);
  const server::Job gloo = Get("gloo");
  EXPECT_EQ(gloo.state, JobState::kRunning);
  EXPECT_EQ(gloo.generation, 2u);
  EXPECT_THAT(gloo.attempts, SizeIs(1));
  EXPECT_THAT(gloo.spec.argv, Contains("auto"));
  EXPECT_EQ(std::count_if(gloo.events.begin(), gloo.events.end(),
                          [](const Event& event) {
                            return event.reason == Reason::kBackendReplaced;
                          }),
            1);
  for (const int rank : {0, 1}) daemon->Exit("gloo", rank, ExitCode(0));
  Run(daemon);
  EXPECT_EQ(Get("gloo").state, JobState::kSucceeded);
}

TEST_P(OldStoreTest, AllJobsAreAsTheOldCoordinatorSaid) {
  const std::string before = Read("store/coordinator.db");
  Load();
  const auto said = SaidJobs();
  EXPECT_GE(said.size(), 8u);
  std::map<std::string, server::Job> stored;
  for (const auto& job : snapshot_.jobs) stored[job->spec.name] = *job;
  ASSERT_EQ(stored.size(), said.size());
  for (const auto& [name, job] : said) {
    SCOPED_TRACE(name);
    EXPECT_EQ(Stored(server::ToJobMessage(stored[name])), Stored(job));
  }
  EXPECT_EQ(stored["steps"].reduction_plan, Read("plan.txt"));
  EXPECT_TRUE(stored["training_1"].training.get());
  EXPECT_THAT(snapshot_.nodes, SizeIs(2));
  const int now = SchemaOf(Read("store/coordinator.db"));
  EXPECT_GE(now, SchemaOf(before));
  if (now == SchemaOf(before)) return;
  // The way back.
  const std::string copy = fmt::format("{}.schema-{}", Db(), SchemaOf(before));
  const auto kept = RealFileSystem()->Read(copy);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(SchemaOf(*kept), SchemaOf(before));
}

TEST_P(OldStoreTest, WhatWasMigratedIsWholeAndReadAgain) {
  Load();
  const auto jobs = snapshot_.jobs;
  store_.reset();
  const auto report = server::VerifySqliteStore(Db(), true);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->jobs, static_cast<int64_t>(jobs.size()));
  Load();
  ASSERT_EQ(snapshot_.jobs.size(), jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(*snapshot_.jobs[i], *jobs[i]) << jobs[i]->spec.name;
  }
}

TEST_P(OldStoreTest, ACommandOfBeforeGetsItsFirstAnswer) {
  Start();
  ASSERT_FALSE(snapshot_.requests.empty());
  const auto submitted =
      std::find_if(snapshot_.requests.begin(), snapshot_.requests.end(),
                   [](const server::AnsweredRequest& request) {
                     return request.method == "SubmitJob";
                   });
  ASSERT_NE(submitted, snapshot_.requests.end());
  const int64_t version = coordinator_->queries()->version();
  const auto answer = coordinator_->jobs()->Submit(
      {submitted->client, submitted->id, submitted->method,
       submitted->content_hash},
      Get("done").spec, submitted->client,
      [](const server::JobSnapshot&) { return std::string("anew"); });
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, submitted->response);
  EXPECT_EQ(coordinator_->queries()->version(), version);
}

TEST_P(OldStoreTest, ItsJobsGoOnToTheirEnd) {
  Start();
  FakeDaemon daemon("node-a", {});
  Adopt(&daemon);
  Run(&daemon);
  ASSERT_THAT(Running(), Contains("held"));
  for (const std::string& name : Running()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(Get(name).state, JobState::kRunning);
    EXPECT_EQ(Get(name).generation, 1u);
  }
  EXPECT_EQ(Get("waiting").state, JobState::kQueued);
  for (const int rank : {0, 1}) daemon.Exit("held", rank, ExitCode(0));
  Run(&daemon);
  EXPECT_EQ(Get("held").state, JobState::kSucceeded);
  if (SaidJobs().contains("gloo")) EndGloo(&daemon);

  EXPECT_EQ(Get("waiting").state, JobState::kRunning);
  daemon.Exit("waiting", 0, ExitCode(0));
  Run(&daemon);
  EXPECT_EQ(Get("waiting").state, JobState::kSucceeded);
}

}  // namespace
}  // namespace lockstep
