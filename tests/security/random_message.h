// Messages that no honest peer sends, of any type, from a seed.
#ifndef LOCKSTEP_TESTS_SECURITY_RANDOM_MESSAGE_H_
#define LOCKSTEP_TESTS_SECURITY_RANDOM_MESSAGE_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <memory>
#include <random>
#include <string>

namespace lockstep {

class RandomMessages {
 public:
  explicit RandomMessages(uint64_t seed) : random_(seed) {}

  // Bytes for a message of this type: fields with values at and past their
  // bounds, sometimes damaged, sometimes no protobuf at all.
  std::string Bytes(const google::protobuf::Descriptor& type);

  size_t Draw(size_t below);

 private:
  void Fill(google::protobuf::Message* message, int depth);
  void FillField(google::protobuf::Message* message,
                 const google::protobuf::FieldDescriptor* field, int depth);
  int64_t Integer();
  double Float();
  std::string Text();
  void Damage(std::string* bytes);

  std::mt19937_64 random_;
};

// An empty message of a type that is linked in.
std::unique_ptr<google::protobuf::Message> NewMessage(
    const google::protobuf::Descriptor& type);

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_SECURITY_RANDOM_MESSAGE_H_
