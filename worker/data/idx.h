// IDX files, the format of the MNIST family: images and labels.
//
// A file is 0, 0, element type (0x08: unsigned byte), number of dimensions,
// then each dimension as a big-endian uint32, then the elements. Images have
// 3 dimensions (count, height, width) or 4 (and channels), labels 1.
// http://yann.lecun.com/exdb/mnist/ describes it.
#ifndef LOCKSTEP_WORKER_DATA_IDX_H_
#define LOCKSTEP_WORKER_DATA_IDX_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/data/image.h"

namespace lockstep::worker::data {

// The views point into the bytes that were parsed.
struct IdxImages {
  uint64_t count = 0;
  ImageShape shape;
  std::string_view pixels;  // count * shape.bytes()

  std::string_view image(uint64_t i) const {
    return pixels.substr(i * shape.bytes(), shape.bytes());
  }
};
struct IdxLabels {
  uint64_t count = 0;
  std::string_view labels;  // One byte each.
};

// `name` is for errors, which name the wrong byte. InvalidArgument for another
// kind of file, DataLoss if the size does not fit the header.
StatusOr<IdxImages> ParseIdxImages(std::string_view bytes,
                                   std::string_view name);
StatusOr<IdxLabels> ParseIdxLabels(std::string_view bytes,
                                   std::string_view name);

// An image file and its label file in memory, plain or gzip.
class IdxDataset {
 public:
  // InvalidArgument too when the two have different counts or are empty.
  static StatusOr<IdxDataset> Read(FileSystem* fs,
                                   const std::string& images_path,
                                   const std::string& labels_path);

  uint64_t count() const { return images_.count; }
  const ImageShape& shape() const { return images_.shape; }
  std::string_view image(uint64_t i) const { return images_.image(i); }
  int32_t label(uint64_t i) const {
    return static_cast<uint8_t>(labels_.labels[i]);
  }

 private:
  IdxDataset() = default;

  // Behind pointers: the views must not move with this object.
  std::shared_ptr<const std::string> image_bytes_;
  std::shared_ptr<const std::string> label_bytes_;
  IdxImages images_;
  IdxLabels labels_;
};

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_IDX_H_
