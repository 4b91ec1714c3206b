// One list of fields for each struct and its message: both directions, the
// limits and the names in errors come from it.
//
//   LOCKSTEP_FIELDS(FileQuery, v1::FileRequest) {
//     LOCKSTEP_FIELD(job, kJobName);
//     LOCKSTEP_FIELD_AS(index, task_index, Range(0, kMaxRanks - 1));
//     LOCKSTEP_FIELD(range);
//     v.Rule([](FileQuery* query, FieldChecker* check) { ... });
//   }
//
// LOCKSTEP_FIELD is for a member and a field of one name, LOCKSTEP_FIELD_AS for
// two names. Checks follow; they see the message's value and are made below, or
// are lambdas of this form. A field that has presence and is absent leaves the
// member as the struct has it; checks see its zero then. Numbers, texts, enums,
// times, messages, lists, maps, std::optional and Shared are converted as their
// types say: a struct or an enum needs a list or a line of convert.h itself.
// The first complaint counts, so the order of the list is that of complaints.
//
// `v` has more: Rule, for what holds between fields and for defaults, and
// OnWrite and OnRead, for what no field's type says.
#ifndef LOCKSTEP_COMMON_WIRE_FIELDS_H_
#define LOCKSTEP_COMMON_WIRE_FIELDS_H_

#include <google/protobuf/map.h>
#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "common/base/clock.h"
#include "common/base/shared_value.h"
#include "common/model/store_point.h"
#include "common/wire/field_checker.h"
#include "common/wire/value_wire.h"

namespace lockstep {

// ---- Checks of one field ----------------------------------------------------

constexpr auto Range(int64_t low, int64_t high) {
  return [=](FieldChecker* check, std::string_view field, int64_t value) {
    check->Range(field, value, low, high);
  };
}
constexpr auto Number(double low, double high) {
  return [=](FieldChecker* check, std::string_view field, double value) {
    check->Number(field, value, low, high);
  };
}
// The entries of a list or map, or the bytes of data.
constexpr auto AtMost(size_t most) {
  return [=](FieldChecker* check, std::string_view field, const auto& value) {
    check->Count(field, static_cast<size_t>(value.size()), most);
  };
}
constexpr auto Bytes(size_t most) {
  return [=](FieldChecker* check, std::string_view field,
             std::string_view text) { check->Bytes(field, text, most); };
}
constexpr auto Text(size_t most) {
  return [=](FieldChecker* check, std::string_view field,
             std::string_view text) { check->Text(field, text, most); };
}
// `is` of the text; else the error is the text in quotes and `otherwise`.
template <typename Predicate>
constexpr auto Matching(Predicate is, const char* otherwise) {
  return [=](FieldChecker* check, std::string_view field,
             const std::string& text) {
    if (!is(text)) check->Require(false, field, Quote(text) + otherwise);
  };
}
template <typename Check>
constexpr auto EmptyOr(Check other) {
  return [=](FieldChecker* check, std::string_view field,
             const std::string& text) {
    if (!text.empty()) other(check, field, text);
  };
}
// Each entry of a list, and the names and values of a map.
template <typename Check>
constexpr auto Each(Check entry) {
  return [=](FieldChecker* check, std::string_view field, const auto& list) {
    for (int i = 0; check->ok() && i < list.size(); ++i) {
      FieldChecker at(check, field, i);
      entry(&at, "", list[i]);
    }
  };
}
template <typename NameCheck, typename Check>
constexpr auto Entries(NameCheck name_check, Check value_check) {
  return [=](FieldChecker* check, std::string_view field, const auto& map) {
    for (const auto& [name, value] : map) {
      name_check(check, field, name);
      value_check(check, field, value);
    }
  };
}

inline constexpr auto kJobName = [](FieldChecker* check, std::string_view field,
                                    std::string_view name) {
  check->JobName(field, name);
};
inline constexpr auto kNodeName =
    [](FieldChecker* check, std::string_view field, std::string_view name) {
      check->NodeName(field, name);
    };
inline constexpr auto kPath = [](FieldChecker* check, std::string_view field,
                                 std::string_view path) {
  check->Path(field, path);
};
inline constexpr auto kIpAddress =
    [](FieldChecker* check, std::string_view field, const std::string& text) {
      check->IpAddress(field, text);
    };
inline constexpr auto kPositive = [](FieldChecker* check,
                                     std::string_view field, uint64_t value) {
  check->Require(value > 0, field, "must be 1 or more");
};
inline constexpr auto kRank = Range(0, kMaxRanks - 1);
inline constexpr auto kCounter =
    []<typename T>(FieldChecker* check, std::string_view field, T value) {
      check->Range(field, value, 0, std::numeric_limits<T>::max());
    };
inline constexpr auto kUid = Text(64);
inline constexpr auto kHistory = Matching(IsHistory, " is not 32 hex digits");

// No check: the message has no such field where the member is as the struct
// has it. So is it always with a WallTime.
struct OmitDefault {
  void operator()(FieldChecker*, std::string_view, const auto&) const {}
};

// ---- Both directions --------------------------------------------------------

namespace fields_internal {

template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsShared = false;
template <typename T>
inline constexpr bool kIsShared<Shared<T>> = true;
template <typename T>
inline constexpr bool kIsList = false;
template <typename T>
inline constexpr bool kIsList<std::vector<T>> = true;
template <typename T>
inline constexpr bool kIsMap = false;
template <typename K, typename T>
inline constexpr bool kIsMap<std::map<K, T>> = true;
template <typename T>
inline constexpr bool kIsPlain =
    std::is_arithmetic_v<T> || std::is_same_v<T, std::string>;

template <typename From, typename To>
void ReadField(const From& from, To* to, const FieldChecker* parent,
               std::string_view name) {
  if constexpr (kIsOptional<To>) {
    // Not emplace(): clang rejects it for a nested struct with default member
    // initializers.
    *to = typename To::value_type{};
    ReadField(from, &**to, parent, name);
  } else if constexpr (kIsShared<To>) {
    if (!from.empty()) ReadField(from, &to->Edit(), parent, name);
  } else if constexpr (kIsPlain<To>) {
    *to = To{from};  // Braces: not into a smaller type.
  } else if constexpr (kIsMap<To>) {
    *to = To(from.begin(), from.end());
  } else if constexpr (kIsList<To>) {
    if constexpr (kIsPlain<typename To::value_type>) {
      to->assign(from.begin(), from.end());
    } else {
      to->reserve(static_cast<size_t>(from.size()));
      for (int i = 0; parent->ok() && i < from.size(); ++i) {
        FieldChecker at(parent, name, i);
        ReadValue(from[i], &to->emplace_back(), &at);
      }
    }
  } else {
    FieldChecker at(parent, name);
    ReadValue(from, to, &at);
  }
}

template <typename From, typename Field, typename Message>
void WriteField(const From& from, const Field& field, Message* to) {
  if constexpr (kIsOptional<From>) {
    if (from.has_value()) WriteField(*from, field, to);
  } else if constexpr (kIsShared<From>) {
    WriteField(from.get(), field, to);
  } else if constexpr (kIsPlain<From>) {
    field.set(to, from);
  } else if constexpr (std::is_enum_v<From>) {
    field.set(to, ToProto(from));
  } else if constexpr (kIsMap<From>) {
    field.mutate(to)->insert(from.begin(), from.end());
  } else if constexpr (kIsList<From>) {
    auto* const list = field.mutate(to);
    if constexpr (kIsPlain<typename From::value_type>) {
      list->Add(from.begin(), from.end());
    } else {
      list->Reserve(static_cast<int>(from.size()));
      for (const auto& entry : from) WriteValue(entry, list->Add());
    }
  } else {
    WriteValue(from, field.mutate(to));
  }
}

// A member of a struct and the accessors of the message's field.
template <typename Member, typename Get, typename Has, typename Set,
          typename Mutate>
struct Field {
  const char* name;
  Member member;
  Get get;
  Has has;
  Set set;
  Mutate mutate;
};
template <typename Member, typename Get, typename Has, typename Set,
          typename Mutate>
Field(const char*, Member, Get, Has, Set, Mutate)
    -> Field<Member, Get, Has, Set, Mutate>;

}  // namespace fields_internal

template <typename Value, typename Message>
class MessageReader {
 public:
  MessageReader(const Message& from, Value* to, FieldChecker* check)
      : from_(from), to_(to), check_(check) {}

  template <typename Field, typename... Checks>
  void operator()(const Field& field, const Checks&... checks) {
    const auto& value = field.get(from_);
    (checks(check_, field.name, value), ...);
    if (!check_->ok() || !field.has(from_)) return;
    fields_internal::ReadField(value, &field.member(*to_), check_, field.name);
  }
  // rule(Value*, FieldChecker*)
  template <typename F>
  void Rule(const F& rule) {
    if (check_->ok()) rule(to_, check_);
  }
  // read(const Message&, Value*, FieldChecker*)
  template <typename F>
  void OnRead(const F& read) {
    if (check_->ok()) read(from_, to_, check_);
  }
  template <typename F>
  void OnWrite(const F&) {}

 private:
  const Message& from_;
  Value* const to_;
  FieldChecker* const check_;
};

template <typename Value, typename Message>
class MessageWriter {
 public:
  MessageWriter(const Value& from, Message* to) : from_(from), to_(to) {}

  template <typename Field, typename... Checks>
  void operator()(const Field& field, const Checks&...) {
    const auto& member = field.member(from_);
    if constexpr ((std::is_same_v<Checks, OmitDefault> || ...)) {
      static const auto& defaults = *new Value();
      if (member == field.member(defaults)) return;
    } else if constexpr (std::is_same_v<decltype(member), const WallTime&>) {
      if (member == WallTime{}) return;
    }
    fields_internal::WriteField(member, field, to_);
  }
  template <typename F>
  void Rule(const F&) {}
  template <typename F>
  void OnRead(const F&) {}
  // write(const Value&, Message*)
  template <typename F>
  void OnWrite(const F& write) {
    write(from_, to_);
  }

 private:
  const Value& from_;
  Message* const to_;
};

}  // namespace lockstep

#define LOCKSTEP_FIELDS(Value, Message)                                 \
  template <typename V>                                                 \
  void FieldsOf(V& v, const Value*, const Message*);                    \
  void WriteValue(const Value& from, Message* to) {                     \
    MessageWriter<Value, Message> v(from, to);                          \
    FieldsOf(v, &from, to);                                             \
  }                                                                     \
  void ReadValue(const Message& from, Value* to, FieldChecker* check) { \
    MessageReader<Value, Message> v(from, to, check);                   \
    FieldsOf(v, to, &from);                                             \
  }                                                                     \
  template <typename V>                                                 \
  void FieldsOf(V& v, const Value*, const Message*)

#define LOCKSTEP_FIELD_AS(struct_member, field, ...)                   \
  v(::lockstep::fields_internal::Field {                               \
#field, [](auto& value) -> auto& { return value.struct_member; }   \
    , [](const auto& from) -> decltype(auto) { return from.field(); }, \
        [](const auto& from) {                                         \
          if constexpr (requires { from.has_##field(); }) {            \
            return from.has_##field();                                 \
          } else {                                                     \
            return true;                                               \
          }                                                            \
        },                                                             \
        [](auto* to, const auto& value) { to->set_##field(value); },   \
        [](auto* to) { return to->mutable_##field(); }                 \
  } __VA_OPT__(, ) __VA_ARGS__)
#define LOCKSTEP_FIELD(field, ...) \
  LOCKSTEP_FIELD_AS(field, field __VA_OPT__(, ) __VA_ARGS__)

#endif  // LOCKSTEP_COMMON_WIRE_FIELDS_H_
