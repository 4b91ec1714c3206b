#include "client/cli/job_file.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "client/cli/parse.h"
#include "common/base/ascii.h"
#include "common/yaml/yaml_reader.h"

namespace lockstep::cli {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Reflection;
using ProtoMessage = google::protobuf::Message;

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() &&
         text.compare(text.size() - end.size(), end.size(), end) == 0;
}

const FieldDescriptor* FindField(const Descriptor* type,
                                 const std::string& name) {
  // The name of the flag and of other programs.
  if (name == "env") return type->FindFieldByName("environment");
  const FieldDescriptor* const field = type->FindFieldByName(name);
  return field ? field : type->FindFieldByCamelcaseName(name);
}

std::vector<std::string> FieldNames(const Descriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->field_count(); ++i) {
    names.push_back(type->field(i)->json_name());
  }
  return names;
}

Status NotA(const YamlValue& value, const std::string& what) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, value.Text());
  return value.Wrong(fmt::format("\"{}\" is not {}", text, what));
}

// map<string, string>: the only map type in a JobSpec.
Status ReadMap(const YamlValue& value, const FieldDescriptor* field,
               ProtoMessage* message) {
  std::map<std::string, std::string> texts;
  LOCKSTEP_RETURN_IF_ERROR(Into(&texts)(value));
  for (auto& [name, text] : texts) {
    ProtoMessage* const pair =
        message->GetReflection()->AddMessage(message, field);
    const Reflection* const reflection = pair->GetReflection();
    const Descriptor* const type = pair->GetDescriptor();
    reflection->SetString(pair, type->map_key(), name);
    reflection->SetString(pair, type->map_value(), std::move(text));
  }
  return OkStatus();
}

Status ReadDuration(const YamlValue& value, google::protobuf::Duration* out) {
  const auto text = value.Text();
  const auto duration = ParseDuration(text.ok() ? *text : "a list");
  if (!duration.ok()) return value.Wrong(Message(duration.status()));
  out->set_seconds(duration->count() / 1'000'000'000);
  out->set_nanos(static_cast<int32_t>(duration->count() % 1'000'000'000));
  return OkStatus();
}

Status ReadInteger(const YamlValue& value, const FieldDescriptor* field,
                   ProtoMessage* message) {
  const bool small = field->cpp_type() == FieldDescriptor::CPPTYPE_INT32;
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, value.Text());
  StatusOr<int64_t> number = 0;
  if (EndsWith(field->name(), "_bytes")) {
    number = ParseBytes(text);
    if (!number.ok()) return NotA(value, "a size such as 2GiB");
  } else {
    number = small ? value.Whole(std::numeric_limits<int32_t>::min(),
                                 std::numeric_limits<int32_t>::max())
                   : value.Whole(std::numeric_limits<int64_t>::min(),
                                 std::numeric_limits<int64_t>::max());
    if (!number.ok()) return number.status();
  }
  if (small) {
    message->GetReflection()->SetInt32(message, field,
                                       static_cast<int32_t>(*number));
  } else {
    message->GetReflection()->SetInt64(message, field, *number);
  }
  return OkStatus();
}

Status ReadEnum(const YamlValue& value, const FieldDescriptor* field,
                ProtoMessage* message) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, value.Text());
  const EnumDescriptor* const type = field->enum_type();
  // All values share the prefix of "JOB_KIND_UNSPECIFIED".
  const std::string zero = type->value(0)->name();
  const std::string prefix =
      zero.substr(0, zero.size() - std::string("UNSPECIFIED").size());
  const std::string wanted = AsciiUpper(text);
  std::vector<std::string> known;
  for (int i = 1; i < type->value_count(); ++i) {
    const EnumValueDescriptor* const each = type->value(i);
    const std::string name = each->name().substr(prefix.size());
    if (wanted == name || wanted == each->name()) {
      message->GetReflection()->SetEnum(message, field, each);
      return OkStatus();
    }
    known.push_back(name);
  }
  return value.Wrong("there is no " + text + DidYouMean(wanted, known));
}

Status ReadScalar(const YamlValue& value, const FieldDescriptor* field,
                  ProtoMessage* message) {
  const Reflection* const reflection = message->GetReflection();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, value.Text());
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      if (field->is_repeated()) {
        reflection->AddString(message, field, text);
      } else {
        reflection->SetString(message, field, text);
      }
      return OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM:
      return ReadEnum(value, field, message);
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      LOCKSTEP_ASSIGN_OR_RETURN(const double number, value.Number());
      reflection->SetDouble(message, field, number);
      return OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const auto truth = value.Bool();
      if (!truth.ok()) return NotA(value, "true or false");
      reflection->SetBool(message, field, *truth);
      return OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
      return ReadInteger(value, field, message);
    default:
      return value.Wrong("cannot be set in a file");
  }
}

Status ReadMessage(const YamlValue& value, ProtoMessage* message);

Status ReadValue(const YamlValue& value, const FieldDescriptor* field,
                 ProtoMessage* message) {
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    return ReadScalar(value, field, message);
  }
  const Reflection* const reflection = message->GetReflection();
  ProtoMessage* const child = field->is_repeated()
                                  ? reflection->AddMessage(message, field)
                                  : reflection->MutableMessage(message, field);
  if (child->GetDescriptor()->full_name() == "google.protobuf.Duration") {
    return ReadDuration(value, static_cast<google::protobuf::Duration*>(child));
  }
  return ReadMessage(value, child);
}

Status ReadField(const YamlValue& value, const FieldDescriptor* field,
                 ProtoMessage* message) {
  if (field->is_map()) return ReadMap(value, field, message);
  if (!field->is_repeated()) return ReadValue(value, field, message);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto elements, value.List());
  for (const YamlValue& element : elements) {
    LOCKSTEP_RETURN_IF_ERROR(ReadValue(element, field, message));
  }
  return OkStatus();
}

Status ReadMessage(const YamlValue& value, ProtoMessage* message) {
  const Descriptor* const type = message->GetDescriptor();
  LOCKSTEP_ASSIGN_OR_RETURN(const auto entries, value.Map());
  std::set<const FieldDescriptor*> seen;
  for (const auto& [key, element] : entries) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, key.Text());
    const FieldDescriptor* const field = FindField(type, name);
    if (!field) {
      return key.Wrong(fmt::format("{} has no field {}{}", type->name(), name,
                                   DidYouMean(name, FieldNames(type))));
    }
    // Given by another of its names.
    if (!seen.insert(field).second) return key.Wrong(name + " is there twice");
    // "field:" without a value counts as absent.
    if (element.IsNull()) continue;
    LOCKSTEP_RETURN_IF_ERROR(ReadField(element, field, message));
  }
  return OkStatus();
}

}  // namespace

StatusOr<v1::JobSpec> ParseJobFile(const std::string& text,
                                   const std::string& source) {
  LOCKSTEP_ASSIGN_OR_RETURN(const YamlValue root, LoadYaml(text, source));
  v1::JobSpec spec;
  LOCKSTEP_RETURN_IF_ERROR(ReadMessage(root, &spec));
  return spec;
}

}  // namespace lockstep::cli
