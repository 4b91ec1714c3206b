#include "tests/security/random_message.h"

#include <cstdint>
#include <limits>

namespace lockstep {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kMaxDepth = 5;

}  // namespace

std::unique_ptr<Message> NewMessage(const Descriptor& type) {
  return std::unique_ptr<Message>(
      google::protobuf::MessageFactory::generated_factory()
          ->GetPrototype(&type)
          ->New());
}

size_t RandomMessages::Draw(size_t below) {
  return static_cast<size_t>(random_() % below);
}

int64_t RandomMessages::Integer() {
  constexpr int64_t kTelling[] = {0,         1,         -1,        2,
                                  INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN,
                                  65536,     65537,     1 << 20,   4096};
  if (Draw(4) == 0) return static_cast<int64_t>(random_());
  return kTelling[Draw(std::size(kTelling))];
}

double RandomMessages::Float() {
  using Limits = std::numeric_limits<double>;
  const double telling[] = {0,
                            -1,
                            1,
                            0.5,
                            1e308,
                            -1e308,
                            1e-308,
                            1e18,
                            -0.0,
                            Limits::quiet_NaN(),
                            Limits::infinity(),
                            -Limits::infinity()};
  return telling[Draw(std::size(telling))];
}

std::string RandomMessages::Text() {
  switch (Draw(12)) {
    case 0:
      return "";
    case 1:
      return std::string("a\0b", 3);
    case 2:
      return "../../etc/passwd";
    case 3:
      return "%s%n%s%n";
    case 4:
      return "a\nb";
    case 5:
      return std::string(1 + Draw(100'000), 'a');
    case 6:
      return "/abs/path";
    case 7:
      return "\xf0\x9f\x92\xa9";
    default:
      return std::string(1, static_cast<char>('a' + Draw(26)));
  }
}

void RandomMessages::FillField(Message* message, const FieldDescriptor* field,
                               int depth) {
  const Reflection& r = *message->GetReflection();
  const bool many = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      const auto v = static_cast<int32_t>(Integer());
      many ? r.AddInt32(message, field, v) : r.SetInt32(message, field, v);
      return;
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t v = Integer();
      many ? r.AddInt64(message, field, v) : r.SetInt64(message, field, v);
      return;
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      const auto v = static_cast<uint32_t>(Integer());
      many ? r.AddUInt32(message, field, v) : r.SetUInt32(message, field, v);
      return;
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const auto v = static_cast<uint64_t>(Integer());
      many ? r.AddUInt64(message, field, v) : r.SetUInt64(message, field, v);
      return;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const double v = Float();
      many ? r.AddDouble(message, field, v) : r.SetDouble(message, field, v);
      return;
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      const auto v = static_cast<float>(Float());
      many ? r.AddFloat(message, field, v) : r.SetFloat(message, field, v);
      return;
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const bool v = Draw(2) == 1;
      many ? r.AddBool(message, field, v) : r.SetBool(message, field, v);
      return;
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int v = static_cast<int>(Draw(20)) - 2;
      many ? r.AddEnumValue(message, field, v)
           : r.SetEnumValue(message, field, v);
      return;
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string v = Text();
      many ? r.AddString(message, field, v) : r.SetString(message, field, v);
      return;
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (depth >= kMaxDepth) return;
      Fill(many ? r.AddMessage(message, field)
                : r.MutableMessage(message, field),
           depth + 1);
  }
}

void RandomMessages::Fill(Message* message, int depth) {
  const Descriptor& type = *message->GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    if (Draw(3) == 0) continue;
    const FieldDescriptor* const field = type.field(i);
    const size_t times = field->is_repeated() ? Draw(4) : 1;
    for (size_t n = 0; n < times; ++n) FillField(message, field, depth);
  }
}

void RandomMessages::Damage(std::string* bytes) {
  for (size_t changes = 1 + Draw(4); changes > 0 && !bytes->empty();
       --changes) {
    const size_t at = Draw(bytes->size());
    switch (Draw(3)) {
      case 0:
        (*bytes)[at] = static_cast<char>(random_());
        break;
      case 1:
        bytes->resize(at);
        break;
      default:
        bytes->insert(at, std::string(1 + Draw(8), '\xff'));
    }
  }
}

std::string RandomMessages::Bytes(const Descriptor& type) {
  std::string bytes;
  if (Draw(10) == 0) {
    bytes.resize(Draw(300));
    for (char& c : bytes) c = static_cast<char>(random_());
    return bytes;
  }
  const std::unique_ptr<Message> message = NewMessage(type);
  Fill(message.get(), 0);
  // Lacking UTF-8 it is refused by whoever reads it.
  bytes = message->SerializePartialAsString();
  if (Draw(4) == 0) Damage(&bytes);
  return bytes;
}

}  // namespace lockstep
