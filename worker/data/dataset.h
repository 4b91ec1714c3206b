// The samples of a set of shards, for reading in any order.
#ifndef LOCKSTEP_WORKER_DATA_DATASET_H_
#define LOCKSTEP_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/data/example.h"
#include "worker/data/image.h"
#include "worker/data/shard_plan.h"
#include "worker/data/tfrecord.h"

namespace lockstep::worker::data {

// Safe from any thread. Keeps one descriptor open per shard.
class Dataset {
 public:
  // Opens the files of FindShards and reads the position of each record. Shards
  // are sorted by path, so all ranks with the same files have the same order.
  // DataLoss: a shard is damaged, or its number of records differs from its
  // name.
  static StatusOr<std::shared_ptr<const Dataset>> Open(
      FileSystem* fs, const std::vector<std::string>& patterns);

  size_t shards() const { return files_.size(); }
  const std::string& path(size_t shard) const { return files_[shard]->path(); }
  uint64_t samples() const { return samples_; }
  // Records of each shard, for ShardPlan::Create.
  std::vector<uint64_t> counts() const;

  // Sample `ref`; its views point into `*buffer`, scratch space that a caller
  // uses again. Errors name the file and the offset.
  StatusOr<LabelledImage> Read(SampleRef ref, std::string* buffer) const;

  // The shape of the first sample, for the model.
  StatusOr<ImageShape> FirstShape() const;

  // "FILE: record 7 at byte 6312", for errors about a sample.
  std::string Describe(SampleRef ref) const;

 private:
  Dataset() = default;

  std::vector<std::unique_ptr<TfRecordFile>> files_;
  uint64_t samples_ = 0;
};

// Decodes `image` to `out`, which has room for shape.bytes(). A JPEG is
// converted to the channels of `shape`; any other difference is
// InvalidArgument. No place is named.
Status DecodeTo(const LabelledImage& image, const ImageShape& shape,
                uint8_t* out);

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_DATASET_H_
