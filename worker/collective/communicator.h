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
#include <optional>
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

// kMean is the sum divided by size(), for floats only.
enum class ReduceOp : uint8_t { kSum, kMin, kMax, kMean };
std::string_view Name(ReduceOp op);

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

// What of an operation is the same on all ranks, in words to send and compare:
// WordsOf (operation.h).
struct OperationWords {
  uint64_t what = 0;  // 0: no operation
  uint64_t count = 0;

  bool operator==(const OperationWords&) const = default;
};

// For kReduceScatter and kAllGather the slice is cut in size() equal parts;
// count must divide by size().
struct Operation {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Slice slice = {};
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  // The operation that this one is a stage of: set by backends that are made of
  // others, which compare it like kind, type and count.
  OperationWords part_of = {};
};

// Where the operation is ordered: a CUDA stream for device memory, null for
// host memory.
using Stream = void*;

// A stream that an operation follows is taken to be stuck after so many
// operation_timeouts (Internal): what it works on is this rank's own, and peers
// that wait for it give up long before.
inline constexpr int kStreamPatience = 12;

// Who moves an operation on. kInline: the caller, in Start, Poll and Wait;
// where nobody calls, nothing happens. kThread: a thread of the communicator.
// kStream: the device.
enum class ProgressMode : uint8_t { kInline, kThread, kStream };

// One started operation. Destroying it before it ended waits for it or, when
// the communicator is broken, for the abort: nothing touches the slice later.
class Work {
 public:
  virtual ~Work() = default;
  // Waits for the end. A deadline that passes breaks the communicator: its
  // peers may have finished.
  virtual Status Wait(MonoTime deadline) = 0;
  // True once Wait would return at once. Where progress is kInline, moves the
  // operation on as far as it goes without waiting for a peer.
  virtual bool Poll() = 0;
  // After Wait: when it ran, which may be long after Start: behind what was
  // started before, and on a device once the stream that it follows has come so
  // far. To wait in it for peers is to run. Nothing: not known, as where
  // progress is kInline.
  struct Span {
    MonoTime began;
    MonoTime ended;
  };
  virtual std::optional<Span> ran() const { return std::nullopt; }
};

// What only the device can do to its memory (AllocateOnDevice). Threads and
// errors as of the communicator, to which it belongs.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Sets the slice to zero in turn with what else is on `stream`, which is not
  // null, and returns at once.
  virtual Status Clear(const Slice& slice, Stream stream) = 0;
  // Starts adding up the squares of the float32 elements of `slice`, in
  // float64 and in an order that depends on their number alone, once `stream`
  // has come as far as it has been given so far (null: at once). The sum, which
  // is finite exactly where all elements are, goes to `result`: one float64 in
  // memory of Allocate. Runs beside operations that were started before;
  // those started later come after it. One that is late is this rank's own
  // fault: Internal. FailedPrecondition, as of Clear, while `stream` is being
  // captured into a graph.
  virtual StatusOr<std::unique_ptr<Work>> StartSumOfSquares(const Slice& slice,
                                                            const Slice& result,
                                                            Stream stream) = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "self", "shm", "tcp", "hierarchical", "nccl".
  virtual std::string_view backend() const = 0;
  virtual ProgressMode progress() const { return ProgressMode::kThread; }
  // How it reduces what, in one line for people: "shm: each of 2 ranks reduces
  // its half in place". Empty: nothing was chosen.
  virtual std::string Plan() const { return ""; }
  // The reduction plan as one line of text, which begins with the backend's
  // name: all that the order of the sums depends on beside the buckets, the
  // same on all ranks. CommunicatorOptions::reduction_plan takes it. Empty:
  // nothing can be chosen. By the thread that starts and waits, as Tune.
  virtual std::string ReductionPlan() const { return ""; }
  // Collective: all ranks call it, with no other operation under way. Measures
  // what the plan depends on, for about `budget`; rank 0 decides for all, and
  // every rank goes on with the new plan. Where the plan was given, or nothing
  // can be chosen, it returns at once. Errors as of an operation.
  virtual Status Tune(Duration budget, MonoTime deadline);
  // The same without measuring: every rank goes on with `plan`, the same line
  // on all, and Tune changes nothing more. InvalidArgument as of
  // CommunicatorOptions::reduction_plan.
  virtual Status FollowPlan(const std::string& plan, MonoTime deadline);
  // Zeroed memory of at least `bytes` that the host reads and writes
  // (ResourceExhausted when there is none). A backend that reduces on a device
  // copies it there and back by itself.
  virtual StatusOr<const Buffer*> Allocate(size_t bytes) = 0;

  // The same in the memory of the backend's device: for models that compute
  // there. The host cannot touch it. InvalidArgument where there is no device.
  virtual StatusOr<const Buffer*> AllocateOnDevice(size_t bytes);
  // Null where there is no device.
  virtual DeviceMemory* device_memory() { return nullptr; }

  // Memory of the caller's, at `data`, as a buffer: it must live, unchanged in
  // place, until the communicator goes. Slower than Allocate's: it is copied
  // once more or read by peers from outside. Unimplemented where the backend
  // cannot.
  virtual StatusOr<const Buffer*> Register(void* data, size_t bytes);

  // Starts `operation`; the slice must not be touched until its Wait returned.
  virtual StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                                Stream stream = nullptr) = 0;

  // Start and Wait in one, for those with nothing else to do meanwhile: where
  // a thread makes progress, it may then run in the caller's, without a change
  // of threads.
  virtual Status RunNow(const Operation& operation, MonoTime deadline);

  // Ends every operation that runs or will ever be started with kAborted and
  // `reason`, within 50 ms, also those that wait for a frozen peer. Safe from
  // any thread, any number of times; the first reason stays. On a device it
  // takes as long as the device needs to stop, at most
  // CommunicatorOptions::abort_timeout.
  virtual void Abort(std::string_view reason) = 0;
};

// RunNow with a timeout.
Status Run(Communicator* communicator, const Operation& operation,
           Duration timeout);

class AddressRange;

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
  // "auto", or a backend's name: "self", "shm" (all ranks on one host), "tcp",
  // "hierarchical" (shm in each host, tcp between them), "nccl".
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
  // The GPU of this rank, for backends that need one: its number among those
  // that this process sees. -1: the rank has none.
  int device = -1;
  // After an abort or an error, for the device to stop. A process whose device
  // does not can only be killed: waits return then, and memory is not freed.
  Duration abort_timeout = std::chrono::seconds(10);
  // Of this generation, known to its ranks only: shm and tcp prove it to each
  // other before they exchange anything. Empty: nothing is proven (tests).
  std::string key;
  // Where this rank's memory can be shared: ranks with the same text are on one
  // host. Empty: found out (boot id, network namespace, user).
  std::string host;
  // Borrowed; must outlive forming only.
  RendezvousStore* rendezvous = nullptr;
  // What ReductionPlan of an earlier generation of the same shape said: taken
  // instead of the defaults and of measuring. Rank 0's is all ranks'. One that
  // does not fit these ranks (another backend, size or grouping) is refused
  // with InvalidArgument on all ranks, naming both, with kReasonPlanRefused
  // (backend_choice.h): the caller decides whether to drop it. InvalidArgument
  // on a rank whose plan is not rank 0's.
  // Empty: none.
  std::string reduction_plan;
  // Borrowed, where not null: Allocate's memory lies in it, from its beginning,
  // so generations that allocate the same get the same addresses
  // (address_range.h). One communicator at a time. Backend shm, and within a
  // host hierarchical; the others ignore it.
  AddressRange* addresses = nullptr;
  // Where backends that are modules lie; empty: ../lib/lockstep beside the
  // running program, or $LOCKSTEP_MODULE_DIR.
  std::string module_dir;
};

}  // namespace lockstep

#endif  // LOCKSTEP_WORKER_COLLECTIVE_COMMUNICATOR_H_
