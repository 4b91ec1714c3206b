#include "server/service/request.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace lockstep {

std::string DeterministicBytes(const google::protobuf::Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

std::string OwnerName(const Identity& caller) {
  switch (caller.kind) {
    case Identity::Kind::kCoordinator:
      return "coordinator/" + caller.name;
    case Identity::Kind::kWorker:
      return "worker/" + caller.name;
    case Identity::Kind::kUser:
      return "user/" + caller.name;
    default:
      return caller.name;
  }
}

}  // namespace lockstep
