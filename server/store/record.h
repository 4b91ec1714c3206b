// The bytes of a stored row (proto/lockstep/v1/store.proto), and the job as
// the API shows it, which is part of them.
#ifndef LOCKSTEP_SERVER_STORE_RECORD_H_
#define LOCKSTEP_SERVER_STORE_RECORD_H_

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "lockstep/v1/store.pb.h"
#include "server/store/store.h"

namespace lockstep {

// Decoders read without the limits of the API's input. DataLoss: the bytes are
// no record.
std::string EncodeJob(const Job& job);
StatusOr<Job> DecodeJob(std::string_view bytes);
std::string EncodeNode(const NodeRecord& node);
StatusOr<NodeRecord> DecodeNode(std::string_view bytes);
// A node as schema 1 stored it.
StatusOr<NodeRecord> DecodeNodeOfSchema1(std::string_view bytes);
std::string EncodeRequest(const AnsweredRequest& request);
StatusOr<AnsweredRequest> DecodeRequest(std::string_view bytes);

// What the store says of a job, without progress.
v1::Job ToProto(const Job& job);
// What the store says of a node: no state, message, readings or use.
v1::Node ToProto(const NodeRecord& node);

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_STORE_RECORD_H_
