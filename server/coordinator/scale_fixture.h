// The instruments of scale_test.cc: a store that counts writes, and nodes that
// count messages.
#ifndef LOCKSTEP_SERVER_COORDINATOR_SCALE_FIXTURE_H_
#define LOCKSTEP_SERVER_COORDINATOR_SCALE_FIXTURE_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/wire/worker_wire.h"
#include "server/coordinator/coordinator.h"
#include "server/core/testing.h"

namespace lockstep::server {

// Counts writes and forwards them to `store`, if any.
class CountingStore final : public Store {
 public:
  explicit CountingStore(Store* store) : store_(store) {}

  StatusOr<StoreSnapshot> Load() override {
    if (store_ != nullptr) return store_->Load();
    StoreSnapshot snapshot;
    snapshot.epoch = ++epoch_;
    snapshot.version = version_;
    if (job_ != nullptr) snapshot.jobs.push_back(job_);
    for (const auto& [name, node] : known_) snapshot.nodes.push_back(node);
    return snapshot;
  }
  Status Commit(const StoreBatch& batch) override {
    ++commits;
    for (const auto& job : batch.jobs) {
      tasks_written += ChangedTasks(job_.get(), *job);
      job_ = job;
    }
    if (store_ != nullptr) return TimedCommit(batch);
    version_ = batch.version;
    for (const NodeRecord* node : batch.nodes) known_[node->info.name] = *node;
    return OkStatus();
  }

  int64_t commits = 0;
  // Those that differ from what was there.
  int64_t tasks_written = 0;
  // In commits of `store`: all, and the longest.
  double seconds = 0;
  double longest = 0;

 private:
  Status TimedCommit(const StoreBatch& batch) {
    const auto began = std::chrono::steady_clock::now();
    Status status = store_->Commit(batch);
    const double took =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began)
            .count();
    seconds += took;
    longest = std::max(longest, took);
    return status;
  }
  static int64_t ChangedTasks(const Job* before, const Job& now) {
    int64_t changed = 0;
    for (size_t i = 0; i < now.tasks.size(); ++i) {
      const bool known = before != nullptr && i < before->tasks.size();
      if (!known || !(before->tasks[i] == now.tasks[i])) ++changed;
    }
    return changed;
  }

  Store* const store_;
  uint64_t epoch_ = 0;
  int64_t version_ = 0;
  std::shared_ptr<const Job> job_;
  std::map<NodeName, NodeRecord> known_;
};

inline int64_t encoded_specs = 0;

inline std::string CountedEncoding(const ClusterSpec& spec) {
  ++encoded_specs;
  return EncodeClusterSpec(spec);
}

// A node without processes. It keeps only the needed parts of assignments,
// because N copies of the cluster spec would be quadratic themselves.
class WideNode final : public WorkerLink {
 public:
  explicit WideNode(int number, double cpus) {
    info.name = fmt::format("node-{:05}", number);
    info.incarnation = {1, 77};
    info.boot_id = "boot";
    info.hostname = info.name;
    info.version = "test";
    info.address = "10.0.0.1";
    info.capacity = {cpus, int64_t{8} << 30, 0, ""};
  }

  void SendAssignment(
      const Assignment& assignment,
      const std::shared_ptr<const SharedClusterSpec>& cluster) override {
    ++assignments;
    if (cluster != nullptr) {
      // Each generation is encoded once, by the first node that needs it.
      const std::string& spec = cluster->Encoded(CountedEncoding);
      specs += static_cast<int64_t>(!spec.empty());
      if (encodes) Encode(assignment, &spec);
    } else if (encodes) {
      Encode(assignment, nullptr);
    }
    goal_ = assignment.goal;
    if (assignment.goal == Goal::kForget) gang.reset();
    if (assignment.goal != Goal::kPrepare || gang) return;
    gang.emplace();
    gang->job = assignment.job;
    gang->job_uid = assignment.job_uid;
    gang->generation = assignment.generation;
    for (const LocalTask& task : assignment.spec->tasks) {
      gang->ports.push_back(20000);
      for (const RankSpec& rank : task.ranks) {
        RankStatus status;
        status.rank = rank.rank;
        status.local_rank = rank.local_rank;
        gang->ranks.push_back(status);
      }
    }
    gang->master_port = 19999;
    gang->preparations.resize(assignment.spec->tasks.size());
  }
  void SendRendezvous(const JobName&, Generation, const std::string&,
                      const std::string&) override {
    ++values;
  }
  void SendPrefetch(const Prefetch&) override {}
  void SendHeartbeatAck(uint64_t) override {}
  void Close(const Status&) override {}

  // Makes one move towards its goal, as a daemon reports it. Returns false if
  // there is none.
  bool Move(bool join, bool end) {
    if (!gang || gang->phase == GangPhase::kStopped) return false;
    if (std::exchange(fails, false)) {
      gang->ranks[0].state = RankState::kExited;
      gang->ranks[0].exit = Code(1);
      return true;
    }
    if (gang->phase == GangPhase::kPreparing) return Prepare();
    if (end || goal_ == Goal::kStop) return End();
    if (goal_ < Goal::kLaunch) return false;
    if (gang->phase == GangPhase::kPrepared) {
      gang->phase = GangPhase::kLaunched;
      return Raise(RankState::kStarted);
    }
    return join && Raise(RankState::kJoined);
  }

  NodeInfo info;
  SessionId session = 0;
  uint64_t beats = 0;
  std::optional<GangStatus> gang;
  int64_t assignments = 0;
  int64_t values = 0;
  // Its first rank fails at its next move.
  bool fails = false;
  // The number of assignments with a cluster spec.
  int64_t specs = 0;
  // Encodes under the coordinator's lock, as the service does.
  bool encodes = false;
  size_t bytes = 0;

 private:
  void Encode(const Assignment& assignment, const std::string* spec) {
    v1::CoordinatorMessage message;
    *message.mutable_assignment() = ToProto(assignment);
    if (spec != nullptr) message.mutable_assignment()->set_cluster(*spec);
    bytes += message.SerializeAsString().size();
  }
  // Reports that it prepares, then that it has prepared.
  bool Prepare() {
    for (TaskPreparation& preparation : gang->preparations) {
      if (preparation.current.empty()) {
        preparation.parts.push_back({std::string(kPortsPart), {}});
        preparation.current = kPortsPart;
        continue;
      }
      preparation.current.clear();
      gang->phase = GangPhase::kPrepared;
    }
    return true;
  }
  bool Raise(RankState state) {
    bool moved = false;
    for (RankStatus& rank : gang->ranks) {
      if (rank.state >= state) continue;
      rank.state = state;
      rank.pid = 1000 + rank.rank;
      moved = true;
    }
    return moved;
  }
  bool End() {
    for (RankStatus& rank : gang->ranks) {
      rank.state = RankState::kExited;
      rank.exit = Code(0);
    }
    gang->phase = GangPhase::kStopped;
    return true;
  }

  Goal goal_ = Goal::kPrepare;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_SCALE_FIXTURE_H_
