// -o table|wide|json|jsonl|yaml|csv|name.
#ifndef LOCKSTEP_CLIENT_CLI_OUTPUT_H_
#define LOCKSTEP_CLIENT_CLI_OUTPUT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/text.h"
#include "common/base/status.h"

namespace google::protobuf {
class Message;
}

namespace lockstep {

enum class Output { kTable, kWide, kJson, kJsonl, kYaml, kCsv, kName };

// InvalidArgument lists them.
StatusOr<Output> ParseOutput(std::string_view text);

// The protobuf JSON mapping with every field that has no presence, zero or
// not, so that a program finds them; ends with a newline.
std::string ToJson(const google::protobuf::Message& message);
// The same with those fields only that were given.
std::string ToSparseJson(const google::protobuf::Message& message);
// As ToJson, without blanks, on one line.
std::string ToJsonLine(const google::protobuf::Message& message);
// JSON over several lines, or on one; ends with a newline.
std::string Dump(const nlohmann::ordered_json& value);
std::string DumpLine(const nlohmann::ordered_json& value);
// RFC 4180 with "\n" at line ends.
std::string RenderCsv(const Table& table, bool headers);
// The columns of these names (any case), in this order.
// InvalidArgument: there is none of that name; lists those there are.
StatusOr<Table> SelectColumns(const Table& table,
                              const std::vector<std::string>& columns);
// The same values as YAML.
std::string ToYaml(const google::protobuf::Message& message);
// YAML of a JSON text. REQUIRES: it is JSON.
std::string JsonToYaml(std::string_view json);

}  // namespace lockstep

#endif  // LOCKSTEP_CLIENT_CLI_OUTPUT_H_
