// IDX files of images and labels, plain and gzipped.
#include "worker/data/idx.h"

#include "tests/fuzz/fuzz.h"
#include "worker/data/gzip.h"

namespace lockstep::worker::data {
namespace {

void Parse(std::string_view bytes) {
  if (const auto images = ParseIdxImages(bytes, "fuzz"); images.ok()) {
    fuzz::Require(
        images->pixels.size() == images->count * images->shape.bytes(),
        "the pixels are all there");
    if (images->count > 0) (void)images->image(images->count - 1);
  }
  if (const auto labels = ParseIdxLabels(bytes, "fuzz"); labels.ok()) {
    fuzz::Require(labels->labels.size() == labels->count,
                  "the labels are all there");
  }
}

}  // namespace
}  // namespace lockstep::worker::data

LOCKSTEP_FUZZ_TARGET(idx)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker::data;
  const std::string_view bytes = fuzz::View(data, size);
  Parse(bytes);
  constexpr uint64_t kLimit = 1 << 20;
  if (const auto plain = Gunzip(bytes, "fuzz", kLimit); plain.ok()) {
    fuzz::Require(plain->size() <= kLimit, "no more comes out than allowed");
    Parse(*plain);
  }
  return 0;
}
