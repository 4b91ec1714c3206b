// What the decoders and encoders of stored records share.
#ifndef LOCKSTEP_SERVER_STORE_RECORD_FIELDS_H_
#define LOCKSTEP_SERVER_STORE_RECORD_FIELDS_H_

#include <google/protobuf/io/coded_stream.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/wire/job_wire.h"
#include "common/wire/training_wire.h"
#include "common/wire/value_wire.h"
#include "common/wire/worker_wire.h"

namespace lockstep::server {

// proto3 repeated field <-> vector.
template <typename T, typename Repeated>
void PutList(const std::vector<T>& values, Repeated* out) {
  for (const T& value : values) *out->Add() = ToProto(value);
}
template <typename T, typename Repeated>
Status GetList(const Repeated& messages, std::vector<T>* out) {
  for (const auto& message : messages) {
    LOCKSTEP_ASSIGN_OR_RETURN(T value, FromProto(message));
    out->push_back(std::move(value));
  }
  return OkStatus();
}

// Adds the fields in `bytes` to those of `message`. DataLoss: `bytes` are no
// message.
template <typename Message>
Status Merge(std::string_view bytes, std::string_view what, Message* message) {
  google::protobuf::io::CodedInputStream in(
      reinterpret_cast<const uint8_t*>(bytes.data()),
      static_cast<int>(bytes.size()));
  if (message->MergeFromCodedStream(&in) && in.ConsumedEntireMessage()) {
    return OkStatus();
  }
  return DataLoss("a stored {} cannot be read", what);
}

// The name is the row's key: nothing without one was ever stored.
inline Status CheckNamed(const std::string& name, std::string_view what) {
  return name.empty() ? DataLoss("a stored {} has no name", what) : OkStatus();
}

// What was stored was valid once: if it is not now, the file is damaged.
inline Status AsDataLoss(const Status& status, std::string_view what) {
  return status.ok()
             ? status
             : DataLoss("a stored {} is damaged: {}", what, Message(status));
}

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_STORE_RECORD_FIELDS_H_
