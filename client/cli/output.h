// -o table|wide|json|yaml|name.
#ifndef LOCKSTEP_CLIENT_CLI_OUTPUT_H_
#define LOCKSTEP_CLIENT_CLI_OUTPUT_H_

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace google::protobuf {
class Message;
}

namespace lockstep {

enum class Output { kTable, kWide, kJson, kYaml, kName };

// InvalidArgument lists the five.
StatusOr<Output> ParseOutput(std::string_view text);

// The protobuf JSON mapping with every field that has no presence, zero or
// not, so that a program finds them; ends with a newline.
std::string ToJson(const google::protobuf::Message& message);
// The same values as YAML.
std::string ToYaml(const google::protobuf::Message& message);
// YAML of a JSON text. REQUIRES: it is JSON.
std::string JsonToYaml(std::string_view json);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_OUTPUT_H_
