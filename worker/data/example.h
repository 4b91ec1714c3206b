// A labelled image as a tf.train.Example.
//
// The feature names are those of TensorFlow's ImageNet and TF-Slim converters,
// so that programs written for those read our shards:
//   image/encoded      bytes  the JPEG file, or height * width * channels raw
//                             bytes (HWC)
//   image/format       bytes  "jpeg" or "raw"
//   image/height, image/width, image/channels   int64
//   image/class/label  int64  from 0
//   image/class/text   bytes  the class's name; left out if it has none
// Reading also takes the short names of many tutorials: image or image_raw,
// height, width, channels or depth, label or class.
//
// The protobuf wire format is read and written here by hand: the message is
// three levels of length-delimited fields, and a scanner finds the image
// without copying it.
#ifndef LOCKSTEP_WORKER_DATA_EXAMPLE_H_
#define LOCKSTEP_WORKER_DATA_EXAMPLE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/data/image.h"

namespace lockstep::worker::data {

enum class ImageFormat { kRaw, kJpeg };

// "raw" or "jpeg".
std::string_view FormatName(ImageFormat format);

// The views point into the memory that the image was read from.
struct LabelledImage {
  ImageFormat format = ImageFormat::kRaw;
  std::string_view encoded;
  // For a JPEG the shape in the record, zero if it has none; the JPEG's own
  // header decides.
  ImageShape shape;
  int32_t label = 0;
  std::string_view class_name;
};

// The same bytes for the same image: features are in the order of their names.
std::string EncodeExample(const LabelledImage& image);

// DataLoss: `record` is not a tf.train.Example. InvalidArgument: it is one, but
// holds no image, no label from 0 to 2^31 - 1, a format that is not supported,
// or raw bytes that do not fit the shape. Errors name no place.
StatusOr<LabelledImage> DecodeExample(std::string_view record);

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_EXAMPLE_H_
