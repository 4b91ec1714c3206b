#include "client/cli/output.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

using nlohmann::ordered_json;

// A text that YAML would read as something else goes in quotes. Emitter itself
// quotes what would break the syntax.
bool NeedsQuotes(const std::string& text) {
  if (text.empty() || text[0] == ' ' || text.back() == ' ') return true;
  const std::string first = "0123456789+-.~";
  if (first.find(text[0]) != std::string::npos) return true;
  for (const char* word :
       {"true", "false", "null", "yes", "no",  "on",   "off",   "True", "False",
        "Null", "Yes",   "No",   "On",  "Off", "TRUE", "FALSE", "NULL", "YES",
        "NO",   "ON",    "OFF",  "y",   "n",   "Y",    "N"}) {
    if (text == word) return true;
  }
  return false;
}

void Emit(const ordered_json& value, YAML::Emitter* out) {
  if (value.is_object()) {
    if (value.empty()) *out << YAML::Flow;
    *out << YAML::BeginMap;
    for (const auto& [key, child] : value.items()) {
      *out << YAML::Key;
      if (NeedsQuotes(key)) *out << YAML::DoubleQuoted;
      *out << key << YAML::Value;
      Emit(child, out);
    }
    *out << YAML::EndMap;
  } else if (value.is_array()) {
    if (value.empty()) *out << YAML::Flow;
    *out << YAML::BeginSeq;
    for (const auto& child : value) Emit(child, out);
    *out << YAML::EndSeq;
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (NeedsQuotes(text)) *out << YAML::DoubleQuoted;
    *out << text;
  } else {
    // Numbers, booleans and null are written alike in both.
    *out << value.dump();
  }
}

}  // namespace

StatusOr<Output> ParseOutput(std::string_view text) {
  if (text == "table") return Output::kTable;
  if (text == "wide") return Output::kWide;
  if (text == "json") return Output::kJson;
  if (text == "yaml") return Output::kYaml;
  if (text == "name") return Output::kName;
  return InvalidArgument(
      "\"{}\" is no output format: there are table, wide, json, yaml and name",
      text);
}

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  // Fails only for times beyond year 9999, which the text then names.
  if (!status.ok()) {
    return ordered_json({{"error", status.ToString()}}).dump() + "\n";
  }
  if (json.empty() || json.back() != '\n') json += '\n';
  return json;
}

std::string JsonToYaml(std::string_view json) {
  YAML::Emitter out;
  Emit(ordered_json::parse(json), &out);
  return std::string(out.c_str()) + "\n";
}

std::string ToYaml(const google::protobuf::Message& message) {
  return JsonToYaml(ToJson(message));
}

}  // namespace lockstep
