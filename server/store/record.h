// The bytes of a stored node and request (proto/lockstep/v1/store.proto), and
// the node as the API shows it, which is part of them. job_record.h has those
// of jobs.
#ifndef LOCKSTEP_SERVER_STORE_RECORD_H_
#define LOCKSTEP_SERVER_STORE_RECORD_H_

#include <string>
#include <string_view>

#include "common/base/status.h"
#include "lockstep/v1/store.pb.h"
#include "server/store/store.h"

namespace lockstep::server {

// Decoders read without the limits of the API's input. DataLoss: the bytes are
// no record.
std::string EncodeNode(const NodeRecord& node);
StatusOr<NodeRecord> DecodeNode(std::string_view bytes);
// A node as schema 1 stored it.
StatusOr<NodeRecord> DecodeNodeOfSchema1(std::string_view bytes);
std::string EncodeRequest(const AnsweredRequest& request);
StatusOr<AnsweredRequest> DecodeRequest(std::string_view bytes);

// What the store says of a node: no state, message, readings or use.
v1::Node ToNodeMessage(const NodeRecord& node);

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_RECORD_H_
