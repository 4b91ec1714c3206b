#include "client/cli/job_file.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "client/cli/parse.h"
#include "common/yaml/yaml_reader.h"

namespace lockstep {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;

std::string Upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

class Reader {
 public:
  explicit Reader(std::string source) : source_(std::move(source)) {}

  Status At(const YAML::Mark& mark, const std::string& text) const {
    return InvalidArgument("{}:{}:{}: {}", source_, mark.line + 1,
                           mark.column + 1, text);
  }

  Status ReadMessage(const YAML::Node& node,
                     google::protobuf::Message* message) const {
    const Descriptor* const type = message->GetDescriptor();
    if (!node.IsMap()) {
      return At(node.Mark(), fmt::format("{} is made of \"field: value\" lines",
                                         type->name()));
    }
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const YAML::Node key = entry.first;
      if (!key.IsScalar()) return At(key.Mark(), "a field's name is a text");
      const FieldDescriptor* const field = Find(type, key.Scalar());
      if (!field) {
        return At(
            key.Mark(),
            fmt::format("{} has no field {}{}", type->name(), key.Scalar(),
                        DidYouMean(key.Scalar(), Names(type))));
      }
      if (!seen.insert(field->name()).second) {
        return At(key.Mark(), fmt::format("{} is there twice", key.Scalar()));
      }
      // "field:" with nothing behind it.
      if (entry.second.IsNull()) continue;
      LOCKSTEP_RETURN_IF_ERROR(ReadField(entry.second, field, message));
    }
    return OkStatus();
  }

 private:
  static const FieldDescriptor* Find(const Descriptor* type,
                                     const std::string& name) {
    // As the flag and many other programs' files have it.
    if (name == "env") return type->FindFieldByName("environment");
    const FieldDescriptor* const field = type->FindFieldByName(name);
    return field ? field : type->FindFieldByCamelcaseName(name);
  }

  static std::vector<std::string> Names(const Descriptor* type) {
    std::vector<std::string> names;
    for (int i = 0; i < type->field_count(); ++i) {
      names.push_back(type->field(i)->json_name());
    }
    return names;
  }

  Status ReadField(const YAML::Node& node, const FieldDescriptor* field,
                   google::protobuf::Message* message) const {
    if (field->is_map()) return ReadMap(node, field, message);
    if (!field->is_repeated()) return ReadValue(node, field, message);
    if (!node.IsSequence()) {
      return At(node.Mark(),
                fmt::format("{} is a list: [a, b] or lines that begin with -",
                            field->json_name()));
    }
    for (const YAML::Node& element : node) {
      LOCKSTEP_RETURN_IF_ERROR(ReadValue(element, field, message));
    }
    return OkStatus();
  }

  // map<string, string>, which is all there is in a JobSpec.
  Status ReadMap(const YAML::Node& node, const FieldDescriptor* field,
                 google::protobuf::Message* message) const {
    if (!node.IsMap()) {
      return At(node.Mark(), fmt::format("{} is made of \"NAME: value\" lines",
                                         field->json_name()));
    }
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar() ||
          !(entry.second.IsScalar() || entry.second.IsNull())) {
        return At(entry.first.Mark(),
                  fmt::format("names and values of {} are texts",
                              field->json_name()));
      }
      if (!seen.insert(entry.first.Scalar()).second) {
        return At(entry.first.Mark(),
                  fmt::format("{} is there twice", entry.first.Scalar()));
      }
      google::protobuf::Message* const pair =
          message->GetReflection()->AddMessage(message, field);
      const Descriptor* const type = pair->GetDescriptor();
      const Reflection* const reflection = pair->GetReflection();
      reflection->SetString(pair, type->map_key(), entry.first.Scalar());
      reflection->SetString(
          pair, type->map_value(),
          entry.second.IsNull() ? std::string() : entry.second.Scalar());
    }
    return OkStatus();
  }

  Status ReadValue(const YAML::Node& node, const FieldDescriptor* field,
                   google::protobuf::Message* message) const {
    const Reflection* const reflection = message->GetReflection();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      google::protobuf::Message* const child =
          field->is_repeated() ? reflection->AddMessage(message, field)
                               : reflection->MutableMessage(message, field);
      if (child->GetDescriptor()->full_name() == "google.protobuf.Duration") {
        return ReadDuration(node, field, child);
      }
      return ReadMessage(node, child);
    }
    if (!node.IsScalar()) {
      return At(node.Mark(),
                fmt::format("{} is a single value", field->json_name()));
    }
    return ReadScalar(node, field, message);
  }

  Status ReadDuration(const YAML::Node& node, const FieldDescriptor* field,
                      google::protobuf::Message* child) const {
    const auto duration =
        ParseDuration(node.IsScalar() ? node.Scalar() : std::string("a list"));
    if (!duration.ok()) {
      return At(node.Mark(), fmt::format("{}: {}", field->json_name(),
                                         Message(duration.status())));
    }
    auto* const out = static_cast<google::protobuf::Duration*>(child);
    out->set_seconds(duration->count() / 1'000'000'000);
    out->set_nanos(static_cast<int32_t>(duration->count() % 1'000'000'000));
    return OkStatus();
  }

  Status ReadScalar(const YAML::Node& node, const FieldDescriptor* field,
                    google::protobuf::Message* message) const {
    const Reflection* const reflection = message->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        if (field->is_repeated()) {
          reflection->AddString(message, field, node.Scalar());
        } else {
          reflection->SetString(message, field, node.Scalar());
        }
        return OkStatus();
      case FieldDescriptor::CPPTYPE_ENUM:
        return ReadEnum(node, field, message);
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        double value = 0;
        if (!YAML::convert<double>::decode(node, value) ||
            !std::isfinite(value)) {
          return Wrong(node, field, "a number");
        }
        reflection->SetDouble(message, field, value);
        return OkStatus();
      }
      case FieldDescriptor::CPPTYPE_BOOL: {
        bool value = false;
        if (!YAML::convert<bool>::decode(node, value)) {
          return Wrong(node, field, "true or false");
        }
        reflection->SetBool(message, field, value);
        return OkStatus();
      }
      case FieldDescriptor::CPPTYPE_INT32:
      case FieldDescriptor::CPPTYPE_INT64:
        return ReadInteger(node, field, message);
      default:
        return At(node.Mark(), fmt::format("{} cannot be set in a file",
                                           field->json_name()));
    }
  }

  Status ReadInteger(const YAML::Node& node, const FieldDescriptor* field,
                     google::protobuf::Message* message) const {
    const bool small = field->cpp_type() == FieldDescriptor::CPPTYPE_INT32;
    int64_t value = 0;
    if (EndsWith(field->name(), "_bytes")) {
      const auto bytes = ParseBytes(node.Scalar());
      if (!bytes.ok()) return Wrong(node, field, "a size such as 2GiB");
      value = *bytes;
    } else if (!YAML::convert<int64_t>::decode(node, value) ||
               (small && (value > std::numeric_limits<int32_t>::max() ||
                          value < std::numeric_limits<int32_t>::min()))) {
      return Wrong(node, field, "a whole number");
    }
    if (small) {
      message->GetReflection()->SetInt32(message, field,
                                         static_cast<int32_t>(value));
    } else {
      message->GetReflection()->SetInt64(message, field, value);
    }
    return OkStatus();
  }

  Status ReadEnum(const YAML::Node& node, const FieldDescriptor* field,
                  google::protobuf::Message* message) const {
    const EnumDescriptor* const type = field->enum_type();
    // "JOB_KIND_UNSPECIFIED" tells what all values begin with.
    const std::string zero = type->value(0)->name();
    const std::string prefix =
        zero.substr(0, zero.size() - std::string("UNSPECIFIED").size());
    const std::string wanted = Upper(node.Scalar());
    std::vector<std::string> known;
    for (int i = 1; i < type->value_count(); ++i) {
      const EnumValueDescriptor* const value = type->value(i);
      const std::string name = value->name().substr(prefix.size());
      if (wanted == name || wanted == value->name()) {
        message->GetReflection()->SetEnum(message, field, value);
        return OkStatus();
      }
      known.push_back(name);
    }
    return At(node.Mark(),
              fmt::format("{}: there is no {}{}", field->json_name(),
                          node.Scalar(), DidYouMean(wanted, known)));
  }

  Status Wrong(const YAML::Node& node, const FieldDescriptor* field,
               const char* what) const {
    return At(node.Mark(),
              fmt::format("{}: \"{}\" is not {}", field->json_name(),
                          node.Scalar(), what));
  }

  const std::string source_;
};

}  // namespace

StatusOr<v1::JobSpec> ParseJobFile(const std::string& text,
                                   const std::string& source) {
  const Reader reader(source);
  v1::JobSpec spec;
  try {
    LOCKSTEP_RETURN_IF_ERROR(CheckOneDocument(text, source));
    LOCKSTEP_RETURN_IF_ERROR(reader.ReadMessage(YAML::Load(text), &spec));
  } catch (const YAML::Exception& e) {
    return reader.At(e.mark, e.msg);
  }
  return spec;
}

}  // namespace lockstep
