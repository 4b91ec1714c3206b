// JPEG pictures of folders and records.
#include "worker/data/jpeg.h"

#include "tests/fuzz/fuzz.h"

LOCKSTEP_FUZZ_TARGET(jpeg)(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace worker::data;
  const std::string_view bytes = fuzz::View(data, size);
  const auto shape = ReadJpegShape(bytes);
  // Larger ones take the same way, only longer.
  if (!shape.ok() || shape->bytes() > (1 << 20)) return 0;
  fuzz::Require(CheckShape(*shape).ok(), "the header's shape was checked");
  for (const uint32_t channels : {0u, 1u, 3u}) {
    const auto image = DecodeJpeg(bytes, channels);
    if (!image.ok()) continue;
    fuzz::Require(image->pixels.size() == image->shape.bytes() &&
                      image->shape.height == shape->height &&
                      image->shape.width == shape->width,
                  "the picture has the size that its header says");
    std::vector<uint8_t> out(image->shape.bytes());
    fuzz::Require(DecodeJpegTo(bytes, image->shape, out.data()).ok(),
                  "it can be decoded in place");
  }
  return 0;
}
