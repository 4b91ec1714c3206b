#include "worker/task/shim_messages.h"

#include "worker/task/bytes.h"
#include "worker/task/record_fields.h"

namespace lockstep::worker::task {
namespace {
constexpr std::string_view kRequestMagic = "LSSHREQ\n";
constexpr std::string_view kReplyMagic = "LSSHREP\n";
constexpr uint32_t kMessageVersion = 1;
constexpr size_t kMaxMessageText = 8192;
constexpr size_t kMaxExitRecord = 32 << 10;
constexpr int kMaxSignal = 64;
constexpr size_t kMaxSessionStrings = 512;

template <typename F, typename Request>
void RequestFieldsOf(F& f, Request& request) {
  f.Enum(request.kind, ShimRequest::Kind::kSession);
  f(request.id);
  f(request.nonce, 64);
  f(request.signo);
  f(request.whole_tree);
  f(request.grace_nanos);
  // Older shims do not know the field: only those with a fence are sent it.
  if (request.kind == ShimRequest::Kind::kFence) f(request.fence_nanos);
  if (request.kind != ShimRequest::Kind::kSession) return;
  f(request.argv, kMaxSessionStrings, kMaxShimMessage);
  f(request.env, kMaxSessionStrings, kMaxShimMessage);
  f(request.terminal);
  f(request.in_container);
}

// `record` is the exit record in its envelope; empty: there is none.
template <typename F, typename Reply, typename Bytes>
void ReplyFieldsOf(F& f, Reply& reply, Bytes& record) {
  f.Enum(reply.kind, ShimReply::Kind::kRefused);
  f(reply.id);
  f.Text(reply.error, kMaxMessageText);
  f.Enum(reply.phase, ShimReply::Phase::kExited);
  f.Pid(reply.shim.pid);
  f(reply.shim.start_time);
  f.Pid(reply.process.pid);
  f(reply.process.start_time);
  f(record, kMaxExitRecord);
  f(reply.durable);
}

}  // namespace

std::string EncodeShimRequest(const ShimRequest& request) {
  RecordWriter writer;
  RequestFieldsOf(writer, request);
  return Seal(kRequestMagic, kMessageVersion, writer.Take());
}

bool DecodeShimRequest(std::string_view bytes, ShimRequest* request,
                       std::string* error) {
  std::string_view payload;
  if (!Unseal("the request to the shim", kRequestMagic, kMessageVersion, bytes,
              &payload, error)) {
    return false;
  }
  RecordReader reader(payload);
  RequestFieldsOf(reader, *request);
  const bool has_program = !request->argv.empty() && !request->argv[0].empty();
  if (!reader.Complete() || request->signo < 0 || request->signo > kMaxSignal ||
      (request->kind == ShimRequest::Kind::kSession && !has_program)) {
    *error = "the request to the shim has a field out of range";
    return false;
  }
  return true;
}

std::string EncodeShimReply(const ShimReply& reply) {
  const std::string record = reply.phase == ShimReply::Phase::kExited
                                 ? EncodeExitRecord(reply.exit_record)
                                 : std::string();
  RecordWriter writer;
  ReplyFieldsOf(writer, reply, record);
  return Seal(kReplyMagic, kMessageVersion, writer.Take());
}

bool DecodeShimReply(std::string_view bytes, ShimReply* reply,
                     std::string* error) {
  std::string_view payload;
  if (!Unseal("the answer of the shim", kReplyMagic, kMessageVersion, bytes,
              &payload, error)) {
    return false;
  }
  std::string record;
  RecordReader reader(payload);
  ReplyFieldsOf(reader, *reply, record);
  if (!reader.Complete()) {
    *error = "the answer of the shim has a field out of range";
    return false;
  }
  if (reply->phase != ShimReply::Phase::kExited) return true;
  return DecodeExitRecord(record, &reply->exit_record, error);
}

}  // namespace lockstep::worker::task
