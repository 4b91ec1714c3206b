// A coordinator on a store that survives restarts, with daemons and a clock
// that the test moves.
#ifndef LOCKSTEP_SERVER_COORDINATOR_COORDINATOR_FIXTURE_H_
#define LOCKSTEP_SERVER_COORDINATOR_COORDINATOR_FIXTURE_H_

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/coordinator/coordinator.h"
#include "server/core/testing.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_daemon.h"
#include "tests/support/memory_store.h"

namespace lockstep::server {

class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() { Start(); }

  // ---- The coordinator ----
  void Start() {
    hub_ = std::make_unique<WatchHub>();
    CoordinatorOptions options = options_;
    options.new_uid = [this] { return "uid" + std::to_string(++uids_); };
    options.new_key = [] { return std::string(32, 'k'); };
    coordinator_ =
        std::make_unique<Coordinator>(options, &store_, &clock_, hub_.get());
    const Status status = coordinator_->Load();
    ASSERT_TRUE(status.ok()) << Message(status);
  }
  // Restarts the coordinator. Streams break; daemons reconnect when connected.
  void Restart() {
    for (FakeDaemon* daemon : all_) daemon->LoseCoordinator();
    coordinator_.reset();
    Start();
  }
  void Connect(FakeDaemon* daemon) {
    const Status status = daemon->Connect(coordinator_.get());
    ASSERT_TRUE(status.ok()) << Message(status);
  }
  // Runs all pending work, ticks included.
  void Run() {
    PumpAll(all_);
    coordinator_->Tick();
    PumpAll(all_);
  }
  // Advances time for all in steps as small as a real ticker's.
  void Pass(Duration time, Duration step = std::chrono::milliseconds(500)) {
    for (Duration done{}; done < time; done += step) {
      clock_.Advance(std::min(step, time - done));
      for (FakeDaemon* daemon : all_) {
        if (daemon->connected() && !silent_) (void)daemon->Beat();
      }
      Run();
    }
  }

  // Makes the ranks on `a` finish a hundred steps quickly, so that the step
  // time is known to be short.
  void StepFast(const JobName& job) {
    for (const int64_t steps : {1, 2, 100}) {
      clock_.Advance(std::chrono::milliseconds(100));
      for (FakeDaemon* daemon : all_) {
        if (!daemon->connected() || daemon->Find(job) == nullptr) continue;
        const Status status =
            daemon->Progress(job, daemon->Find(job)->status.generation, steps);
        ASSERT_TRUE(status.ok()) << Message(status);
      }
    }
  }

  // ---- Clients ----
  static std::string Encode(const JobSnapshot& snapshot) {
    return fmt::format("{} {} v{}", snapshot.job->spec.name,
                       Name(snapshot.job->state),
                       snapshot.job->resource_version);
  }
  static Status AllowAll(const Job&) { return OkStatus(); }
  StatusOr<std::string> Submit(const JobSpec& spec,
                               const std::string& id = "") {
    return coordinator_->jobs()->Submit(
        {"user/ann", id.empty() ? "submit-" + spec.name : id, "SubmitJob",
         spec.name + spec.comment},
        spec, "user/ann", Encode);
  }
  void MustSubmit(const JobSpec& spec) {
    const auto answer = Submit(spec);
    ASSERT_TRUE(answer.ok()) << Message(answer.status());
  }
  StatusOr<std::string> Cancel(const JobName& name) {
    return coordinator_->jobs()->CancelJob(
        {"user/ann", "cancel-" + name, "CancelJob", name}, name, AllowAll,
        Encode);
  }
  static std::string EncodeNode(const NodeSnapshot& node) {
    return fmt::format("{} {}", node.member.info.name, Name(node.member.state));
  }
  StatusOr<std::string> DrainNode(const NodeName& node,
                                  std::optional<Duration> grace = {},
                                  const std::string& id = "") {
    Drain drain;
    drain.requester = "user/root";
    drain.reason = "new kernel";
    drain.grace = grace;
    return coordinator_->nodes()->DrainNode(
        {"user/root", id.empty() ? NextId() : id, "DrainNode", node}, node,
        drain, EncodeNode);
  }
  StatusOr<std::string> UndrainNode(const NodeName& node,
                                    const std::vector<int32_t>& gpus = {}) {
    return coordinator_->nodes()->UndrainNode(
        {"user/root", NextId(), "UndrainNode", node}, node, gpus, EncodeNode);
  }
  StatusOr<std::string> ApproveNode(const NodeName& node,
                                    const std::string& id = "") {
    return coordinator_->nodes()->ApproveNode(
        {"user/root", id.empty() ? NextId() : id, "ApproveNode", node}, node,
        EncodeNode);
  }
  StatusOr<std::string> ForgetNode(const NodeName& node,
                                   const std::string& id = "") {
    return coordinator_->nodes()->ForgetNode(
        {"user/root", id.empty() ? NextId() : id, "ForgetNode", node}, node,
        [](const std::vector<JobName>& jobs) {
          return fmt::format("{}", fmt::join(jobs, " "));
        });
  }
  StatusOr<std::string> Delete(const JobName& name,
                               const std::string& id = "") {
    return coordinator_->jobs()->DeleteJob(
        {"user/ann", id.empty() ? NextId() : id, "DeleteJob", name}, name,
        AllowAll, "gone");
  }
  std::string NextId() { return fmt::format("id-{}", ++ids_); }
  NodeState StateOf(const NodeName& node) {
    const auto snapshot = coordinator_->queries()->GetNode(node);
    EXPECT_TRUE(snapshot.ok()) << Message(snapshot.status());
    return snapshot.ok() ? snapshot->member.state : NodeState::kLost;
  }

  Job Get(const JobName& name) {
    const auto job = coordinator_->queries()->GetJob(name);
    EXPECT_TRUE(job.ok()) << Message(job.status());
    return job.ok() ? *job->job : Job();
  }
  JobState State(const JobName& name) { return Get(name).state; }
  // Checks every job's uid, state and resources, and that no resource is
  // allocated twice.
  void CheckBooking() {
    for (const NodeSnapshot& node : coordinator_->queries()->ListNodes()) {
      const Resources& capacity = node.member.info.capacity;
      EXPECT_LE(node.allocated.cpus, capacity.cpus + 1e-6)
          << node.member.info.name;
      EXPECT_LE(node.allocated.memory_bytes, capacity.memory_bytes);
    }
  }

  FakeClock clock_;
  MemoryStore store_;
  CoordinatorOptions options_;
  std::unique_ptr<WatchHub> hub_;
  std::unique_ptr<Coordinator> coordinator_;
  int uids_ = 0;
  int ids_ = 0;
  bool silent_ = false;
  FakeDaemon a_{"a", {2, int64_t{8} << 30, 0, ""}};
  FakeDaemon b_{"b", {2, int64_t{8} << 30, 0, ""}};
  std::vector<FakeDaemon*> all_ = {&a_, &b_};
};

// Needs enough cores that a gang of two spans both nodes.
inline JobSpec Wide(const JobName& name) {
  JobSpec spec = NativeSpec(name, 2);
  for (RoleSpec& role : spec.roles.Edit()) role.resources.cpus = 2;
  return spec;
}

inline std::vector<Goal> GoalsOf(const FakeDaemon& daemon, const JobName& job) {
  std::vector<Goal> goals;
  for (const Assignment& assignment : daemon.assignments) {
    if (assignment.job == job) goals.push_back(assignment.goal);
  }
  return goals;
}

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_COORDINATOR_FIXTURE_H_
