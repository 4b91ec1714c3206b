#include "common/model/node.h"

namespace lockstep {

std::string_view Name(NodeState state) {
  switch (state) {
    case NodeState::kReady:
      return "READY";
    case NodeState::kUnknown:
      return "UNKNOWN";
    case NodeState::kLost:
      return "LOST";
    case NodeState::kDraining:
      return "DRAINING";
    case NodeState::kDrained:
      return "DRAINED";
    case NodeState::kQuarantined:
      return "QUARANTINED";
  }
  return "UNKNOWN";
}

std::string_view Name(Goal goal) {
  switch (goal) {
    case Goal::kPrepare:
      return "PREPARE";
    case Goal::kLaunch:
      return "LAUNCH";
    case Goal::kGo:
      return "GO";
    case Goal::kStop:
      return "STOP";
    case Goal::kForget:
      return "FORGET";
  }
  return "UNKNOWN";
}

std::string_view Name(GangPhase phase) {
  switch (phase) {
    case GangPhase::kPreparing:
      return "PREPARING";
    case GangPhase::kPrepared:
      return "PREPARED";
    case GangPhase::kRefused:
      return "REFUSED";
    case GangPhase::kLaunched:
      return "LAUNCHED";
    case GangPhase::kStopping:
      return "STOPPING";
    case GangPhase::kStopped:
      return "STOPPED";
  }
  return "UNKNOWN";
}

}  // namespace lockstep
