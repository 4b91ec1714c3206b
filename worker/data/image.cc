#include "worker/data/image.h"

#include <algorithm>
#include <cmath>

namespace lockstep::worker::data {
namespace {

// The source pixels that make one target pixel of a row or column.
struct Taps {
  uint32_t first = 0;
  std::vector<float> weights;  // Sum 1.
};

std::vector<Taps> MakeTaps(uint32_t from, uint32_t to) {
  const double scale = static_cast<double>(from) / to;
  const double radius = std::max(1.0, scale);
  std::vector<Taps> taps(to);
  for (uint32_t i = 0; i < to; ++i) {
    const double center = (i + 0.5) * scale;
    const auto low = static_cast<int64_t>(std::floor(center - radius));
    const auto high = static_cast<int64_t>(std::ceil(center + radius));
    const int64_t first = std::clamp<int64_t>(low, 0, from - 1);
    const int64_t last = std::clamp<int64_t>(high, first, from - 1);
    taps[i].first = static_cast<uint32_t>(first);
    double sum = 0;
    for (int64_t k = first; k <= last; ++k) {
      const double distance =
          std::abs(static_cast<double>(k) + 0.5 - center) / radius;
      const double weight = std::max(0.0, 1.0 - distance);
      taps[i].weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : taps[i].weights) {
      weight = static_cast<float>(weight / sum);
    }
  }
  return taps;
}

}  // namespace

std::string FormatShape(const ImageShape& shape) {
  return fmt::format("{} x {} x {}", shape.height, shape.width, shape.channels);
}

Status CheckShape(const ImageShape& shape) {
  constexpr uint32_t kMaxSide = 65535;
  if (shape.height == 0 || shape.width == 0 || shape.height > kMaxSide ||
      shape.width > kMaxSide || shape.channels == 0 || shape.channels > 4) {
    return InvalidArgument(
        "an image of {} (height x width x channels) is not supported: sides "
        "are 1 to {}, channels 1 to 4",
        FormatShape(shape), kMaxSide);
  }
  if (shape.bytes() > kMaxImageBytes) {
    return InvalidArgument("an image of {} has more than {} bytes",
                           FormatShape(shape), kMaxImageBytes);
  }
  return OkStatus();
}

Image Resize(const Image& image, uint32_t height, uint32_t width) {
  const uint32_t channels = image.shape.channels;
  Image result;
  result.shape = {height, width, channels};
  result.pixels.resize(result.shape.bytes());
  const std::vector<Taps> rows = MakeTaps(image.shape.height, height);
  const std::vector<Taps> columns = MakeTaps(image.shape.width, width);
  const size_t source_stride = size_t{image.shape.width} * channels;

  // Each target row: first down its source rows, then along the row.
  std::vector<float> blended(source_stride);
  uint8_t* out = result.pixels.data();
  for (const Taps& row : rows) {
    std::fill(blended.begin(), blended.end(), 0.0f);
    for (size_t k = 0; k < row.weights.size(); ++k) {
      const uint8_t* source =
          image.pixels.data() + (row.first + k) * source_stride;
      for (size_t x = 0; x < source_stride; ++x) {
        blended[x] += row.weights[k] * static_cast<float>(source[x]);
      }
    }
    for (const Taps& column : columns) {
      for (uint32_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (size_t k = 0; k < column.weights.size(); ++k) {
          sum += column.weights[k] * blended[(column.first + k) * channels + c];
        }
        *out++ = static_cast<uint8_t>(std::clamp(std::lround(sum), 0L, 255L));
      }
    }
  }
  return result;
}

}  // namespace lockstep::worker::data
