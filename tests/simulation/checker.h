// Knows what really happens in the simulated world, and whether that breaks an
// invariant. The product knows nothing of it.
#ifndef LOCKSTEP_TESTS_SIMULATION_CHECKER_H_
#define LOCKSTEP_TESTS_SIMULATION_CHECKER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/model/assignment.h"
#include "server/core/job.h"
#include "tests/simulation/invariant.h"
#include "tests/simulation/sim_store.h"
#include "tests/simulation/timeline.h"

namespace lockstep::simulation {

// A process of a rank.
struct LiveRank {
  NodeName node;
  JobName job;
  std::string uid;
  Generation generation = 0;
  int32_t rank = 0;
  bool native = true;
};

// A complete checkpoint in a job's output directory.
struct SavedState {
  Generation generation = 0;
  int64_t step = 0;
  uint64_t state = 0;
  // The parts of these ranks are there.
  std::set<int32_t> parts;
};

// What a rank has done with one step.
struct CommittedStep {
  std::string uid;
  Generation generation = 0;
  // Its communicator.
  uint32_t recovery = 0;
  int32_t rank = 0;
  int64_t step = 0;
  // Number of the first sample.
  uint64_t sample = 0;
  // Of its replica, after the step.
  uint64_t state = 0;
};

// The training of every job: the state after a step is one number, which
// depends on the step before, the samples, and nothing else.
inline constexpr uint64_t kBatch = 32;
int64_t TotalSteps(const std::string& uid);
uint64_t FirstState(const std::string& uid);
// Whether some rank's gradient of this step is not finite.
bool IsSkipped(const std::string& uid, int64_t step);
uint64_t NextState(uint64_t state, const std::string& uid, int64_t step,
                   uint64_t sample);

class Checker final : public SimStore::Listener {
 public:
  // What a test wants to know was reached.
  struct Coverage {
    std::map<std::pair<CommitPoint, CommitFault>, int> commits;
    int generations = 0;
    int final_jobs = 0;
    int checkpoints = 0;
    int steps = 0;
    int late_messages = 0;
    int recoveries = 0;
    // Those of them in which tasks moved to another node.
    int moves = 0;
    // Communicators that formed while ranks were away, and those in which one
    // was back.
    int smaller = 0;
    int returns = 0;
    // Generations with fewer tasks than their job asks for.
    int partial = 0;
  };

  // Both are borrowed.
  Checker(const Timeline* time, Story* story) : time_(time), story_(story) {}
  void SetStore(const SimStore* store) { store_ = store; }

  bool broken() const { return violation_.has_value(); }
  const std::optional<Violation>& violation() const { return violation_; }
  const Coverage& coverage() const { return coverage_; }
  // The first one counts.
  void Break(Invariant invariant, std::string sentence);

  // ---- The store: S1, S5, S7, S8, S10 ----
  void OnCommit(const server::StoreBatch& batch) override;
  void OnFault(CommitPoint point, CommitFault fault) override;
  // An order leaves the coordinator: S8.
  void OnOrder(const NodeName& node, const Assignment& order);
  // A daemon obeys an order. `followed`: it comes over the node's stream, from
  // the coordinator that it follows: S10.
  void OnObeyed(const NodeName& node, const Assignment& order, bool followed);
  // The answer to a message of a stream that has ended: S10.
  void OnLate(const Status& answer);
  // The coordinator got a heartbeat, or a registration.
  void OnHeard(const NodeName& node) { heard_[node] = time_->now(); }

  // ---- Clients: S5, S10 ----
  // A user got OK.
  void OnAcknowledged(const std::string& id, const std::string& answer);
  void ForbidRequest(const std::string& id) { forbidden_.insert(id); }

  // ---- Rendezvous: S9 ----
  // The coordinator of this life has the value of rank 0.
  void OnPut(const std::string& uid, Generation generation, uint64_t life);
  // Since when; nullopt: it does not have it.
  std::optional<MonoTime> PutSince(const std::string& uid,
                                   Generation generation, uint64_t life) const;

  // ---- Processes: S7 ----
  void OnStart(int64_t pid, const LiveRank& rank);
  void OnEnd(int64_t pid) { live_.erase(pid); }
  // The daemon of the node knows nothing of the gang any more.
  void OnForgotten(const NodeName& node, const JobName& job,
                   Generation generation);
  const std::map<int64_t, LiveRank>& live() const { return live_; }

  // ---- Training: S1 to S4, S6 ----
  // `from` is null where it begins with the first step.
  void OnResumed(const std::string& uid, Generation generation,
                 const SavedState* from, int32_t world_size);
  void OnCommitted(const CommittedStep& step);
  // These processes form the communicator of a recovery.
  void OnFormed(const std::string& uid, Generation generation,
                uint32_t recovery, const std::set<int64_t>& pids);
  // A rank got that state from another, or `had` it; else it is a new process.
  void OnLevelled(const CommittedStep& step, bool had);
  // The process of a rank that is away waits for a recovery above `recovery`.
  void OnWaits(int64_t pid, const std::string& uid, Generation generation,
               uint32_t recovery, int32_t rank);
  // Nothing stands in its way from then on.
  void OnCalm(MonoTime since) { calm_ = since; }
  // `recovery`: the communicator whose members wrote it.
  void OnPublished(const std::string& uid, const SavedState& saved,
                   uint32_t recovery);

 private:
  // The communicator of a generation and a recovery.
  struct Group {
    ClusterSpec cluster;
    std::set<int32_t> members;
    std::set<int32_t> away;
    bool operator==(const Group&) const = default;
  };
  struct Lineage {
    std::optional<SavedState> newest;
    // The true states after 0, 1, ... steps.
    std::vector<uint64_t> truth;
    // By generation: where it began.
    std::map<Generation, int64_t> began;
    // By generation and rank: the last step.
    std::map<std::pair<Generation, int32_t>, int64_t> last;
    // By generation and step: the state, and the ranks that hold it.
    std::map<std::pair<Generation, int64_t>,
             std::pair<uint64_t, std::set<int32_t>>>
        held;
    // By generation and step: the ranks whose parts make a checkpoint whole.
    std::map<std::pair<Generation, int64_t>, std::set<int32_t>> wanted;
    Generation highest = 0;
    // By generation: the newest recovery whose communicator was formed.
    std::map<Generation, uint32_t> formed;
    // By generation and recovery.
    std::map<std::pair<Generation, uint32_t>, MonoTime> formed_at;
    // By generation, recovery and rank: the process that waits to be back,
    // and since when.
    std::map<std::tuple<Generation, uint32_t, int32_t>,
             std::pair<int64_t, MonoTime>>
        waits;
    // By generation and recovery: ranks may move to other nodes, or be away.
    std::map<std::pair<Generation, uint32_t>, Group> groups;
  };

  void CheckRequest(const server::AnsweredRequest& request,
                    const server::StoreBatch& batch);
  void CheckJob(const server::Job* before, const server::Job& after);
  void CheckRecovery(const server::Job& job);
  void CheckSuccess(const server::Job& job);
  // Of a generation that begins.
  void CheckSize(const server::Job& job);
  void CheckGroup(const server::Job& job);
  void CheckReleased(const server::Job& before, const server::Job& after);
  void CheckHolds(const server::Job& changed);
  void CheckDrain(const server::NodeRecord& node);
  void CheckTwins(const LiveRank& rank);
  // Empty: none of that is stored.
  std::set<int32_t> MembersOf(const std::string& uid, Generation generation,
                              uint32_t recovery) const;
  void CheckWaits(const CommittedStep& step);
  uint64_t TruthAfter(Lineage* lineage, const std::string& uid, int64_t step);

  const Timeline* const time_;
  Story* const story_;
  const SimStore* store_ = nullptr;
  std::optional<Violation> violation_;
  Coverage coverage_;
  std::map<NodeName, MonoTime> heard_;
  std::optional<MonoTime> calm_;
  std::set<std::string> effects_;
  std::map<std::string, std::string> answers_;
  std::set<std::string> forbidden_;
  std::map<NodeName, bool> drained_;
  std::map<std::tuple<std::string, Generation, uint64_t>, MonoTime> puts_;
  std::map<int64_t, LiveRank> live_;
  // What was left to itself: the host was silent for long, or an operator gave
  // it up.
  std::set<std::tuple<NodeName, std::string, Generation>> given_up_;
  // Nodes whose hold ended while they were silent: an order on its way there
  // may start a rank that is elsewhere by now.
  std::set<std::tuple<NodeName, std::string, Generation>> left_;
  std::map<std::string, Lineage> lineages_;
};

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_CHECKER_H_
