// safetensors files: models that others made, and checkpoints.
#include "worker/checkpoint/safetensors.h"

#include <cstring>

#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(safetensors)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker;
  auto copy = std::make_unique<char[]>(size);
  if (size > 0) std::memcpy(copy.get(), data, size);
  const char* const begin = copy.get();
  const auto file = checkpoint::Safetensors::Parse(std::move(copy), size);
  if (!file.ok()) return 0;
  uint64_t sum = 0;
  for (const checkpoint::TensorView& tensor : file->tensors()) {
    const std::string_view bytes = tensor.contents();
    fuzz::Require(
        bytes.empty() || (bytes.data() >= begin &&
                          bytes.data() + bytes.size() <= begin + size),
        "a tensor lies in the file");
    for (const char c : bytes) sum += static_cast<uint8_t>(c);
    fuzz::Require(file->Find(tensor.name) == &tensor, "it is found by name");
  }
  fuzz::Require(sum <= uint64_t{255} * size, "tensors do not overlap");
  return 0;
}
