// A Communicator whose operations run, one after the other, on a thread of
// its own: for wires where an operation spends its time waiting.
//
// The backend gives a Transport, which moves the bytes of one operation; the
// queue, the deadlines, the first error and the abort are the same for all.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_THREADED_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_THREADED_COMMUNICATOR_H_

#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/collective/communicator.h"

namespace lockstep {

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  // InvalidArgument when this transport cannot do `operation`, which passed
  // CheckOperation. Called by Start, before anything is sent.
  virtual Status Check(const Operation& operation) const = 0;
  // Runs `operation` to its end. Called by the progress thread only. After an
  // error no more is executed. Unavailable: a peer is gone;
  // DeadlineExceeded: `deadline` passed.
  virtual Status Execute(const Operation& operation, MonoTime deadline) = 0;
  // Makes Execute return, now and for ever, and lets the peers notice.
  // Quick; from any thread, also several at once.
  virtual void Cut() = 0;
  // Whom Execute waits for: "waiting for rank 2"; may be empty. Any thread.
  virtual std::string Waiting() const = 0;
};

struct ThreadedCommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::string label;
  Duration operation_timeout = std::chrono::seconds(30);
};

std::unique_ptr<Communicator> MakeThreadedCommunicator(
    const ThreadedCommunicatorOptions& options,
    std::unique_ptr<Transport> transport);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_THREADED_COMMUNICATOR_H_
