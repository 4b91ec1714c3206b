// The coordinator's store on a disk that keeps what was committed. A commit can
// fail, or be the coordinator's last act.
#ifndef LOCKSTEP_TESTS_SIMULATION_SIM_STORE_H_
#define LOCKSTEP_TESTS_SIMULATION_SIM_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "server/store/store.h"
#include "tests/simulation/bug.h"

namespace lockstep::simulation {

// Thrown out of Commit: the process is gone. Whoever called the coordinator
// catches it and destroys the coordinator.
struct CoordinatorCrash {};

enum class CommitFault { kNone, kCrashBefore, kCrashAfter, kFail };

// What a commit is about: each is a commit point of its own.
enum class CommitPoint {
  kCommand,
  kAnswer,
  kDecision,
  kNode,
  kDeletion,
  kProbe,
};
inline constexpr int kCommitPoints = 6;
std::string_view Name(CommitPoint point);

// Memory has the values; a restart reads them out of the bytes that the real
// store would have written. Thread-compatible.
class SimStore final : public server::Store {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // The batch is durable. Jobs that it replaces are still in the store.
    virtual void OnCommit(const server::StoreBatch& batch) = 0;
    virtual void OnFault(CommitPoint point, CommitFault fault) = 0;
  };

  // `listener` is borrowed.
  SimStore(Bug bug, Listener* listener) : bug_(bug), listener_(listener) {}

  StatusOr<server::StoreSnapshot> Load() override;
  Status Commit(const server::StoreBatch& batch) override;

  // This happens to the commit after `skip` others, or to the next one of
  // `point`.
  void Arm(CommitFault fault, int skip, std::optional<CommitPoint> point) {
    armed_ = {fault, skip, point};
  }
  // Each commit fails.
  void SetFull(bool full) { full_ = full; }

  using Jobs = std::map<std::string, std::shared_ptr<const server::Job>>;
  const Jobs& jobs() const { return data_.jobs; }
  const server::Job* Find(const std::string& job) const;
  const std::map<std::string, server::NodeRecord>& nodes() const {
    return data_.nodes;
  }
  bool HasAnswered(const std::string& id) const;
  uint64_t epoch() const { return epoch_; }

 private:
  struct Data {
    int64_t version = 0;
    Jobs jobs;
    std::map<std::string, server::NodeRecord> nodes;
    std::set<std::string> deleted;
    std::map<std::pair<std::string, std::string>, server::AnsweredRequest>
        requests;
  };
  struct Armed {
    CommitFault fault = CommitFault::kNone;
    int skip = 0;
    std::optional<CommitPoint> point = std::nullopt;
  };

  CommitFault TakeFault(CommitPoint point);
  void Apply(const server::StoreBatch& batch);
  StatusOr<server::Job> ReadBack(const server::Job& job) const;

  const Bug bug_;
  Listener* const listener_;
  Data data_;
  // As before the last commit, for the bugs that need it.
  Data before_;
  Jobs before_final_;
  uint64_t epoch_ = 0;
  std::map<uint64_t, server::EpochStart> epoch_starts_;
  bool full_ = false;
  Armed armed_;
};

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_SIM_STORE_H_
