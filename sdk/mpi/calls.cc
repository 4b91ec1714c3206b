// The functions of MPI that JAX calls, and the refusal of all others. Each
// returns MPI_SUCCESS, or a number by which MPI_Error_string gives the sentence
// of the calling thread's last error: JAX asks for it at once.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "sdk/mpi/abi.h"
#include "sdk/mpi/communicator.h"
#include "sdk/mpi/fail.h"
#include "sdk/mpi/types.h"
#include "sdk/mpi/world.h"

namespace lockstep::mpi {
namespace {

constexpr int kFailed = static_cast<int>(kERR_OTHER);

lockstep_error& LastError() {
  static thread_local lockstep_error error{};
  return error;
}

// A code of the C interface as a number of MPI.
int Returned(int32_t code) {
  return code == LOCKSTEP_OK ? int{kSUCCESS} : kFailed;
}

Handle ToHandle(Request* request) {
  return request == nullptr ? Handle{kREQUEST_NULL}
                            : reinterpret_cast<Handle>(request);
}

int Refuse(const char* name) {
  return Returned(Fail(&LastError(), LOCKSTEP_UNIMPLEMENTED,
                       "lockstep does not have %s: it has what JAX's "
                       "collectives call",
                       name));
}

// Null for MPI_COMM_WORLD, in which JAX starts no operation.
Communicator* ToCommunicator(Handle handle) {
  return handle == kCOMM_WORLD || handle == kCOMM_NULL
             ? nullptr
             : reinterpret_cast<Communicator*>(handle);
}

int32_t NoOperations(lockstep_error* error) {
  return Fail(error, LOCKSTEP_UNIMPLEMENTED,
              "lockstep starts operations in communicators of MPI_Comm_split "
              "only");
}

lockstep_operation Make(int32_t collective, const Type& type,
                        const lockstep_span* input,
                        const lockstep_span* output) {
  lockstep_operation operation{};
  operation.size = sizeof(operation);
  operation.collective = collective;
  operation.type = type.type;
  operation.input = input;
  operation.input_spans = input == nullptr ? 0 : 1;
  operation.output = output;
  operation.output_spans = output == nullptr ? 0 : 1;
  return operation;
}

lockstep_span ToSpan(const void* data, uint64_t count, const Type& type) {
  return {const_cast<void*>(data), count * type.parts};
}

// An all-reduce or a reduce-scatter.
int32_t Reduce(int32_t collective, lockstep_span input, lockstep_span output,
               const Type& type, Handle op, Communicator* communicator,
               lockstep_error* error) {
  if (communicator == nullptr) return NoOperations(error);
  int32_t reduce_op = 0;
  if (const int32_t code = ToReduceOp(op, type, &reduce_op, error)) return code;
  std::unique_ptr<std::byte[]> mapped;
  const bool order = NeedsOrder(type, reduce_op);
  if (order) {
    const uint64_t bytes = input.count * type.bytes;
    mapped = std::make_unique_for_overwrite<std::byte[]>(bytes);
    MapOrder(type, input.data, mapped.get(), bytes);
    input.data = mapped.get();
  }
  lockstep_operation operation = Make(collective, type, &input, &output);
  operation.op = reduce_op;
  const int32_t code = communicator->Run(operation, error);
  if (code == LOCKSTEP_OK && order) {
    MapOrder(type, output.data, output.data, output.count * type.bytes);
  }
  return code;
}

struct Message {
  int32_t collective = 0;
  const void* data = nullptr;
  int count = 0;
  Handle type = 0;
  int peer = 0;
  int tag = 0;
};

int32_t StartMessage(const Message& message, Communicator* communicator,
                     Request** request, lockstep_error* error) {
  if (communicator == nullptr) return NoOperations(error);
  Type type;
  if (const int32_t code = ToType(message.type, &type, error)) return code;
  const lockstep_span span =
      ToSpan(message.data, static_cast<uint64_t>(message.count), type);
  const bool sends = message.collective == LOCKSTEP_SEND;
  lockstep_operation operation =
      Make(message.collective, type, sends ? &span : nullptr,
           sends ? nullptr : &span);
  operation.root = message.peer;
  operation.tag = static_cast<uint32_t>(message.tag);
  return communicator->Start(operation, request, error);
}

void SetStatus(Status* status, int source, int tag) {
  if (status == nullptr ||
      reinterpret_cast<Handle>(status) == Handle{kSTATUS_IGNORE}) {
    return;
  }
  *status = {
      .of_the_library = {}, .source = source, .tag = tag, .error = kSUCCESS};
}

}  // namespace

LOCKSTEP_MPI_EXPORT int MPIABI_Init(int*, char***) {
  World::Get().Init();
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Init_thread(int*, char***, int, int* provided) {
  *provided = kTHREAD_MULTIPLE;
  World::Get().Init();
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Initialized(int* flag) {
  *flag = World::Get().initialized() ? 1 : 0;
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Finalize() {
  World::Get().Finalize();
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Finalized(int* flag) {
  *flag = World::Get().finalized() ? 1 : 0;
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Query_thread(int* provided) {
  *provided = kTHREAD_MULTIPLE;
  return kSUCCESS;
}

// JAX makes communicators on the thread for which this is true. Here any may.
LOCKSTEP_MPI_EXPORT int MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Get_version(int* version, int* subversion) {
  *version = 3;
  *subversion = 1;
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Get_library_version(char* text, int* bytes) {
  *bytes = std::snprintf(text, kMaxLibraryVersion, "lockstep %s",
                         lockstep_version());
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Error_string(int, char* text, int* bytes) {
  *bytes = std::min(
      std::snprintf(text, kMaxErrorString, "lockstep: %s", LastError().message),
      static_cast<int>(kMaxErrorString) - 1);
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Comm_rank(Handle handle, int* rank) {
  Communicator* communicator = ToCommunicator(handle);
  *rank = communicator == nullptr ? World::Get().rank() : communicator->rank();
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Comm_size(Handle handle, int* size) {
  Communicator* communicator = ToCommunicator(handle);
  *size = communicator == nullptr ? World::Get().size() : communicator->size();
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Comm_split(Handle from, int color, int key,
                                          Handle* made) {
  *made = kCOMM_NULL;
  if (from != kCOMM_WORLD) return Refuse("MPI_Comm_split of a part");
  auto communicator = World::Get().Split(color, key);
  if (communicator != nullptr) {
    *made =
        reinterpret_cast<Handle>(World::Get().Keep(std::move(communicator)));
  }
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Comm_free(Handle* handle) {
  Communicator* communicator = ToCommunicator(*handle);
  if (communicator != nullptr) World::Get().Free(communicator);
  *handle = kCOMM_NULL;
  return kSUCCESS;
}

LOCKSTEP_MPI_EXPORT int MPIABI_Allreduce(const void* input, void* output,
                                         int count, Handle handle, Handle op,
                                         Handle communicator) {
  lockstep_error* error = &LastError();
  Type type;
  if (const int32_t code = ToType(handle, &type, error)) return Returned(code);
  if (reinterpret_cast<Handle>(input) == Handle{kIN_PLACE}) input = output;
  const auto elements = static_cast<uint64_t>(count);
  return Returned(Reduce(LOCKSTEP_ALL_REDUCE, ToSpan(input, elements, type),
                         ToSpan(output, elements, type), type, op,
                         ToCommunicator(communicator), error));
}

LOCKSTEP_MPI_EXPORT int MPIABI_Reduce_scatter(const void* input, void* output,
                                              const int* counts, Handle handle,
                                              Handle op, Handle of) {
  lockstep_error* error = &LastError();
  Type type;
  if (const int32_t code = ToType(handle, &type, error)) return Returned(code);
  Communicator* communicator = ToCommunicator(of);
  if (communicator == nullptr) return Returned(NoOperations(error));
  const int size = communicator->size();
  if (std::any_of(counts, counts + size,
                  [&](int count) { return count != counts[0]; })) {
    return Refuse("MPI_Reduce_scatter of parts that differ in size");
  }
  const auto part = static_cast<uint64_t>(counts[0]);
  return Returned(
      Reduce(LOCKSTEP_REDUCE_SCATTER,
             ToSpan(input, part * static_cast<uint64_t>(size), type),
             ToSpan(output, part, type), type, op, communicator, error));
}

LOCKSTEP_MPI_EXPORT int MPIABI_Allgather(const void* input, int count,
                                         Handle handle, void* output, int,
                                         Handle, Handle of) {
  lockstep_error* error = &LastError();
  Type type;
  if (const int32_t code = ToType(handle, &type, error)) return Returned(code);
  Communicator* communicator = ToCommunicator(of);
  if (communicator == nullptr) return Returned(NoOperations(error));
  const auto part = static_cast<uint64_t>(count);
  const lockstep_span own = ToSpan(input, part, type);
  const lockstep_span all =
      ToSpan(output, part * static_cast<uint64_t>(communicator->size()), type);
  return Returned(
      communicator->Run(Make(LOCKSTEP_ALL_GATHER, type, &own, &all), error));
}

LOCKSTEP_MPI_EXPORT int MPIABI_Isend(const void* data, int count, Handle type,
                                     int to, int tag, Handle communicator,
                                     Handle* request) {
  Request* made = nullptr;
  const int32_t code =
      StartMessage({LOCKSTEP_SEND, data, count, type, to, tag},
                   ToCommunicator(communicator), &made, &LastError());
  *request = ToHandle(made);
  return Returned(code);
}

LOCKSTEP_MPI_EXPORT int MPIABI_Irecv(void* data, int count, Handle type,
                                     int from, int tag, Handle communicator,
                                     Handle* request) {
  Request* made = nullptr;
  const int32_t code =
      StartMessage({LOCKSTEP_RECV, data, count, type, from, tag},
                   ToCommunicator(communicator), &made, &LastError());
  *request = ToHandle(made);
  return Returned(code);
}

LOCKSTEP_MPI_EXPORT int MPIABI_Wait(Handle* handle, Status* status) {
  SetStatus(status, kANY_SOURCE, kANY_TAG);
  if (*handle == kREQUEST_NULL) return kSUCCESS;
  auto* request = reinterpret_cast<Request*>(*handle);
  *handle = kREQUEST_NULL;
  return Returned(request->communicator->Wait(request, &LastError()));
}

LOCKSTEP_MPI_EXPORT int MPIABI_Sendrecv(const void* sent, int sent_count,
                                        Handle sent_type, int to, int sent_tag,
                                        void* received, int received_count,
                                        Handle received_type, int from,
                                        int received_tag, Handle of,
                                        Status* status) {
  lockstep_error* error = &LastError();
  Communicator* communicator = ToCommunicator(of);
  Request* receive = nullptr;
  Request* send = nullptr;
  int32_t code = StartMessage({LOCKSTEP_RECV, received, received_count,
                               received_type, from, received_tag},
                              communicator, &receive, error);
  if (code != LOCKSTEP_OK) return Returned(code);
  code =
      StartMessage({LOCKSTEP_SEND, sent, sent_count, sent_type, to, sent_tag},
                   communicator, &send, error);
  if (code == LOCKSTEP_OK) code = communicator->Wait(send, error);
  // The first error is the one to tell.
  lockstep_error second{};
  const int32_t other = communicator->Wait(receive, &second);
  if (code == LOCKSTEP_OK && other != LOCKSTEP_OK) *error = second;
  SetStatus(status, from, received_tag);
  return Returned(code == LOCKSTEP_OK ? other : code);
}

// What JAX does not call.
#define REFUSED(prefix, name)                    \
  LOCKSTEP_MPI_EXPORT int prefix##ABI_##name() { \
    return Refuse(#prefix "_" #name);            \
  }
#include "sdk/mpi/refused.inc"
#undef REFUSED

}  // namespace lockstep::mpi
