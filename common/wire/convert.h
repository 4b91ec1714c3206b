// Declares how a struct of the model becomes a message, and back. The fields
// are listed in a .cc file of this folder, see fields.h.
#ifndef LOCKSTEP_COMMON_WIRE_CONVERT_H_
#define LOCKSTEP_COMMON_WIRE_CONVERT_H_

#include <string_view>

#include "common/base/status.h"
#include "common/wire/field_checker.h"

namespace lockstep {

template <typename Value, typename Message>
StatusOr<Value> ValueOf(const Message& message, std::string_view path) {
  FieldChecker check(path);
  Value out{};
  ReadValue(message, &out, &check);
  if (!check.ok()) return check.status();
  return out;
}

// A value without a meaning here: 0 is "not said" unless the enum has it, and
// one of a newer version is not understood.
template <typename Enum, typename ProtoEnum>
void ReadEnum(ProtoEnum from, bool known, Enum* to, FieldChecker* check) {
  if (known) {
    *to = static_cast<Enum>(from);
  } else {
    check->Fail("", fmt::format("{} is not a value that is known here",
                                static_cast<int>(from)));
  }
}

}  // namespace lockstep

// `Value` <-> `Message`. ToProto never fails. FromProto trusts nothing: an
// unknown enum value, a number out of bounds, a NaN or a name that is none is
// InvalidArgument, whose text starts with the path and the field.
#define LOCKSTEP_CONVERTS_BY(to_proto, Value, Message, path)           \
  void WriteValue(const Value& from, Message* to);                     \
  void ReadValue(const Message& from, Value* to, FieldChecker* check); \
  inline Message to_proto(const Value& from) {                         \
    Message to;                                                        \
    WriteValue(from, &to);                                             \
    return to;                                                         \
  }                                                                    \
  inline StatusOr<Value> FromProto(const Message& from,                \
                                   std::string_view at = path) {       \
    return ValueOf<Value>(from, at);                                   \
  }
#define LOCKSTEP_CONVERTS_AS(Value, Message, path) \
  LOCKSTEP_CONVERTS_BY(ToProto, Value, Message, path)
#define LOCKSTEP_CONVERTS(Value, path) \
  LOCKSTEP_CONVERTS_AS(Value, v1::Value, path)

// An enum of the model with the numbers of the proto's of the same name;
// `has_zero`: 0 is one of its values.
#define LOCKSTEP_CONVERTS_ENUM(Enum, path, has_zero)                           \
  inline v1::Enum ToProto(Enum from) { return static_cast<v1::Enum>(from); }   \
  inline void ReadValue(v1::Enum from, Enum* to, FieldChecker* check) {        \
    ReadEnum(from, v1::Enum##_IsValid(from) && (has_zero || from != 0), to,    \
             check);                                                           \
  }                                                                            \
  inline StatusOr<Enum> FromProto(v1::Enum from, std::string_view at = path) { \
    return ValueOf<Enum>(from, at);                                            \
  }

#endif  // LOCKSTEP_COMMON_WIRE_CONVERT_H_
