// A host: the processes of its ranks with their shims, and what is on its disk.
// It goes on when its daemon does not.
#ifndef LOCKSTEP_TESTS_SIMULATION_HOST_H_
#define LOCKSTEP_TESTS_SIMULATION_HOST_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/model/assignment.h"
#include "common/model/store_point.h"
#include "tests/simulation/bug.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/timeline.h"
#include "tests/simulation/training.h"
#include "worker/agent/core/gang_key.h"

namespace lockstep::simulation {

using worker::agent::GangKey;
using worker::agent::RankRef;

// A shim's record of how its rank ended.
struct EndedRank {
  ExitStatus exit;
  RankProgress progress = {};
};

// Where a process reports to, once the daemon listens.
class DaemonEar {
 public:
  virtual ~DaemonEar() = default;
  // Only called while the daemon runs.
  virtual void OnNews(const RankHost::News& news) = 0;
  virtual void OnProcessEnded(const RankRef& ref, const EndedRank& ended) = 0;
  // It waits for a value of its gang's rendezvous.
  virtual void OnProcessWaits(int64_t pid) = 0;
  virtual void OnProcessPuts(const RankRef& ref) = 0;
  virtual bool listens() const = 0;
};

struct Process {
  RankRef ref;
  std::string uid;
  bool native = true;
  bool joined = false;
  // For the value of the rendezvous, since then.
  std::optional<MonoTime> waits;
  // Its shim ends it then.
  std::optional<MonoTime> fence;
  std::vector<RankHost::News> outbox;
};

// What the daemon keeps of a gang (worker/agent/store).
struct KeptGang {
  Assignment assignment;
  GangStatus status;
};

class Host final : public RankHost {
 public:
  struct Parts {
    Bug bug = Bug::kNone;
    int32_t index = 0;
    Timeline* time = nullptr;
    Story* story = nullptr;
    Checker* checker = nullptr;
    Training* training = nullptr;
  };
  // What a daemon leaves for the next one.
  struct Disk {
    uint64_t incarnation = 0;
    StorePoint obeyed;
    std::vector<int32_t> neighbours;
    std::map<GangKey, KeptGang> gangs;
    // By rank: the boot in which its shim has written its record.
    std::map<RankRef, int> records;
    std::map<RankRef, EndedRank> exits;
  };

  explicit Host(const Parts& parts)
      : parts_(parts), next_pid_(parts.index * 1'000'000 + 1) {}
  void SetEar(DaemonEar* ear) { ear_ = ear; }

  // RankHost.
  int32_t index() const override { return parts_.index; }
  void Tell(int64_t pid, News news) override;
  void End(int64_t pid, ExitStatus exit) override;

  // Starts a process of the rank. `fence`: when it ends at the latest.
  void Start(const RankRef& ref, const Assignment& assignment,
             std::optional<MonoTime> fence);
  // Each of them is for all processes of the rank.
  void Terminate(const RankRef& ref, Duration grace);
  void Abort(const RankRef& ref);
  void Go(const RankRef& ref);
  void Direct(const RankRef& ref, const Directive& directive);
  void Recover(const RankRef& ref, const Assignment& assignment);
  void Renew(const GangKey& gang, MonoTime fence);
  void OnValue(const GangKey& gang);

  // The next daemon: tells what it has missed.
  void Reconnect();
  const Process* Find(const RankRef& ref) const;
  const std::map<int64_t, Process>& processes() const { return processes_; }
  RankProgress ProgressOf(const RankRef& ref) const;

  bool powered() const { return powered_; }
  int boot() const { return boot_; }
  // All processes end, and what was not synced is lost.
  void LosePower();
  void Boot() { powered_ = true; }
  WallTime wall() const;
  void JumpClock(Duration by) { ahead_ += by; }
  Disk* disk() { return &disk_; }

 private:
  void Join(int64_t pid);
  // What the daemon says to the ranks.
  std::vector<int32_t> AwayToldBy(const Assignment& assignment) const;
  void ArmFence(int64_t pid);
  void ForEach(const RankRef& ref, const std::function<void(int64_t)>& what);

  const Parts parts_;
  DaemonEar* ear_ = nullptr;
  Disk disk_;
  bool powered_ = true;
  int boot_ = 1;
  Duration ahead_{};
  // No two of the cluster are equal.
  int64_t next_pid_;
  std::map<int64_t, Process> processes_;
};

ExitStatus KilledBySignal(int32_t signal, std::string message);

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_HOST_H_
