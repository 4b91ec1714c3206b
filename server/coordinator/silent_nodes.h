// Silent nodes with programs: when their jobs move (server/core/silence.h).
// Tells all nodes their neighbours, asks the neighbours of silent ones, and
// keeps what follows for each job. Thread-compatible; guarded by the
// coordinator's lock.
#ifndef LOCKSTEP_SERVER_COORDINATOR_SILENT_NODES_H_
#define LOCKSTEP_SERVER_COORDINATOR_SILENT_NODES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/probe.h"
#include "server/coordinator/cluster_state.h"
#include "server/coordinator/prober.h"
#include "server/core/silence.h"

namespace lockstep::server {

class SilentNodes {
 public:
  // All outlive this object. A node is silent after `lease`.
  SilentNodes(const SilenceOptions* options, Duration lease,
              ClusterState* state, Prober* prober)
      : options_(*options), lease_(lease), state_(state), prober_(prober) {}

  // Call it before nodes expire.
  void Update(Time now);
  // Records a node's answer about silent nodes.
  void TakeAnswer(const NodeName& node, const ProbeAnswer& answer, Time now);
  // An operator gave the node up.
  void Forget(const NodeName& node, MonoTime now);
  // The node registered.
  void NoteBack(const NodeName& node) { silent_.erase(node); }

  // Whether `node`, a silent one, counts as lost for the job, a program.
  bool IsLost(const JobName& job, const NodeName& node) const;
  // What is to be said of the job's silent nodes; nullopt: nothing.
  struct Word {
    Outlook::Kind kind;
    std::string text;
  };
  std::optional<Word> WordOf(const Job& job) const;
  // Whether there is a second host, which could have the programs of a silent
  // one.
  bool HasSeveralHosts() const;
  // A program with something there waits for an operator.
  bool NeedsOperator(const NodeName& node) const;

 private:
  struct Entry {
    Silence silence;
    Attestation attestation;
    // Of the programs with something there. kLost stays.
    std::map<JobName, Outlook> jobs;
  };

  void SendNeighbours(MonoTime now);
  void Look(const Member& silent, Entry* entry, Time now);
  void Ask(const Member& silent, Entry* entry, MonoTime now);
  // Those that the node may have in its list.
  std::set<NodeName> ToAsk(const Member& silent) const;
  std::vector<NodeName> SilentWith(const Member& silent) const;

  const SilenceOptions& options_;
  const Duration lease_;
  ClusterState* const state_;
  Prober* const prober_;
  std::map<NodeName, Entry> silent_;
  // The last sign of nodes that were given up.
  std::map<NodeName, MonoTime> given_up_;
  std::optional<MonoTime> next_lists_;
  // Those that are in lists.
  std::vector<Listed> listed_;
};

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_COORDINATOR_SILENT_NODES_H_
