// A node: a host, and the daemon on it with the real AgentCore. It does with
// the core's decisions what worker/agent does, on simulated processes.
#ifndef LOCKSTEP_TESTS_SIMULATION_NODE_H_
#define LOCKSTEP_TESTS_SIMULATION_NODE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/bug.h"
#include "tests/simulation/checker.h"
#include "tests/simulation/control.h"
#include "tests/simulation/host.h"
#include "tests/simulation/move.h"
#include "tests/simulation/network.h"
#include "tests/simulation/timeline.h"
#include "tests/simulation/training.h"
#include "worker/agent/core/agent_core.h"
#include "worker/agent/core/contacts.h"

namespace lockstep::simulation {

class Node final : public StreamEnd, public DaemonEar {
 public:
  // All are borrowed.
  struct Parts {
    Plan plan;
    Bug bug = Bug::kNone;
    int32_t index = 0;
    Timeline* time = nullptr;
    Story* story = nullptr;
    Checker* checker = nullptr;
    Control* control = nullptr;
    Network* network = nullptr;
    Training* training = nullptr;
    const std::vector<std::unique_ptr<Node>>* all = nullptr;
  };
  explicit Node(const Parts& parts);

  void Begin() { StartDaemon(); }

  // ---- Faults ----
  void CrashDaemon(Duration down);
  // In the action after `skip` others.
  void CrashInAction(int skip) { crash_in_ = skip; }
  void PauseDaemon(Duration time);
  void LosePower(Duration down);
  void RefuseNext() { refuses_ = true; }
  void Heal();

  Host* host() { return &host_; }
  // The daemon's; null while there is none.
  const worker::agent::AgentCore* core() const {
    return daemon_ == nullptr ? nullptr : &daemon_->core;
  }
  bool welcomed() const { return daemon_ != nullptr && daemon_->welcomed; }
  NodeName name() const { return NodeLabel(parts_.index); }

  // StreamEnd.
  void OnWelcome(uint64_t stream, const StorePoint& coordinator) override;
  void OnOrder(uint64_t stream, const Assignment& order) override;
  void OnValue(uint64_t stream, const JobName& job, Generation generation,
               const std::string& key, const std::string& value) override;
  void OnBeatAnswered(uint64_t stream, uint64_t sequence) override;
  void OnProbeQuery(uint64_t stream, const ProbeQuery& query) override;
  void OnNeighbours(uint64_t stream, const NeighbourList& list) override;
  void OnStreamClosed(uint64_t stream, const Status& status) override;

  // DaemonEar.
  void OnNews(const RankHost::News& news) override;
  void OnProcessEnded(const RankRef& ref, const EndedRank& ended) override;
  void OnProcessWaits(int64_t pid) override;
  void OnProcessPuts(const RankRef& ref) override;
  bool listens() const override { return daemon_ != nullptr && !dying_; }

 private:
  // Gone when its process is.
  struct Daemon {
    explicit Daemon(worker::agent::AgentOptions options)
        : core(std::move(options)) {}
    worker::agent::AgentCore core;
    worker::agent::Contacts contacts;
    uint64_t stream = 0;
    bool open = false;
    bool welcomed = false;
    uint64_t sequence = 0;
    uint64_t answered = 0;
    std::map<uint64_t, MonoTime> beats;
    // Since when each beat was answered in time.
    MonoTime well_since{};
    std::set<GangKey> gets;
    std::set<GangKey> puts;
    std::map<GangKey, MonoTime> renewed;
    MonoTime listens_since{};
    // By neighbour: the last answer to it.
    std::map<int32_t, MonoTime> answers;
    std::optional<MonoTime> timer;
  };
  using CoreEvent =
      std::function<void(worker::agent::AgentCore*, worker::agent::Actions*)>;

  // Does it then, if the same daemon is there, and not while it stands still.
  void Later(Duration delay, std::function<void()> what);
  // How long the daemon still stands still; nullopt: it does not.
  std::optional<Duration> StandsFor() const;
  void StartDaemon();
  void Adopt();
  void CheckAdopted();
  void AdoptRank(const KeptGang& kept, const RankStatus& status);
  void Connect();
  void Beat();
  void LookAround();
  void CheckWaiters();
  void Tell(const CoreEvent& event);
  void Execute(const worker::agent::Actions& actions);
  bool Do(const worker::agent::Action& action);
  void Prepare(const GangKey& key);
  void StartRank(const RankRef& ref);
  void SetTimer();
  void Save(const GangKey& key);
  GangStatus StatusOf(const worker::agent::LocalGang& gang) const;
  void Report(const GangKey& key);
  void Contact(bool coordinator, MonoTime sent);
  void AskNeighbours();
  void SendGet(const GangKey& key);
  void SendPut(const GangKey& key);

  const Parts parts_;
  Host host_;
  std::unique_ptr<Daemon> daemon_;
  // Rises with each daemon.
  uint64_t life_ = 0;
  bool dying_ = false;
  MonoTime awake_{};
  std::optional<int> crash_in_;
  bool refuses_ = false;
  bool healed_ = false;
  int32_t next_port_ = 20000;
};

}  // namespace lockstep::simulation

#endif  // LOCKSTEP_TESTS_SIMULATION_NODE_H_
