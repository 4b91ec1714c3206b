// A worker daemon as the coordinator knows it, without processes.
#ifndef LOCKSTEP_TESTS_SUPPORT_FAKE_DAEMON_H_
#define LOCKSTEP_TESTS_SUPPORT_FAKE_DAEMON_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "server/coordinator/coordinator.h"

namespace lockstep {

ExitStatus ExitCode(int32_t code);
ExitStatus KilledBy(int32_t signal);

// Follows proto/lockstep/v1/worker.proto: keeps gangs, moves them towards
// their goals in Pump, reports what changed. What it does by itself can be
// switched off. Thread-compatible, but for what the coordinator calls.
class FakeDaemon {
 public:
  struct Habits {
    bool prepares = true;
    bool starts = true;
    bool joins = true;
    // Native ranks wait for Go, work, and end only when told to.
    bool stops = true;
    // Told by a directive to save and stop, native ranks do.
    bool obeys = true;
    // It answers at once that evidence is captured.
    bool captures = true;
    // It confirms that its ranks end by themselves.
    bool fences = true;
  };
  struct Gang {
    Assignment assignment;
    GangStatus status;
    bool dirty = false;
  };
  using Key = std::pair<JobName, Generation>;

  FakeDaemon(NodeName node, Resources capacity, std::vector<Gpu> gpus = {});

  NodeInfo info;
  Habits habits;
  // How it answers PREPARE from now on.
  std::optional<Cause> refuses;
  // What it has; assignments that arrived in order, all of them.
  std::map<Key, Gang> gangs;
  std::vector<Assignment> assignments;
  std::vector<std::string> rendezvous;
  // What names of images stand for here; the settled content can be had.
  std::map<std::string, ImageContent> images;

  // Where it says that it can be reached, and whether it reaches others; of
  // whom it knows nothing it says nothing.
  int32_t probe_port = 0;
  std::map<NodeName, bool> reaches;
  // How long it has answered nothing to others.
  std::map<NodeName, Duration> quiet;
  std::vector<ProbeQuery> probes;

  // Asked of each message that is delivered, in both directions: true keeps it
  // back, or delivers it twice. What is kept back arrives later, behind newer
  // ones, and a report of an ended stream arrives with that stream's session.
  // Empty: a stream as gRPC has it.
  std::function<bool()> unlucky;
  // What the coordinator answered to reports of ended streams.
  std::vector<Status> stale_answers;

  // A new stream, with a full report.
  Status Connect(server::Coordinator* coordinator);
  // The stream ends; the daemon keeps everything.
  void Disconnect();
  // The coordinator has died, and with it the messages on their way to it.
  void LoseCoordinator();
  // The process is started again; without `adopt` its host was rebooted.
  void Restart(bool adopt);
  // Takes what arrived and answers; false: nothing happened.
  bool Pump();
  Status Beat();
  // Counts as `steps` committed by each rank of the gang, and tells.
  Status Progress(const JobName& job, Generation generation, int64_t steps);

  void Exit(const JobName& job, int32_t rank, ExitStatus exit);
  void Publish(const JobName& job, Generation generation, int64_t step);
  // The newest gang of the job; null: none.
  Gang* Find(const JobName& job);
  // Whether a rank of it is a live process.
  static bool Alive(const Gang& gang);
  bool connected() const { return coordinator_ != nullptr; }
  server::SessionId session() const { return session_; }
  server::Coordinator* coordinator() const { return coordinator_; }
  uint64_t acknowledged() const;
  // The names in the last list of neighbours.
  std::vector<NodeName> neighbours() const;
  // What it was asked to check since the last call, in this stream.
  std::vector<GpuCheckOrder> TakeGpuChecks();
  // What it was last told to fetch ahead; absent: nothing, in this stream.
  std::optional<Prefetch> prefetch() const;
  // Whether the node is this stream's.
  bool welcomed() const;
  // How the coordinator ended the stream; OK: it did not.
  Status closed() const;

 private:
  class Link;

  void Take(const Assignment& assignment);
  void Prepare(Gang* gang);
  std::vector<ImageContent> ImagesOf(const Gang& gang) const;
  void Stop(Gang* gang);
  static void RestartRanks(Gang* gang);
  bool Live(Gang* gang);
  void AnswerProbes();
  // Saves and ends as a directive says; false: none does.
  bool Obey(Gang* gang);
  Status Report(const Gang& gang);
  bool Unlucky() const { return unlucky && unlucky(); }
  // Each false: nothing happened.
  bool TakeAssignments();
  bool DeliverLateReports();

  std::shared_ptr<Link> link_;
  server::Coordinator* coordinator_ = nullptr;
  server::SessionId session_ = 0;
  uint64_t beats_ = 0;
  int32_t next_port_ = 20000;
  int64_t next_pid_ = 1000;
  // On their way.
  std::vector<Assignment> late_assignments_;
  struct LateReport {
    server::SessionId session;
    GangStatus status;
  };
  std::vector<LateReport> late_reports_;
};

// Pumps all until nothing happens.
void PumpAll(const std::vector<FakeDaemon*>& daemons);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SUPPORT_FAKE_DAEMON_H_
