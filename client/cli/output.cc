#include "client/cli/output.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

// True for a text that YAML would read as another type. Emitter itself quotes
// text that would break the syntax.
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

// Quotes like gcloud. Control characters need double quotes.
void Quote(const std::string& text, YAML::Emitter* out) {
  const bool plain = std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  *out << (plain ? YAML::SingleQuoted : YAML::DoubleQuoted);
}

void Emit(const ordered_json& value, YAML::Emitter* out) {
  if (value.is_object()) {
    if (value.empty()) *out << YAML::Flow;
    *out << YAML::BeginMap;
    for (const auto& [key, child] : value.items()) {
      *out << YAML::Key;
      if (NeedsQuotes(key)) Quote(key, out);
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
    if (NeedsQuotes(text)) Quote(text, out);
    *out << text;
  } else {
    // Numbers, booleans and null are equal in both formats.
    *out << value.dump();
  }
}

std::string CsvQuoted(const std::string& cell) {
  std::string out = "\"";
  for (const char c : cell) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string Serialized(const google::protobuf::Message& message,
                       bool whitespace, bool all = true) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = whitespace;
  options.always_print_primitive_fields = all;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  // Fails only for times beyond year 9999; the text names them.
  if (!status.ok()) {
    return ordered_json({{"error", status.ToString()}}).dump() + "\n";
  }
  if (json.empty() || json.back() != '\n') json += '\n';
  return json;
}

}  // namespace

StatusOr<Output> ParseOutput(std::string_view text) {
  if (text == "table") return Output::kTable;
  if (text == "wide") return Output::kWide;
  if (text == "json") return Output::kJson;
  if (text == "jsonl") return Output::kJsonl;
  if (text == "csv") return Output::kCsv;
  if (text == "yaml") return Output::kYaml;
  if (text == "name") return Output::kName;
  return InvalidArgument(
      "\"{}\" is not an output format: there are table, wide, json, jsonl, "
      "yaml, "
      "csv and name",
      text);
}

std::string ToJson(const google::protobuf::Message& message) {
  return Serialized(message, true);
}

std::string ToSparseJson(const google::protobuf::Message& message) {
  return Serialized(message, true, false);
}

std::string ToJsonLine(const google::protobuf::Message& message) {
  return Serialized(message, false);
}

std::string Dump(const ordered_json& value) {
  return value.dump(2, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

std::string DumpLine(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

std::string RenderCsv(const Table& table, bool headers) {
  std::string out;
  const auto line = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < table.header.size(); ++i) {
      if (i > 0) out += ',';
      const std::string& cell = i < row.size() ? row[i] : "";
      out += cell.find_first_of(",\"\r\n") == std::string::npos
                 ? cell
                 : CsvQuoted(cell);
    }
    out += '\n';
  };
  if (headers) line(table.header);
  for (const auto& row : table.rows) line(row);
  return out;
}

StatusOr<Table> SelectColumns(const Table& table,
                              const std::vector<std::string>& columns) {
  if (columns.empty()) return table;
  Table selected;
  std::vector<size_t> indices;
  for (std::string name : columns) {
    for (char& c : name) c = static_cast<char>(std::toupper(c));
    const auto at = std::find(table.header.begin(), table.header.end(), name);
    if (at == table.header.end()) {
      std::string known;
      for (const std::string& column : table.header) {
        known += (known.empty() ? "" : ", ") + column;
      }
      return InvalidArgument("--columns: there is no {}; there are {}", name,
                             known);
    }
    indices.push_back(static_cast<size_t>(at - table.header.begin()));
    selected.header.push_back(name);
  }
  for (const auto& row : table.rows) {
    std::vector<std::string>& cells = selected.rows.emplace_back();
    for (const size_t index : indices) {
      cells.push_back(index < row.size() ? row[index] : "");
    }
  }
  return selected;
}

std::string JsonToYaml(std::string_view json) {
  YAML::Emitter out;
  Emit(ordered_json::parse(json), &out);
  return std::string(out.c_str()) + "\n";
}

std::string ToYaml(const google::protobuf::Message& message) {
  return JsonToYaml(ToJson(message));
}

}  // namespace lockstep::cli
