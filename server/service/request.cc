#include "server/service/request.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "common/model/names.h"

namespace lockstep::server {

std::string DeterministicBytes(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

std::string OwnerName(const pki::Identity& caller) {
  switch (caller.kind) {
    case pki::Identity::Kind::kCoordinator:
      return "coordinator/" + caller.name;
    case pki::Identity::Kind::kWorker:
      return "worker/" + caller.name;
    case pki::Identity::Kind::kUser:
      return "user/" + caller.name;
    default:
      return caller.name;
  }
}

Status CheckJobName(const std::string& name) {
  if (IsJobName(name)) return OkStatus();
  return InvalidArgument(
      "name: must be a job's name ([A-Za-z][A-Za-z0-9_-]{{0,62}})");
}

}  // namespace lockstep::server
