#include "worker/task/shim_messages.h"

#include "worker/task/bytes.h"

namespace lockstep::task {
namespace {
constexpr std::string_view kRequestMagic = "LSSHREQ\n";
constexpr std::string_view kReplyMagic = "LSSHREP\n";
constexpr uint32_t kMessageVersion = 1;
constexpr size_t kMaxMessageText = 8192;
constexpr size_t kMaxExitRecord = 32 << 10;
constexpr int kMaxSignal = 64;
}  // namespace

std::string EncodeShimRequest(const ShimRequest& request) {
  ByteWriter w;
  w.U8(static_cast<uint8_t>(request.kind));
  w.U32(request.id);
  w.Str(request.nonce);
  w.I32(request.signo);
  w.Bool(request.whole_tree);
  w.I64(request.grace_nanos);
  return Seal(kRequestMagic, kMessageVersion, w.Take());
}

bool DecodeShimRequest(std::string_view bytes, ShimRequest* request,
                       std::string* error) {
  std::string_view payload;
  if (!Unseal("the request to the shim", kRequestMagic, kMessageVersion, bytes,
              &payload, error)) {
    return false;
  }
  ByteReader r(payload);
  const uint8_t kind = r.U8();
  request->kind = static_cast<ShimRequest::Kind>(kind);
  request->id = r.U32();
  request->nonce = r.Str(64);
  request->signo = r.I32();
  request->whole_tree = r.Bool();
  request->grace_nanos = r.I64();
  if (!r.AtEnd() || kind < 1 || kind > 5 || request->signo < 0 ||
      request->signo > kMaxSignal) {
    *error = "the request to the shim has a field out of range";
    return false;
  }
  return true;
}

std::string EncodeShimReply(const ShimReply& reply) {
  ByteWriter w;
  w.U8(static_cast<uint8_t>(reply.kind));
  w.U32(reply.id);
  w.Str(std::string_view(reply.error).substr(0, kMaxMessageText));
  w.U8(static_cast<uint8_t>(reply.phase));
  w.I32(reply.shim.pid);
  w.U64(reply.shim.start_time);
  w.I32(reply.process.pid);
  w.U64(reply.process.start_time);
  w.Str(reply.phase == ShimReply::Phase::kExited
            ? EncodeExitRecord(reply.exit_record)
            : std::string());
  w.Bool(reply.durable);
  return Seal(kReplyMagic, kMessageVersion, w.Take());
}

bool DecodeShimReply(std::string_view bytes, ShimReply* reply,
                     std::string* error) {
  std::string_view payload;
  if (!Unseal("the answer of the shim", kReplyMagic, kMessageVersion, bytes,
              &payload, error)) {
    return false;
  }
  ByteReader r(payload);
  const uint8_t kind = r.U8();
  reply->kind = static_cast<ShimReply::Kind>(kind);
  reply->id = r.U32();
  reply->error = r.Str(kMaxMessageText);
  const uint8_t phase = r.U8();
  reply->phase = static_cast<ShimReply::Phase>(phase);
  reply->shim.pid = r.I32();
  reply->shim.start_time = r.U64();
  reply->process.pid = r.I32();
  reply->process.start_time = r.U64();
  const std::string record = r.Str(kMaxExitRecord);
  reply->durable = r.Bool();
  if (!r.AtEnd() || kind < 1 || kind > 2 || phase < 1 || phase > 4 ||
      reply->shim.pid < 0 || reply->process.pid < 0) {
    *error = "the answer of the shim has a field out of range";
    return false;
  }
  if (reply->phase != ShimReply::Phase::kExited) return true;
  return DecodeExitRecord(record, &reply->exit_record, error);
}

}  // namespace lockstep::task
