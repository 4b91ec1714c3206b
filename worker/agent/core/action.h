// Decisions of AgentCore. Pure.
#ifndef LOCKSTEP_WORKER_AGENT_CORE_ACTION_H_
#define LOCKSTEP_WORKER_AGENT_CORE_ACTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/model/assignment.h"
#include "worker/agent/core/gang_key.h"

namespace lockstep::worker::agent {

struct Action {
  enum class Kind {
    // Check the host and lease ports: answer with OnPrepared or OnRefused.
    kPrepare,
    // The gang is ready otherwise: check the output directory's identity
    // against the spec. Answer with OnOutputChecked or OnRefused.
    kCheckOutput,
    // Answer with OnRankStarted and OnRankExited. For a rank with `restarts`
    // the previous process has ended.
    kStartRank,
    // To the rank, over its link.
    kGo,
    kAbort,
    kDirective,
    // The rank's Welcome, with the recovery of the assignment. Its process may
    // not run yet.
    kRecover,
    // Capture evidence of the gang's ranks and keep it: answer with OnCaptured.
    // With `evidence` 0 a rank has failed: without stacks, in milliseconds.
    kCapture,
    // SIGTERM to the rank's tree, SIGKILL after `grace` (0: at once).
    kKillTree,
    // Release the gang's ports and other resources.
    kRelease,
    // The status changed.
    kReport,
    // Remove its records and files: the core has forgotten the gang.
    kForget,
  };
  Kind kind = Kind::kReport;
  GangKey gang;
  int32_t rank = 0;
  Duration grace{};
  std::string message;    // kAbort.
  Directive directive;    // kDirective.
  uint32_t evidence = 0;  // kCapture: Assignment::evidence.

  bool operator==(const Action&) const = default;
};

// Makes an action on a gang, or on one of its ranks.
Action MakeAction(Action::Kind kind, const GangKey& key, int32_t rank = 0);

using Actions = std::vector<Action>;

}  // namespace lockstep::worker::agent

#endif  // LOCKSTEP_WORKER_AGENT_CORE_ACTION_H_
