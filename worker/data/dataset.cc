#include "worker/data/dataset.h"

#include <algorithm>

#include "worker/data/jpeg.h"
#include "worker/data/shards.h"

namespace lockstep::worker::data {

StatusOr<std::shared_ptr<const Dataset>> Dataset::Open(
    FileSystem* fs, const std::vector<std::string>& patterns) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto paths, FindShards(fs, patterns));
  std::shared_ptr<Dataset> dataset(new Dataset);
  for (const std::string& path : paths) {
    LOCKSTEP_ASSIGN_OR_RETURN(auto file, TfRecordFile::Open(path));
    const std::optional<ShardName> name = ParseShardName(path);
    if (name && name->count != file->records()) {
      return DataLoss(
          "{} has {} records, but its name says {}: it is incomplete or was "
          "renamed",
          path, file->records(), name->count);
    }
    dataset->samples_ += file->records();
    dataset->files_.push_back(std::move(file));
  }
  if (dataset->samples_ == 0) {
    return InvalidArgument("the {} files from {} on contain no samples",
                           paths.size(), paths.front());
  }
  return std::shared_ptr<const Dataset>(std::move(dataset));
}

std::vector<uint64_t> Dataset::counts() const {
  std::vector<uint64_t> counts;
  for (const auto& file : files_) counts.push_back(file->records());
  return counts;
}

StatusOr<LabelledImage> Dataset::Read(SampleRef ref,
                                      std::string* buffer) const {
  if (ref.shard >= files_.size()) {
    return OutOfRange("shard {1} does not exist: there are {0} shards",
                      files_.size(), ref.shard);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string_view record,
                            files_[ref.shard]->Read(ref.record, buffer));
  StatusOr<LabelledImage> image = DecodeExample(record);
  if (!image.ok()) return Annotate(image.status(), Describe(ref));
  return image;
}

StatusOr<ImageShape> Dataset::FirstShape() const {
  SampleRef first;
  while (files_[first.shard]->records() == 0) ++first.shard;
  std::string buffer;
  LOCKSTEP_ASSIGN_OR_RETURN(const LabelledImage image, Read(first, &buffer));
  if (image.format == ImageFormat::kRaw) return image.shape;
  StatusOr<ImageShape> shape = ReadJpegShape(image.encoded);
  if (!shape.ok()) return Annotate(shape.status(), Describe(first));
  return shape;
}

std::string Dataset::Describe(SampleRef ref) const {
  const TfRecordFile& file = *files_[ref.shard];
  return fmt::format("{}: record {} at byte {}", file.path(), ref.record,
                     file.offset(ref.record));
}

Status DecodeTo(const LabelledImage& image, const ImageShape& shape,
                uint8_t* out) {
  if (image.format == ImageFormat::kJpeg) {
    return DecodeJpegTo(image.encoded, shape, out);
  }
  if (image.shape != shape) {
    return InvalidArgument("the image is {}, but the data set uses {}",
                           FormatShape(image.shape), FormatShape(shape));
  }
  std::copy(image.encoded.begin(), image.encoded.end(), out);
  return OkStatus();
}

}  // namespace lockstep::worker::data
