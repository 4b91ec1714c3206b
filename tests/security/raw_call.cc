#include "tests/security/raw_call.h"

#include <grpcpp/generic/generic_stub.h>
#include <unistd.h>

#include <fstream>

#include "common/pki/authorisation.h"
#include "common/rpc/status_conversion.h"

namespace lockstep {
namespace {

grpc::ByteBuffer Buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// One operation at a time, so that its end is the next event.
bool Next(grpc::CompletionQueue* queue) {
  void* tag = nullptr;
  bool ok = false;
  return queue->Next(&tag, &ok) && ok;
}

}  // namespace

bool RawAnswer::Admitted() const {
  if (responses > 0) return true;
  switch (status.code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kUnauthenticated:
    case StatusCode::kPermissionDenied:
      return false;
    default:
      return true;
  }
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

RawAnswer Call(const std::shared_ptr<grpc::Channel>& channel,
               const std::string& method,
               const std::vector<std::string>& requests, bool stop_early,
               Duration patience) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + patience);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, method, &queue);
  void* const tag = &queue;
  call->StartCall(tag);
  bool alive = Next(&queue);
  for (size_t i = 0; alive && i < requests.size(); ++i) {
    grpc::WriteOptions options;
    if (i + 1 == requests.size()) options.set_last_message();
    call->Write(Buffer(requests[i]), options, tag);
    alive = Next(&queue);
  }
  if (alive && requests.empty()) {
    call->WritesDone(tag);
    Next(&queue);
  }
  RawAnswer answer;
  grpc::ByteBuffer response;
  while (alive) {
    call->Read(&response, tag);
    alive = Next(&queue);
    if (!alive) break;
    ++answer.responses;
    std::vector<grpc::Slice> slices;
    response.Dump(&slices);
    for (const grpc::Slice& slice : slices) {
      answer.bytes.append(reinterpret_cast<const char*>(slice.begin()),
                          slice.size());
    }
    if (stop_early) context.TryCancel();
  }
  grpc::Status status;
  call->Finish(&status, tag);
  Next(&queue);
  answer.status = FromGrpc(status);
  queue.Shutdown();
  while (Next(&queue)) {
  }
  return answer;
}

std::string PathOf(const google::protobuf::MethodDescriptor& method) {
  return fmt::format("/{}/{}", method.service()->full_name(), method.name());
}

std::vector<const google::protobuf::MethodDescriptor*> AllMethods() {
  std::vector<const google::protobuf::MethodDescriptor*> methods;
  for (const auto* service : pki::LockstepServices()) {
    for (int i = 0; i < service->method_count(); ++i) {
      methods.push_back(service->method(i));
    }
  }
  return methods;
}

}  // namespace lockstep
