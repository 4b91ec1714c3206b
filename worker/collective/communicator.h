// The collectives of one generation: the training loop reduces with a
// Communicator.
//
// A Communicator belongs to one generation and is immutable: its rank, size and
// peers never change. When a peer is lost it is aborted and thrown away, and a
// new one is formed for generation g+1.
//
// Memory: the communicator allocates every buffer that it reduces, in host,
// shared or device memory, as the backend needs it. Trainers keep their
// gradients in it, so that no copy is made on the way out. Buffers live as long
// as the communicator and are only freed with it; Keep and AllocateAgain give
// the next one the same memory. For memory that comes and goes, AnyMemory
// stands for all memory of the caller.
//
// Threads: one thread starts and waits (the training loop); every rank starts
// the same operations in the same order. Only Abort() and CurrentWait() may be
// called from any thread. Before the destructor runs, all Work must be gone and
// neither of them may run.
//
// Errors: after the first one the communicator is broken, and every later call
// returns it. kAborted: Abort() was called (the text is its reason).
// kUnavailable: a peer is gone. kDeadlineExceeded: the deadline passed.
// kInvalidArgument: this rank's own mistake (range, type); it sent no message.
#ifndef LOCKSTEP_WORKER_COLLECTIVE_COMMUNICATOR_H_
#define LOCKSTEP_WORKER_COLLECTIVE_COMMUNICATOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace lockstep::worker::collective {

enum class DataType : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBfloat16,
  kInt32,
  kInt64,
  kUint8,
  kInt8,
  kInt16,
};
// Bytes of one element.
size_t SizeOf(DataType type);
std::string_view Name(DataType type);
inline bool IsFloat(DataType type) { return type <= DataType::kBfloat16; }
// Of the floats: those that are accumulated in float32.
inline bool Is16Bit(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kBfloat16;
}

// kMean is the sum divided by size(), for floats only.
enum class ReduceOp : uint8_t { kSum, kMin, kMax, kMean, kProduct };
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
  // Part r of rank q becomes part q of rank r. Not in place, and not of the
  // slice: Operation::sends and receives.
  kAllToAll,
};
std::string_view Name(CollectiveKind kind);

// The part of an operation that is the same on all ranks, as words to send and
// compare: see WordsOf (operation.h).
struct OperationWords {
  uint64_t what = 0;  // 0: no operation
  uint64_t count = 0;

  bool operator==(const OperationWords&) const = default;
};

// Memory of one rank that goes to another one, or is filled by it. `data` is
// aligned to the type; it is not looked at where `count` is 0.
struct PeerPart {
  void* data = nullptr;
  size_t count = 0;  // elements
};

// For kReduceScatter and kAllGather the slice is cut in size() equal parts;
// count must divide by size().
struct Operation {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Slice slice = {};
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  // The operation that this one is a stage of. A backend that is made of other
  // backends sets it, and so do callers that make operations of others; the
  // ranks compare it as they compare kind, type and count.
  OperationWords part_of = {};
  // For kAllToAll, each with one part per rank: what goes to it and what comes
  // from it. Both are borrowed until the operation's Work is gone, as is the
  // memory, of which no parts overlap but those that are sent. The ranks have
  // agreed on the counts before: sends[r] of rank q has as many elements as
  // receives[q] of rank r. The slice is of AnyMemory's buffer and names the
  // type; its count, the same on all ranks, is the largest number of elements
  // that a rank sends to all others together, or more.
  std::span<const PeerPart> sends = {};
  std::span<const PeerPart> receives = {};
};

// The CUDA stream on which the operation is ordered, for device memory; null
// for host memory.
using Stream = void*;

// After this many operation_timeouts a stream that an operation follows counts
// as stuck (Internal). The stream's work is this rank's own; peers that wait
// for the operation give up long before.
inline constexpr int kStreamPatience = 12;

// How an operation makes progress. kInline: in the caller's Start, Poll and
// Wait; between these calls it stands still. kThread: in a thread of the
// communicator. kStream: on the device.
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
  // operation on as far as possible without waiting for a peer.
  virtual bool Poll() = 0;
  // After Wait: when the operation ran. That may be long after Start: an
  // operation runs behind those started before it and, on a device, once the
  // stream that it follows has come so far. Time in which it waits for peers
  // counts. No value: the time is not known, for instance where progress is
  // kInline.
  struct Span {
    MonoTime began;
    MonoTime ended;
  };
  virtual std::optional<Span> ran() const { return std::nullopt; }
};

// The wait of a rank in its operations.
struct PeerWait {
  bool waiting = false;
  int rank = -1;  // the peer; -1: not known, or it does not wait
  // The number of waits that it has begun: while nothing changes, this wait
  // goes on.
  uint64_t waits = 0;

  bool operator==(const PeerWait&) const = default;
};
// "rank 2", "its peers"; empty where it does not wait.
std::string DescribePeer(const PeerWait& wait);

// Work on memory of AllocateOnDevice that only the device can do. Threads and
// errors are those of the communicator, which owns it.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Sets the slice to zero in turn with what else is on `stream`, which is not
  // null, and returns at once.
  virtual Status Clear(const Slice& slice, Stream stream) = 0;
  // Adds the float32 elements of `from` to those of `to`, which are as many and
  // apart, in turn with what else is on `stream`, which is not null, and
  // returns at once.
  virtual Status Add(const Slice& to, const Slice& from, Stream stream) = 0;
  // Starts adding up the squares of the float32 elements of `slice`, in float64
  // and in an order that depends on their number alone, once `stream` has come
  // as far as it has been given so far (null: at once). The sum goes to
  // `result`, one float64 in memory of Allocate; it is finite exactly where all
  // elements are finite. It runs in parallel with operations that were started
  // before; operations that are started later come after it. A late sum is this
  // rank's own fault: Internal. FailedPrecondition, as for Clear, while
  // `stream` is being captured into a graph.
  virtual StatusOr<std::unique_ptr<Work>> StartSumOfSquares(const Slice& slice,
                                                            const Slice& result,
                                                            Stream stream) = 0;
  // Copies `bytes` from the device to memory of Allocate, and the other way, in
  // turn with what else is on `stream`, which is not null, and waits for it.
  // The device's memory may be the caller's own. Internal: the stream does not
  // come so far within kStreamPatience operation_timeouts or, after an abort,
  // abort_timeout. The device may then still use both memories; that of
  // Allocate outlives it. FailedPrecondition, as for Clear, while `stream` is
  // being captured. A broken communicator returns its error.
  virtual Status CopyToHost(void* host, const void* device, size_t bytes,
                            Stream stream) = 0;
  virtual Status CopyToDevice(void* device, const void* host, size_t bytes,
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
  // Describes in one line for people how it reduces: "shm: each of 2 ranks
  // reduces its half in place". Empty: the backend has no choice.
  virtual std::string Plan() const { return ""; }
  // Returns the reduction plan as one line of text, which begins with the
  // backend's name. It holds everything, except the buckets, that the order of
  // the sums depends on, and is the same on all ranks.
  // CommunicatorOptions::reduction_plan takes it. Empty: the backend has no
  // choice. For the thread that starts and waits, as Tune.
  virtual std::string ReductionPlan() const { return ""; }
  // Collective: all ranks call it while no other operation is under way.
  // Measures what the plan depends on, for about `budget`. Rank 0 decides for
  // all, and every rank goes on with the new plan. Returns at once where the
  // plan was given or the backend has no choice. Errors are those of an
  // operation.
  virtual Status Tune(Duration budget, MonoTime deadline);
  // The same without measuring: every rank goes on with `plan`, which is the
  // same line on all ranks. Tune changes the plan no more. InvalidArgument as
  // for CommunicatorOptions::reduction_plan.
  virtual Status FollowPlan(const std::string& plan, MonoTime deadline);
  // Returns zeroed memory of at least `bytes` that the host reads and writes. A
  // backend that reduces on a device copies it there and back by itself.
  // ResourceExhausted: the system has no memory left.
  virtual StatusOr<const Buffer*> Allocate(size_t bytes) = 0;

  // The same in the memory of the backend's device, for models that compute
  // there. The host cannot touch it. InvalidArgument: the backend has no
  // device.
  virtual StatusOr<const Buffer*> AllocateOnDevice(size_t bytes);
  // Null: the backend has no device.
  virtual DeviceMemory* device_memory() { return nullptr; }

  // The caller will ask for the memory of `buffer`, of Allocate or
  // AllocateOnDevice, in the next communicator with the same
  // CommunicatorOptions::addresses. There it calls AllocateAgain with a copy of
  // the Buffer. That returns a buffer at the same address, and keeps it, too.
  // Memory of the host is zero then, that of the device as it was left.
  // FailedPrecondition: the memory is elsewhere, so old views are of no use.
  virtual void Keep(const Buffer* /*buffer*/) {}
  virtual StatusOr<const Buffer*> AllocateAgain(const Buffer& before);

  // Registers the caller's memory at `data` as a buffer. It must live,
  // unchanged in place, until the communicator is destroyed. It is slower than
  // memory of Allocate: it is copied once more, or read by peers from outside.
  // Unimplemented: the backend cannot do it.
  virtual StatusOr<const Buffer*> Register(void* data, size_t bytes);

  // Returns one buffer that stands for all host memory of the caller, always
  // the same; AnySlice makes slices of it. A slice's memory must stay until the
  // Work of its operation is gone, no longer; nothing outside of it is touched.
  // It is as quick as memory of Register. Unimplemented: the backend cannot do
  // it.
  virtual StatusOr<const Buffer*> AnyMemory();

  // Whether it runs kAllToAll, each part of which then goes to its rank only;
  // the same on all ranks. Start returns Unimplemented otherwise. nccl does
  // not, nor tcp where not all ranks are connected with each other (mesh_ranks
  // of tcp/plan.h), nor hierarchical where not all hosts are.
  virtual bool HasAllToAll() const { return false; }

  // Starts `operation`; the slice must not be touched until its Wait returned.
  virtual StatusOr<std::unique_ptr<Work>> Start(const Operation& operation,
                                                Stream stream = nullptr) = 0;

  // Start and Wait in one, for callers that have no other work meanwhile. Where
  // a thread makes progress, the operation may then run in the caller's thread,
  // without a change of threads.
  virtual Status RunNow(const Operation& operation, MonoTime deadline);

  // The rank's wait at this moment: quick, and safe from any thread. By these
  // waits the coordinator finds the rank that is stuck in an operation.
  // No value: the backend does not tell.
  virtual std::optional<PeerWait> CurrentWait() const { return std::nullopt; }

  // Ends every operation that runs or will ever be started with kAborted and
  // `reason`, within 50 ms, also operations that wait for a frozen peer. Safe
  // from any thread, any number of times; the first reason stays. On a device
  // it takes as long as the device needs to stop, at most
  // CommunicatorOptions::abort_timeout.
  virtual void Abort(std::string_view reason) = 0;
};

// The error of AllocateAgain.
Status MemoryElsewhere();

// RunNow with a timeout.
Status Run(Communicator* communicator, const Operation& operation,
           Duration timeout);

// The buffer that AnyMemory returns: all addresses from the first multiple of
// 64 on.
Buffer AnyHostMemory();
// The `count` elements at `data` as a slice of `any`, a buffer of AnyMemory.
// `data` is aligned to `type`; it is not looked at where `count` is 0.
Slice AnySlice(const Buffer* any, const void* data, size_t count,
               DataType type);

class AddressRange;

// The key-value store through which the ranks of a generation find each other
// while they form. The runtime implements it over the control plane; tests over
// a map.
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
  // The longest time of a single operation, for callers that give no nearer
  // deadline.
  Duration operation_timeout = std::chrono::seconds(30);
  MonoTime forming_deadline;
  // The GPU of this rank, for backends that need one: its number among those
  // that this process sees. -1: the rank has none.
  int device = -1;
  // How long a device may take to stop after an abort or an error. A process
  // whose device does not stop can only be killed: waits return then, and
  // memory is not freed.
  Duration abort_timeout = std::chrono::seconds(10);
  // The generation's secret key, known to its ranks only: over shm and tcp,
  // ranks prove to each other that they have it before they exchange anything.
  // Empty: ranks prove nothing (tests).
  std::string key;
  // Ranks with the same text are on one host and can share memory. Empty: the
  // factory finds it out (boot id, network namespace, user).
  std::string host;
  // Borrowed; must outlive forming only.
  RendezvousStore* rendezvous = nullptr;
  // The line of ReductionPlan of an earlier generation of the same shape. It
  // replaces the defaults and the measuring. Rank 0's plan counts for all
  // ranks; InvalidArgument on a rank that has another one. A plan that does not
  // fit these ranks (another backend, size or grouping) is refused on all ranks
  // with InvalidArgument that names both, and kReasonPlanRefused
  // (factory/backend_choice.h): the caller decides whether to drop it. Empty:
  // none.
  std::string reduction_plan;
  // Borrowed, where not null. Memory of Allocate lies in the range, from its
  // beginning, so generations that allocate the same get the same addresses
  // (address_range.h). One communicator at a time. nccl, which can choose no
  // addresses, hands what is kept from one communicator to the next.
  AddressRange* addresses = nullptr;
  // True ends the forming with Aborted. nccl looks at it, which waits for peers
  // outside of the store. Null: never.
  std::shared_ptr<const std::atomic<bool>> cancelled;
  // The directory of the backends that are modules. Empty:
  // $LOCKSTEP_MODULE_DIR, or ../lib/lockstep, relative to the running program.
  std::string module_dir;
};

}  // namespace lockstep::worker::collective

#endif  // LOCKSTEP_WORKER_COLLECTIVE_COMMUNICATOR_H_
