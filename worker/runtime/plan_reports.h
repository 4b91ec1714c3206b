// Reports of the chief to the job about how the ranks reduce.
#ifndef LOCKSTEP_WORKER_RUNTIME_PLAN_REPORTS_H_
#define LOCKSTEP_WORKER_RUNTIME_PLAN_REPORTS_H_

#include <string>

#include "worker/collective/communicator.h"

namespace lockstep::worker::runtime {

// Keeps what is to be reported, and what has been. Not thread-safe: the
// training loop's.
class PlanReports {
 public:
  // For FormCommunicator to write its choice to; empty with one rank.
  std::string* choice() { return &choice_; }
  // Communicator::Plan as it was when the communicator was formed.
  void Formed(const std::string& plan) { formed_plan_ = plan; }
  // The choice as a sentence, once a generation; empty afterwards. It names
  // what `communicator` (may be null) has chosen by measurement since it was
  // formed, and `buckets` where that is not empty.
  std::string TakeChoice(const collective::Communicator* communicator,
                         const std::string& buckets);

  // A new generation: its plan is reported again.
  void Forget() { reported_plan_.clear(); }
  // Whether the reduction plan `text` is to be reported: it is not empty, and
  // not what the daemon knows. Notes it as reported.
  bool Changes(const std::string& text);

 private:
  std::string choice_;
  std::string formed_plan_;
  std::string reported_plan_;
};

}  // namespace lockstep::worker::runtime

#endif  // LOCKSTEP_WORKER_RUNTIME_PLAN_REPORTS_H_
