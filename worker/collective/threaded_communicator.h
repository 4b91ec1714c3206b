// A Communicator whose operations run, one after the other, on a thread of its
// own: for wires where an operation spends its time waiting.
//
// The backend gives a Transport, which moves the bytes of one operation. The
// queue, the deadlines, the first error and the abort are the same for all.
//
// Where the transport allows it, a caller that waits runs a queued operation
// itself if the thread has not begun it: that saves two changes of threads,
// which a small operation would feel.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_THREADED_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_THREADED_COMMUNICATOR_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/collective/broken.h"
#include "worker/collective/communicator.h"

namespace lockstep::worker::collective {

// A transport's own memory. Used by the thread of the communicator's user.
class TransportMemory {
 public:
  virtual ~TransportMemory() = default;
  virtual StatusOr<const Buffer*> Allocate(size_t bytes) = 0;
  virtual StatusOr<const Buffer*> Register(void* data, size_t bytes) = 0;
  virtual StatusOr<const Buffer*> AnyMemory() = 0;
  // Compares the pointer only: safe with any value.
  virtual bool Owns(const Buffer* buffer) const = 0;
};

// The operations that wait behind the one that runs. For the thread in Execute.
class OperationQueue {
 public:
  virtual ~OperationQueue() = default;
  // The next operation, if there is one by now.
  virtual std::optional<Operation> Next() = 0;
  // The transport begins with that operation already. Its slice is in use until
  // its own Execute has returned, also where all is aborted before. False: all
  // was aborted since Next, and the slice is the user's again.
  virtual bool BeginNext() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Before anything else. The queue lives as long as Execute may be called.
  virtual void SetQueue(OperationQueue*) {}

  virtual std::string_view name() const = 0;
  // Communicator::Plan.
  virtual std::string Plan() const { return ""; }
  // Communicator::ReductionPlan, Tune and FollowPlan. By one thread, while
  // nothing is executed. Errors of the last two are as of Execute, but
  // InvalidArgument: that leaves everything as it was.
  virtual std::string ReductionPlan() const { return ""; }
  virtual Status Tune(Duration, MonoTime) { return OkStatus(); }
  virtual Status FollowPlan(const std::string& plan, MonoTime deadline);
  // InvalidArgument when this transport cannot do `operation`, which passed
  // CheckOperation. Called by Start, before anything is sent.
  virtual Status Check(const Operation& operation) const = 0;
  // Communicator::HasAllToAll. Check does not see kAllToAll otherwise.
  virtual bool HasAllToAll() const { return false; }
  // Runs `operation` to its end. Called by one thread at a time: the progress
  // thread or, where AnyThreadMayExecute, a thread that waits. After an error
  // it is not called again. Unavailable: a peer is gone. DeadlineExceeded:
  // `deadline` passed; the text names the peer that it waited for. Execute must
  // return then, and after Cut, whatever a peer does: until it has, the slice
  // is in use, so Work::Wait and the end of a Work wait for it without a
  // deadline of their own. They cannot hang: `deadline` is at most the
  // operation's timeout away, and queued operations end with the first error.
  virtual Status Execute(const Operation& operation, MonoTime deadline) = 0;
  virtual bool AnyThreadMayExecute() const { return false; }
  // Whether a thread waits for the operation in Execute: then Execute may spin.
  // Quick; from any thread.
  virtual void SetAwaited(bool) {}
  // Makes Execute return, now and for ever, and lets the peers notice.
  // Quick; from any thread, also several at once.
  virtual void Cut() = 0;
  // Communicator::CurrentWait.
  virtual std::optional<PeerWait> CurrentWait() const { return std::nullopt; }
  // Peers that this rank itself finds out of reach now (lost_peers.h). Any
  // thread.
  virtual std::vector<int> LostPeers() const { return {}; }

  // The memory of slices. Null: host memory that the communicator allocates, or
  // that was registered with it.
  virtual TransportMemory* memory() { return nullptr; }
};

struct ThreadedCommunicatorOptions {
  int rank = 0;
  int size = 1;
  std::string label;
  Duration operation_timeout = std::chrono::seconds(30);
  // May be empty. Called after Transport::Cut.
  BrokenFunction broken = {};
  // CommunicatorOptions::addresses.
  AddressRange* addresses = nullptr;
};

// ResourceExhausted where the system gives no thread.
StatusOr<std::unique_ptr<Communicator>> MakeThreadedCommunicator(
    const ThreadedCommunicatorOptions& options,
    std::unique_ptr<Transport> transport);

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_THREADED_COMMUNICATOR_H_
