#include "common/yaml/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

#include "common/model/names.h"

namespace lockstep {
namespace {

// Parses a document and discards it.
class NullHandler final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

std::string Place(const std::string& source, const YAML::Mark& mark) {
  return fmt::format("{}:{}:{}", source, mark.line + 1, mark.column + 1);
}

// Makes the user's text safe for a sentence.
std::string Shown(const std::string& text) {
  constexpr size_t kMost = 64;
  std::string out = "\"";
  for (const char c : text.substr(0, kMost)) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    out += control ? '?' : c;
  }
  return out + (text.size() > kMost ? "...\"" : "\"");
}

std::string Join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

// Finds a tab in the indentation of the line at `mark` or of an earlier one.
// yaml-cpp's error does not mention tabs.
std::optional<YAML::Mark> FindTab(const std::string& text,
                                  const YAML::Mark& mark) {
  // Inside brackets, as in JSON, a tab equals a blank.
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] == '{' || text[first] == '[') {
    return std::nullopt;
  }
  YAML::Mark at;
  for (size_t begin = 0; begin < text.size() && at.line <= mark.line;
       ++at.line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t word = std::min(text.find_first_not_of(" \t", begin), end);
    const size_t tab = text.find('\t', begin);
    if (tab < word && word < end) {
      at.column = static_cast<int>(tab - begin);
      return at;
    }
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace

YamlValue::YamlValue(YAML::Node node, std::string path, std::string source)
    : node_(std::move(node)),
      path_(std::move(path)),
      source_(std::move(source)) {}

Status YamlValue::Wrong(const std::string& sentence) const {
  return InvalidArgument("{}: {}{}{}", Place(source_, node_.Mark()), path_,
                         path_.empty() ? "" : ": ", sentence);
}

StatusOr<std::string> YamlValue::Text() const {
  if (!node_.IsScalar()) return Wrong("is a single value");
  return node_.Scalar();
}

StatusOr<bool> YamlValue::Bool() const {
  bool value = false;
  if (!node_.IsScalar() || !YAML::convert<bool>::decode(node_, value)) {
    return Wrong("must be true or false");
  }
  return value;
}

StatusOr<int64_t> YamlValue::Whole(int64_t low, int64_t high) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, Text());
  int64_t value = 0;
  if (!YAML::convert<int64_t>::decode(node_, value)) {
    return Wrong(Shown(text) + " is not a whole number");
  }
  if (value < low || value > high) {
    return Wrong(fmt::format("must be {}..{}, not {}", low, high, value));
  }
  return value;
}

StatusOr<double> YamlValue::Number() const {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, Text());
  double value = 0;
  if (!YAML::convert<double>::decode(node_, value) || !std::isfinite(value) ||
      value < 0) {
    return Wrong(Shown(text) + " is not a number of 0 or more");
  }
  return value;
}

StatusOr<std::vector<YamlValue>> YamlValue::List() const {
  if (!node_.IsSequence()) {
    return Wrong("must be a list: [a, b] or lines that begin with -");
  }
  std::vector<YamlValue> values;
  for (const YAML::Node& element : node_) {
    values.emplace_back(element, fmt::format("{}[{}]", path_, values.size()),
                        source_);
  }
  return values;
}

StatusOr<std::vector<std::pair<YamlValue, YamlValue>>> YamlValue::Map() const {
  if (!node_.IsMap()) return Wrong("must be \"name: value\" lines");
  std::vector<std::pair<YamlValue, YamlValue>> entries;
  std::set<std::string> seen;
  for (const auto& entry : node_) {
    const YamlValue key(entry.first, path_, source_);
    if (!entry.first.IsScalar())
      return key.Wrong("a field's name must be a text");
    const std::string name = entry.first.Scalar();
    if (!seen.insert(name).second) {
      return key.Wrong(Shown(name) + " is there twice");
    }
    entries.emplace_back(key,
                         YamlValue(entry.second, Join(path_, name), source_));
  }
  return entries;
}

// YAML::LoadAll is not used, because yaml-cpp 0.7 makes endless documents of a
// stray ",".
Status CheckOneDocument(const std::string& text, const std::string& source) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  NullHandler handler;
  int documents = 0;
  while (documents < 2 && parser.HandleNextDocument(handler)) ++documents;
  if (documents == 1) return OkStatus();
  return InvalidArgument(
      "{}: has {}; exactly one document is required", source,
      documents == 0 ? "nothing in it" : "2 documents or more");
}

StatusOr<YamlValue> LoadYaml(const std::string& text,
                             const std::string& source) {
  try {
    LOCKSTEP_RETURN_IF_ERROR(CheckOneDocument(text, source));
    return YamlValue(YAML::Load(text), "", source);
  } catch (const YAML::Exception& e) {
    if (const auto tab = FindTab(text, e.mark)) {
      return InvalidArgument("{}: a tab begins the line; indent YAML by blanks",
                             Place(source, *tab));
    }
    return InvalidArgument("{}: {}", Place(source, e.mark), e.msg);
  }
}

std::string DidYouMean(const std::string& name,
                       const std::vector<std::string>& known) {
  const std::string nearest = Nearest(name, known);
  if (!nearest.empty()) return "; did you mean " + nearest + "?";
  return fmt::format("; there are {}", fmt::join(known, ", "));
}

Status ReadFields(const YamlValue& map, const std::string& what,
                  const std::vector<YamlField>& fields,
                  const std::function<std::string(const std::string&)>& hint) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto entries, map.Map());
  for (const auto& [key, value] : entries) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, key.Text());
    const YamlField* found = nullptr;
    std::vector<std::string> known;
    for (const YamlField& field : fields) {
      if (field.name == name) found = &field;
      known.push_back(field.name);
    }
    if (found == nullptr) {
      const std::string more = hint ? hint(name) : "";
      return key.Wrong(
          fmt::format("{} has no field {}{}", what, Shown(name),
                      more.empty() ? DidYouMean(name, known) : "; " + more));
    }
    if (!value.IsNull()) LOCKSTEP_RETURN_IF_ERROR(found->read(value));
  }
  return OkStatus();
}

FieldReader Into(std::string* out) {
  return [out](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(*out, value.Text());
    return OkStatus();
  };
}

FieldReader Into(std::optional<bool>* out) {
  return [out](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(*out, value.Bool());
    return OkStatus();
  };
}

FieldReader Into(std::optional<int64_t>* out) {
  return [out](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(
        *out, value.Whole(0, std::numeric_limits<int32_t>::max()));
    return OkStatus();
  };
}

FieldReader Into(std::optional<double>* out) {
  return [out](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(*out, value.Number());
    return OkStatus();
  };
}

FieldReader Into(std::vector<std::string>* out) {
  return [out](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto elements, value.List());
    for (const YamlValue& element : elements) {
      LOCKSTEP_ASSIGN_OR_RETURN(std::string text, element.Text());
      out->push_back(std::move(text));
    }
    return OkStatus();
  };
}

FieldReader Into(std::map<std::string, std::string>* out) {
  return [out](const YamlValue& value) -> Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto entries, value.Map());
    for (const auto& [key, element] : entries) {
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, key.Text());
      std::string text;
      if (!element.IsNull()) {
        LOCKSTEP_ASSIGN_OR_RETURN(text, element.Text());
      }
      (*out)[name] = std::move(text);
    }
    return OkStatus();
  };
}

}  // namespace lockstep
