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

namespace lockstep::cli {

enum class Output { kTable, kWide, kJson, kJsonl, kYaml, kCsv, kName };

// InvalidArgument lists the formats.
StatusOr<Output> ParseOutput(std::string_view text);

// Returns the protobuf JSON mapping with every field that has no presence, even
// if zero, so that programs find it. Ends with a newline.
std::string ToJson(const google::protobuf::Message& message);
// The same with only the fields that are set.
std::string ToSparseJson(const google::protobuf::Message& message);
// ToJson without blanks on one line.
std::string ToJsonLine(const google::protobuf::Message& message);
// Returns JSON on several lines or one. Ends with a newline.
std::string Dump(const nlohmann::ordered_json& value);
std::string DumpLine(const nlohmann::ordered_json& value);
// RFC 4180 with "\n" as line end.
std::string RenderCsv(const Table& table, bool headers);
// Selects the columns with these names (any case), in this order.
// InvalidArgument lists the columns if a name is unknown.
StatusOr<Table> SelectColumns(const Table& table,
                              const std::vector<std::string>& columns);
// The same values as YAML.
std::string ToYaml(const google::protobuf::Message& message);
// Converts JSON to YAML. REQUIRES: `json` is valid.
std::string JsonToYaml(std::string_view json);

}  // namespace lockstep::cli

#endif  // LOCKSTEP_CLIENT_CLI_OUTPUT_H_
