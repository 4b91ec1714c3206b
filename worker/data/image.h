// An image in memory: rows from the top, pixels from the left, the channels of
// a pixel together (HWC), one byte a channel.
#ifndef LOCKSTEP_WORKER_DATA_IMAGE_H_
#define LOCKSTEP_WORKER_DATA_IMAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace lockstep::worker::data {

// Largest decoded image: a header with a larger size is rejected.
inline constexpr uint64_t kMaxImageBytes = uint64_t{128} << 20;

struct ImageShape {
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t channels = 0;

  // Cannot overflow for a shape that CheckShape accepts.
  uint64_t bytes() const { return uint64_t{height} * width * channels; }
  bool operator==(const ImageShape&) const = default;
};

// "28 x 28 x 1": height, width, channels.
std::string FormatShape(const ImageShape& shape);

// InvalidArgument unless each side is 1 to 65535, the channels are 1 to 4 and
// the whole is at most kMaxImageBytes.
Status CheckShape(const ImageShape& shape);

struct Image {
  ImageShape shape;
  std::vector<uint8_t> pixels;  // shape.bytes() of them.
};

// `image` stretched to `height` x `width` by a triangle filter, widened where
// it shrinks so that no pixel is left out (tf.image.resize with "bilinear"
// and antialias).
// REQUIRES: CheckShape holds for `image` and for the result.
Image Resize(const Image& image, uint32_t height, uint32_t width);

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_IMAGE_H_
