#include "client/cli/resource_format.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>

#include "client/cli/output.h"
#include "client/cli/text.h"
#include "common/model/names.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;
using Kind = ResourceFormat::Kind;

const std::vector<std::pair<std::string, Kind>>& Kinds() {
  static const auto& kinds = *new std::vector<std::pair<std::string, Kind>>{
      {"json", Kind::kJson},   {"yaml", Kind::kYaml},
      {"value", Kind::kValue}, {"csv", Kind::kCsv},
      {"table", Kind::kTable}, {"default", Kind::kDefault},
      {"none", Kind::kNone}};
  return kinds;
}

bool IsWordChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
}

class FormatParser {
 public:
  explicit FormatParser(std::string_view text) : text_(text) {}

  StatusOr<ResourceFormat> Parse() {
    LOCKSTEP_RETURN_IF_ERROR(ParseKind());
    if (Take('[')) LOCKSTEP_RETURN_IF_ERROR(ParseAttributes());
    if (Take('(')) LOCKSTEP_RETURN_IF_ERROR(ParseKeys());
    Skip();
    if (at_ < text_.size()) return Bad("nothing may follow here");
    const Kind kind = format_.kind;
    if (format_.keys.empty() &&
        (kind == Kind::kValue || kind == Kind::kCsv || kind == Kind::kTable)) {
      return Bad("give fields, as value(jobId,state)");
    }
    return std::move(format_);
  }

 private:
  Status Bad(std::string_view what) const {
    return InvalidArgument("--format, column {}: {}", at_ + 1, what);
  }
  void Skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool Take(char c) {
    Skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string Word() {
    Skip();
    const size_t begin = at_;
    while (at_ < text_.size() && IsWordChar(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  // Reads a word or a quoted text.
  StatusOr<std::string> Value() {
    Skip();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '"' && quote != '\'') return Word();
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return Bad("the quote is not closed");
    std::string value;
    for (size_t i = at_ + 1; i < end; ++i) {
      const bool escape = text_[i] == '\\' && i + 1 < end;
      if (escape) ++i;
      value += escape && text_[i] == 't'   ? '\t'
               : escape && text_[i] == 'n' ? '\n'
                                           : text_[i];
    }
    at_ = end + 1;
    return value;
  }

  Status ParseKind() {
    const std::string word = Word();
    for (const auto& [name, kind] : Kinds()) {
      if (name != word) continue;
      format_.kind = kind;
      return OkStatus();
    }
    return InvalidArgument(
        "--format: there is no \"{}\"; there are json, yaml, value(FIELDS), "
        "csv(FIELDS), table(FIELDS), default and none",
        Printable(word.empty() ? std::string(text_) : word));
  }

  Status ParseAttributes() {
    do {
      const std::string name = Word();
      std::string value;
      if (Take('=')) {
        LOCKSTEP_ASSIGN_OR_RETURN(value, Value());
      }
      if (name == "no-heading") {
        format_.heading = false;
      } else if (name == "box") {
        format_.box = true;
      } else if (name == "title") {
        format_.title = value;
      } else if (name == "separator") {
        format_.separator = value;
      } else {
        return Bad(fmt::format(
            "there is no attribute \"{}\"; there are no-heading, box, title "
            "and separator",
            Printable(name)));
      }
    } while (Take(','));
    return Take(']') ? OkStatus() : Bad("\"]\" is missing");
  }

  Status ParseKeys() {
    do {
      FormatKey& key = format_.keys.emplace_back();
      LOCKSTEP_RETURN_IF_ERROR(ParsePath(&key.path));
      while (Take(':')) {
        const std::string name = Word();
        if (name != "label") {
          return Bad(
              fmt::format("a field takes only :label=NAME, not "
                          ":{}",
                          Printable(name)));
        }
        if (!Take('=')) return Bad("\"=\" is missing");
        LOCKSTEP_ASSIGN_OR_RETURN(key.label, Value());
      }
    } while (Take(','));
    return Take(')') ? OkStatus() : Bad("\")\" is missing");
  }

  Status ParsePath(std::vector<std::string>* path) {
    do {
      const std::string part = Word();
      if (part.empty()) return Bad("a field is missing");
      path->push_back(part);
      if (at_ < text_.size() && text_[at_] == '(') {
        return Bad(fmt::format("there are no functions such as {}()", part));
      }
      while (at_ < text_.size() && text_[at_] == '[') {
        const size_t close = text_.find(']', at_);
        if (close == std::string_view::npos) return Bad("\"]\" is missing");
        const std::string_view index = text_.substr(at_ + 1, close - at_ - 1);
        if (index.find_first_not_of("0123456789") != std::string_view::npos) {
          return Bad("[] may contain a number or nothing");
        }
        if (!index.empty()) path->push_back(std::string(index));
        at_ = close + 1;
      }
    } while (at_ < text_.size() && text_[at_] == '.' && ++at_);
    return OkStatus();
  }

  const std::string_view text_;
  size_t at_ = 0;
  ResourceFormat format_;
};

// Returns the value at `path` from its part `at` on. Descends into lists.
ordered_json Find(const ordered_json& value,
                  const std::vector<std::string>& path, size_t at = 0) {
  if (at == path.size()) return value;
  if (value.is_object()) {
    const auto child = value.find(path[at]);
    return child == value.end() ? ordered_json() : Find(*child, path, at + 1);
  }
  if (!value.is_array()) return ordered_json();
  size_t index = 0;
  const auto [end, error] = std::from_chars(
      path[at].data(), path[at].data() + path[at].size(), index);
  if (error == std::errc() && end == path[at].data() + path[at].size()) {
    return index < value.size() ? Find(value[index], path, at + 1)
                                : ordered_json();
  }
  ordered_json all = ordered_json::array();
  for (const auto& child : value) {
    ordered_json found = Find(child, path, at);
    if (!found.is_null()) all.push_back(std::move(found));
  }
  return all;
}

std::string ValueText(const ordered_json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  std::string text;
  if (value.is_array()) {
    for (const auto& child : value) {
      text += (text.empty() ? "" : ";") + ValueText(child);
    }
    return text;
  }
  if (value.is_object()) {
    for (const auto& [key, child] : value.items()) {
      text += (text.empty() ? "" : ";") + key + "=" + ValueText(child);
    }
    return text;
  }
  return value.dump();
}

// "jobId" is JOB_ID.
std::string LabelOf(const FormatKey& key) {
  if (!key.label.empty()) return key.label;
  // A number alone is not a useful label.
  std::string name = key.path.back();
  for (auto it = key.path.rbegin(); it != key.path.rend(); ++it) {
    if (!std::isdigit(static_cast<unsigned char>((*it)[0]))) {
      name = *it;
      break;
    }
  }
  std::string label;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    const bool begins_word =
        i > 0 && std::isupper(c) &&
        std::islower(static_cast<unsigned char>(name[i - 1]));
    if (begins_word) label += '_';
    label += static_cast<char>(std::toupper(c));
  }
  return label;
}

Table TableOf(const std::vector<ordered_json>& all,
              const std::vector<FormatKey>& keys) {
  Table table;
  for (const FormatKey& key : keys) table.header.push_back(LabelOf(key));
  for (const ordered_json& resource : all) {
    std::vector<std::string>& row = table.rows.emplace_back();
    for (const FormatKey& key : keys) {
      row.push_back(FieldText(resource, key.path));
    }
  }
  return table;
}

// Returns the fields of `keys` at their paths, or all without keys.
ordered_json Project(const ordered_json& resource,
                     const std::vector<FormatKey>& keys) {
  if (keys.empty()) return resource;
  ordered_json out = ordered_json::object();
  for (const FormatKey& key : keys) {
    const ordered_json value = Find(resource, key.path);
    if (value.is_null()) continue;
    ordered_json* place = &out;
    for (const std::string& part : key.path) {
      if (!place->is_object()) *place = ordered_json::object();
      place = &(*place)[part];
    }
    *place = value;
  }
  return out;
}

std::string RenderJson(const std::vector<ordered_json>& all, bool is_list,
                       const ResourceFormat& format) {
  if (!is_list) return Dump(Project(all.at(0), format.keys));
  ordered_json list = ordered_json::array();
  for (const ordered_json& each : all) {
    list.push_back(Project(each, format.keys));
  }
  return Dump(list);
}

std::string RenderYaml(const std::vector<ordered_json>& all,
                       const ResourceFormat& format) {
  std::string text;
  for (const ordered_json& each : all) {
    if (!text.empty()) text += "---\n";
    text += JsonToYaml(DumpLine(Project(each, format.keys)));
  }
  return text;
}

std::string RenderValues(const Table& table, const ResourceFormat& format) {
  const std::string separator =
      format.separator.empty() ? "\t" : format.separator;
  std::string text;
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += (i > 0 ? separator : "") + row[i];
    }
    text += "\n";
  }
  return text;
}

// "|  a | b |" between lines of "+---+", the title in a line of its own.
std::string RenderBox(const Table& table, const std::string& title,
                      bool heading) {
  std::vector<size_t> widths;
  for (const std::string& name : table.header) {
    widths.push_back(heading ? VisibleWidth(name) : 0);
  }
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], VisibleWidth(row[i]));
    }
  }
  std::string rule = "+";
  for (const size_t width : widths) rule += std::string(width + 2, '-') + "+";
  // A wider title widens the last column.
  if (rule.size() < VisibleWidth(title) + 4) {
    const size_t more = VisibleWidth(title) + 4 - rule.size();
    widths.back() += more;
    rule.insert(rule.size() - 1, more, '-');
  }
  const auto line = [&](const std::vector<std::string>& row) {
    std::string text = "|";
    for (size_t i = 0; i < row.size(); ++i) {
      text += " " + PadRight(row[i], widths[i]) + " |";
    }
    return text + "\n";
  };
  std::string text;
  if (!title.empty()) {
    const size_t room = rule.size() - 2;
    const size_t left = (room - VisibleWidth(title)) / 2;
    text += "+" + std::string(room, '-') + "+\n|" +
            PadRight(std::string(left, ' ') + title, room) + "|\n";
  }
  text += rule + "\n";
  if (heading) text += line(table.header) + rule + "\n";
  for (const auto& row : table.rows) text += line(row);
  return text + rule + "\n";
}

std::string RenderColumns(const Table& table, const ResourceFormat& format) {
  // Values may hold any characters.
  Table clean = table;
  for (auto& row : clean.rows) {
    for (std::string& cell : row) cell = Printable(cell);
  }
  if (!format.box) {
    const std::string title = format.title.empty() ? "" : format.title + "\n";
    return title + RenderTable(clean, format.heading);
  }
  return RenderBox(clean, format.title, format.heading);
}

std::string Lowered(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

// Returns -1, 0 or 1. A missing value is greater.
int Compare(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) {
    return a.empty() == b.empty() ? 0 : a.empty() ? 1 : -1;
  }
  double x = 0;
  double y = 0;
  const auto number = [](const std::string& text, double* value) {
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), *value);
    return error == std::errc() && end == text.data() + text.size();
  };
  if (number(a, &x) && number(b, &y)) return x < y ? -1 : x > y ? 1 : 0;
  return a < b ? -1 : a > b ? 1 : 0;
}

}  // namespace

StatusOr<ResourceFormat> ParseResourceFormat(std::string_view text) {
  return FormatParser(text).Parse();
}

StatusOr<std::vector<SortKey>> ParseSortKeys(std::string_view text) {
  std::vector<SortKey> keys;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view part = text.substr(begin, end - begin);
    while (part.starts_with(" ")) part.remove_prefix(1);
    SortKey& key = keys.emplace_back();
    key.descending = part.starts_with("~");
    if (key.descending) part.remove_prefix(1);
    // Has the form of a list with one field.
    const auto parsed = ParseResourceFormat(fmt::format("value({})", part));
    if (!parsed.ok() || parsed->keys.size() != 1) {
      return InvalidArgument(
          "--sort-by: \"{}\" is not a field such as createTime, or ~createTime "
          "for the newest first",
          Printable(part));
    }
    key.path = parsed->keys[0].path;
    begin = end + 1;
  }
  return keys;
}

std::vector<size_t> SortOrder(const std::vector<ordered_json>& all,
                              const std::vector<SortKey>& keys) {
  std::vector<std::vector<std::string>> values(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    for (const SortKey& key : keys) {
      values[i].push_back(FieldText(all[i], key.path));
    }
  }
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    for (size_t k = 0; k < keys.size(); ++k) {
      const int less = Compare(values[a][k], values[b][k]);
      if (less == 0) continue;
      // Missing values stay last.
      const bool both = !values[a][k].empty() && !values[b][k].empty();
      return keys[k].descending && both ? less > 0 : less < 0;
    }
    return false;
  });
  return order;
}

std::string FieldText(const ordered_json& resource,
                      const std::vector<std::string>& path) {
  return ValueText(Find(resource, path));
}

std::string RenderResources(const std::vector<ordered_json>& all, bool is_list,
                            const ResourceFormat& format) {
  switch (format.kind) {
    case Kind::kJson:
      return RenderJson(all, is_list, format);
    case Kind::kYaml:
      return RenderYaml(all, format);
    case Kind::kValue:
      return RenderValues(TableOf(all, format.keys), format);
    case Kind::kCsv: {
      Table table = TableOf(all, format.keys);
      for (std::string& name : table.header) name = Lowered(name);
      return RenderCsv(table, format.heading);
    }
    case Kind::kTable:
      return RenderColumns(TableOf(all, format.keys), format);
    case Kind::kDefault:
    case Kind::kNone:
      break;
  }
  return "";
}

}  // namespace lockstep::cli
