#include "worker/collective/hierarchical/linked_abort.h"

#include <string>

namespace lockstep::worker::collective::hierarchical {

void LinkedAbort::Attach(Communicator* within, Communicator* between) {
  {
    MutexLock lock(&mu_);
    within_ = within;
    between_ = between;
    if (first_.ok()) return;
    ending_ = true;
  }
  End(within, between);
}

void LinkedAbort::Detach() {
  MutexLock lock(&mu_);
  // As long as an Abort takes.
  while (ending_) ended_.Wait(&mu_);
  within_ = nullptr;
  between_ = nullptr;
}

void LinkedAbort::Break(From from, const Status& reason) {
  Communicator* within = nullptr;
  Communicator* between = nullptr;
  {
    MutexLock lock(&mu_);
    if (!first_.ok()) return;
    first_ = reason;
    from_ = from;
    if (within_ == nullptr && between_ == nullptr) return;
    within = within_;
    between = between_;
    ending_ = true;
  }
  End(within, between);
}

void LinkedAbort::End(Communicator* within, Communicator* between) {
  From from;
  std::string why;
  {
    MutexLock lock(&mu_);
    from = from_;
    why = Message(first_);
  }
  // One that broke by itself has ended, but for what its peers had done
  // before. That between the hosts may only have been found broken.
  if (between != nullptr) between->Abort(why);
  if (within != nullptr && from != From::kWithin) within->Abort(why);
  MutexLock lock(&mu_);
  ending_ = false;
  ended_.NotifyAll();
}

Status LinkedAbort::first() const {
  MutexLock lock(&mu_);
  return first_;
}

}  // namespace lockstep::worker::collective::hierarchical
