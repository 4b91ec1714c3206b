// A tf.train.Example, as it is in a record.
#include "worker/data/example.h"

#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(example)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker::data;
  const auto image = DecodeExample(fuzz::View(data, size));
  if (!image.ok()) return 0;
  if (image->format == ImageFormat::kRaw) {
    fuzz::Require(image->encoded.size() == image->shape.bytes(),
                  "raw bytes fit their shape");
  }
  fuzz::Require(image->label >= 0, "a label is 0 or more");
  const std::string again = EncodeExample(*image);
  const auto second = DecodeExample(again);
  fuzz::Require(second.ok() && second->encoded == image->encoded &&
                    second->label == image->label &&
                    second->shape == image->shape &&
                    second->class_name == image->class_name,
                "what was decoded can be written and read again");
  return 0;
}
