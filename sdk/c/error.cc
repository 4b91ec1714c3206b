#include "sdk/c/error.h"

#include <algorithm>
#include <string>

namespace lockstep::c {
namespace {

void CopyText(const std::string& text, char* to, size_t capacity) {
  size_t bytes = std::min(text.size(), capacity - 1);
  // A byte 10xxxxxx continues a character of UTF-8.
  while (bytes < text.size() && bytes > 0 && (text[bytes] & 0xc0) == 0x80) {
    --bytes;
  }
  std::memcpy(to, text.data(), bytes);
  to[bytes] = '\0';
}

}  // namespace

int32_t Return(const Status& status, lockstep_error* error) {
  const auto code = static_cast<int32_t>(status.code());
  if (error != nullptr) {
    error->code = code;
    CopyText(ReasonOf(status), error->reason, sizeof(error->reason));
    CopyText(Message(status), error->message, sizeof(error->message));
  }
  return code;
}

Status TakeStruct(const void* theirs, void* own, size_t own_size,
                  const char* name) {
  if (theirs == nullptr) return InvalidArgument("{} is NULL", name);
  size_t size = 0;
  std::memcpy(&size, theirs, sizeof(size));
  if (size < sizeof(size) || size > 4096) {
    return InvalidArgument("{}.size is {}: set it to sizeof({})", name, size,
                           name);
  }
  const auto* const bytes = static_cast<const char*>(theirs);
  if (std::any_of(bytes + std::min(size, own_size), bytes + size,
                  [](char byte) { return byte != 0; })) {
    return InvalidArgument(
        "{} has fields that this library, {}, does not know: install a newer "
        "one",
        name, lockstep_version());
  }
  std::memcpy(own, theirs, std::min(size, own_size));
  return OkStatus();
}

}  // namespace lockstep::c
