// The collectives of one generation: what the training loop reduces with.
//
// A Communicator belongs to one generation and is immutable: its rank, size
// and peers never change. When a peer is lost it is aborted and thrown away,
// and a new one is formed for generation g+1.
//
// Memory: the communicator allocates every buffer that it reduces (host,
// shared or device memory, as the backend likes it); trainers keep their
// gradients in it, so that nothing is copied on the way out. Buffers live as
// long as the communicator and are only freed with it.
//
// Threads: one thread starts and waits (the training loop); every rank starts
// the same operations in the same order. Only Abort() may be called from any
// thread. The destructor needs that no Work is left and no Abort() runs.
//
// Errors: after the first one the communicator is broken; every later call
// returns it. kAborted: Abort() was called (the text is its reason).
// kUnavailable: a peer is gone. kDeadlineExceeded: the deadline passed.
// kInvalidArgument: this rank's own mistake (range, type); nothing was sent.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep {

enum class DataType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBfloat16,
  kInt32,
  kInt64,
  kUint8,
};
// Bytes of one element.
size_t SizeOf(DataType type);
std::string_view Name(DataType type);

enum class ReduceOp : uint8_t { kSum, kMin, kMax };

enum class MemoryKind : uint8_t { kHost, kShared, kDevice };

// Registered memory. `data` is aligned to 64 bytes at least.
struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;
  MemoryKind kind = MemoryKind::kHost;
  // The device for kDevice, else -1.
  int device = -1;
};

// `count` elements of `type` from element `offset` of `buffer`.
struct Slice {
  const Buffer* buffer = nullptr;
  size_t offset = 0;
  size_t count = 0;
  DataType type = DataType::kFloat32;
};

enum class CollectiveKind : uint8_t {
  kAllReduce,      // in place: every rank ends with the reduction
  kReduceScatter,  // in place: rank r ends with part r of the reduction
  kAllGather,      // in place: part r of every rank is rank r's part
  kBroadcast,      // in place: every rank ends with root's slice
  kBarrier,        // no slice
};
std::string_view Name(CollectiveKind kind);

// For kReduceScatter and kAllGather the slice is cut in size() equal parts;
// count must divide by size().
struct Operation {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Slice slice = {};
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
};

// Where the operation is ordered: a CUDA stream for device memory, null for
// host memory.
using Stream = void*;

// One started operation. Destroying it before it ended waits for it or, when
// the communicator is broken, for the abort: nothing touches the slice later.
class Work {
 public:
  virtual ~Work() = default;
  // Waits for the end. A deadline that passes breaks the communicator: its
  // peers may have finished.
  virtual Status Wait(MonoTime deadline) = 0;
  // True once Wait would return at once.
  virtual bool Poll() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "self", "gloo"; later "shm", "nccl".
  virtual std::string_view backend() const = 0;

  // Zeroed memory of at least `bytes` (ResourceExhausted when there is none).
  virtual StatusOr<const Buffer*> Allocate(size_t bytes) = 0;

  // Starts `operation`; the slice must not be touched until its Wait returned.
  virtual StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                                Stream stream = nullptr) = 0;

  // Ends every operation that runs or will ever be started with kAborted and
  // `reason`, within 50 ms, also those that wait for a frozen peer. Safe from
  // any thread, any number of times; the first reason stays.
  virtual void Abort(std::string_view reason) = 0;
};

// Start and Wait in one.
Status Run(Communicator* communicator, const Operation& operation,
           Duration timeout);

// Where ranks find each other while they form: a key-value store of the job's
// generation. The runtime implements it over the control plane; tests over a
// map.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  // A key is written once; keys <= 256 bytes, values <= 32 KiB.
  virtual Status Put(const std::string& key, std::string_view value) = 0;
  // Waits until another rank has put `key`. kDeadlineExceeded names the key.
  virtual StatusOr<std::string> Get(const std::string& key,
                                    MonoTime deadline) = 0;
};

struct CommunicatorOptions {
  // "auto", or a backend's name.
  std::string backend = "auto";
  int rank = 0;
  int size = 1;
  // Names the communicator in errors: "job mnist g3".
  std::string label;
  // The address of the data plane on this host; never 0.0.0.0.
  std::string bind_address = "127.0.0.1";
  // Backstop of a single operation, for those who give no nearer deadline.
  Duration operation_timeout = std::chrono::seconds(30);
  MonoTime forming_deadline;
  // Borrowed; must outlive forming only.
  RendezvousStore* rendezvous = nullptr;
  // Where backends that are modules lie; empty: ../lib/lockstep beside the
  // running program, or $LOCKSTEP_MODULE_DIR.
  std::string module_dir;
};

// Forms the communicator: the one factory. "auto" is "self" for one rank
// (nothing to talk to), else "gloo". Blocks until every peer is connected, at
// most for the deadline and, once all peers have come, 5 s for connecting.
// The process must ignore SIGPIPE.
// InvalidArgument: unknown backend, bad rank or address; NotFound: its module
// is not installed; FailedPrecondition: the module does not fit this program;
// DeadlineExceeded: names the ranks that have not come; Unavailable: a rank
// went away while forming (an ordinary event: form again as a new generation).
StatusOr<std::unique_ptr<Communicator>> FormCommunicator(
    const CommunicatorOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_COMMUNICATOR_H_
