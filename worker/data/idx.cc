#include "worker/data/idx.h"

#include "worker/data/gzip.h"

namespace lockstep::worker::data {
namespace {

// No file of the family comes near; keeps a decompression bomb small.
constexpr uint64_t kMaxFileBytes = uint64_t{8} << 30;
constexpr uint8_t kUnsignedByte = 0x08;

uint32_t LoadBigEndian(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  }
  return value;
}

// Checks that the magic number means unsigned bytes with `min` to `max`
// dimensions and that the dimensions are present; returns their number.
StatusOr<size_t> ParseMagic(std::string_view bytes, std::string_view name,
                            size_t min, size_t max, std::string_view kind) {
  if (bytes.size() < 4) {
    return DataLoss("{}: truncated at byte {}, inside the magic number", name,
                    bytes.size());
  }
  const uint32_t magic = LoadBigEndian(bytes, 0);
  const size_t dimensions = magic & 0xff;
  if (magic >> 8 != kUnsignedByte || dimensions < min || dimensions > max) {
    return InvalidArgument(
        "{}: the magic number at byte 0 is 0x{:08x}, but IDX {} have 0x{:08x}",
        name, magic, kind, kUnsignedByte << 8 | min);
  }
  const size_t header = 4 + 4 * dimensions;
  if (bytes.size() < header) {
    return DataLoss("{}: truncated at byte {}, inside the header of {} bytes",
                    name, bytes.size(), header);
  }
  return dimensions;
}

Status CheckSize(std::string_view bytes, std::string_view name, size_t header,
                 uint64_t needed) {
  const uint64_t have = bytes.size() - header;
  if (have < needed) {
    return DataLoss("{}: truncated at byte {}, but the header announces {}",
                    name, bytes.size(), header + needed);
  }
  if (have > needed) {
    return DataLoss("{}: {} extra bytes from byte {} on", name, have - needed,
                    header + needed);
  }
  return OkStatus();
}

}  // namespace

StatusOr<IdxImages> ParseIdxImages(std::string_view bytes,
                                   std::string_view name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const size_t dimensions,
                            ParseMagic(bytes, name, 3, 4, "images"));
  IdxImages images;
  images.count = LoadBigEndian(bytes, 4);
  images.shape.height = LoadBigEndian(bytes, 8);
  images.shape.width = LoadBigEndian(bytes, 12);
  images.shape.channels = dimensions == 4 ? LoadBigEndian(bytes, 16) : 1;
  if (const Status shape = CheckShape(images.shape); !shape.ok()) {
    return Annotate(shape, fmt::format("{}: at byte 8", name));
  }
  // count < 2^32 and bytes() <= 2^27: no overflow.
  const size_t header = 4 + 4 * dimensions;
  LOCKSTEP_RETURN_IF_ERROR(
      CheckSize(bytes, name, header, images.count * images.shape.bytes()));
  images.pixels = bytes.substr(header);
  return images;
}

StatusOr<IdxLabels> ParseIdxLabels(std::string_view bytes,
                                   std::string_view name) {
  LOCKSTEP_RETURN_IF_ERROR(ParseMagic(bytes, name, 1, 1, "labels").status());
  IdxLabels labels;
  labels.count = LoadBigEndian(bytes, 4);
  LOCKSTEP_RETURN_IF_ERROR(CheckSize(bytes, name, 8, labels.count));
  labels.labels = bytes.substr(8);
  return labels;
}

StatusOr<IdxDataset> IdxDataset::Read(FileSystem* fs,
                                      const std::string& images_path,
                                      const std::string& labels_path) {
  IdxDataset data;
  LOCKSTEP_ASSIGN_OR_RETURN(std::string images,
                            ReadMaybeGzip(fs, images_path, kMaxFileBytes));
  data.image_bytes_ = std::make_shared<const std::string>(std::move(images));
  LOCKSTEP_ASSIGN_OR_RETURN(std::string labels,
                            ReadMaybeGzip(fs, labels_path, kMaxFileBytes));
  data.label_bytes_ = std::make_shared<const std::string>(std::move(labels));
  LOCKSTEP_ASSIGN_OR_RETURN(data.images_,
                            ParseIdxImages(*data.image_bytes_, images_path));
  LOCKSTEP_ASSIGN_OR_RETURN(data.labels_,
                            ParseIdxLabels(*data.label_bytes_, labels_path));
  if (data.images_.count != data.labels_.count) {
    return InvalidArgument(
        "{} has {} images and {} has {} labels: they do not belong together",
        images_path, data.images_.count, labels_path, data.labels_.count);
  }
  if (data.images_.count == 0) {
    return InvalidArgument("{} has no images", images_path);
  }
  return data;
}

}  // namespace lockstep::worker::data
