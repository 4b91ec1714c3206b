#include "worker/data/example.h"

#include <limits>
#include <optional>

namespace lockstep::worker::data {
namespace {

// Wire types of the protobuf encoding.
enum WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kLengthDelimited = 2,
  kFixed32 = 5,
};
// Field numbers of tensorflow/core/example/{example,feature}.proto.
constexpr uint32_t kExampleFeatures = 1;
constexpr uint32_t kFeaturesFeature = 1;  // map<string, Feature>
constexpr uint32_t kMapKey = 1;
constexpr uint32_t kMapValue = 2;
constexpr uint32_t kFeatureBytesList = 1;
constexpr uint32_t kFeatureInt64List = 3;
constexpr uint32_t kListValue = 1;

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

// A length-delimited field.
void AppendField(uint32_t field, std::string_view value, std::string* out) {
  AppendVarint(field << 3 | kLengthDelimited, out);
  AppendVarint(value.size(), out);
  out->append(value);
}

void AppendFeature(std::string_view name, uint32_t list_field,
                   std::string_view value, std::string* features) {
  std::string list, feature, entry;
  AppendField(kListValue, value, &list);
  AppendField(list_field, list, &feature);
  AppendField(kMapKey, name, &entry);
  AppendField(kMapValue, feature, &entry);
  AppendField(kFeaturesFeature, entry, features);
}

void AppendBytes(std::string_view name, std::string_view value,
                 std::string* features) {
  AppendFeature(name, kFeatureBytesList, value, features);
}

void AppendInt(std::string_view name, uint64_t value, std::string* features) {
  std::string packed;
  AppendVarint(value, &packed);
  AppendFeature(name, kFeatureInt64List, packed, features);
}

bool TakeVarint(std::string_view* bytes, uint64_t* value) {
  *value = 0;
  for (size_t i = 0; i < 10 && i < bytes->size(); ++i) {
    const auto byte = static_cast<uint8_t>((*bytes)[i]);
    *value |= uint64_t{byte & 0x7fu} << (7 * i);
    if (byte < 0x80) {
      bytes->remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

// Iterates over the fields of one message. After false, ok() distinguishes the
// end from damage.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  bool Next() {
    if (rest_.empty() || !ok_) return false;
    uint64_t tag;
    if (!TakeVarint(&rest_, &tag) || tag >> 3 == 0 ||
        tag > std::numeric_limits<uint32_t>::max()) {
      return ok_ = false;
    }
    field_ = static_cast<uint32_t>(tag >> 3);
    type_ = static_cast<uint32_t>(tag & 7);
    switch (type_) {
      case kVarint:
        return ok_ = TakeVarint(&rest_, &number_);
      case kFixed64:
        return ok_ = Take(8);
      case kFixed32:
        return ok_ = Take(4);
      case kLengthDelimited: {
        uint64_t size;
        return ok_ = TakeVarint(&rest_, &size) && Take(size);
      }
      default:  // Groups, which no message here has.
        return ok_ = false;
    }
  }
  bool ok() const { return ok_; }
  bool Is(uint32_t field, WireType type) const {
    return field_ == field && type_ == type;
  }
  uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }

 private:
  bool Take(uint64_t size) {
    if (size > rest_.size()) return false;
    bytes_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }
  std::string_view rest_;
  bool ok_ = true;
  uint32_t field_ = 0;
  uint32_t type_ = 0;
  uint64_t number_ = 0;
  std::string_view bytes_;
};

// The first value of a feature, in whichever of the lists it is.
struct Value {
  std::optional<std::string_view> bytes;
  std::optional<int64_t> number;
};

bool ParseFeature(std::string_view message, Value* value) {
  Fields feature(message);
  while (feature.Next()) {
    if (feature.Is(kFeatureBytesList, kLengthDelimited)) {
      Fields list(feature.bytes());
      while (list.Next()) {
        if (list.Is(kListValue, kLengthDelimited) && !value->bytes) {
          value->bytes = list.bytes();
        }
      }
      if (!list.ok()) return false;
    } else if (feature.Is(kFeatureInt64List, kLengthDelimited)) {
      Fields list(feature.bytes());
      while (list.Next()) {
        if (value->number) continue;
        if (list.Is(kListValue, kVarint)) {
          value->number = static_cast<int64_t>(list.number());
        } else if (list.Is(kListValue, kLengthDelimited) &&
                   !list.bytes().empty()) {
          // Packed: varints one after another, of which the first counts.
          std::string_view packed = list.bytes();
          uint64_t first;
          if (!TakeVarint(&packed, &first)) return false;
          value->number = static_cast<int64_t>(first);
        }
      }
      if (!list.ok()) return false;
    }
  }
  return feature.ok();
}

// Fields of an Example about its image; a long name has priority over a short
// one.
struct Found {
  Value encoded[3], format, height[2], width[2], channels[3], label[3], text;

  Value* Slot(std::string_view name) {
    if (name == "image/encoded") return &encoded[0];
    if (name == "image") return &encoded[1];
    if (name == "image_raw") return &encoded[2];
    if (name == "image/format") return &format;
    if (name == "image/height") return &height[0];
    if (name == "height") return &height[1];
    if (name == "image/width") return &width[0];
    if (name == "width") return &width[1];
    if (name == "image/channels") return &channels[0];
    if (name == "channels") return &channels[1];
    if (name == "depth") return &channels[2];
    if (name == "image/class/label") return &label[0];
    if (name == "label") return &label[1];
    if (name == "class") return &label[2];
    if (name == "image/class/text") return &text;
    return nullptr;
  }
};

bool ParseEntry(std::string_view message, Found* found) {
  std::string_view name, feature;
  Fields entry(message);
  while (entry.Next()) {
    if (entry.Is(kMapKey, kLengthDelimited)) name = entry.bytes();
    if (entry.Is(kMapValue, kLengthDelimited)) feature = entry.bytes();
  }
  Value value;
  if (!entry.ok() || !ParseFeature(feature, &value)) return false;
  // A key that comes twice: the last one counts, as protobuf has it for maps.
  if (Value* slot = found->Slot(name)) *slot = value;
  return true;
}

bool ParseExample(std::string_view message, Found* found) {
  Fields example(message);
  while (example.Next()) {
    if (!example.Is(kExampleFeatures, kLengthDelimited)) continue;
    Fields features(example.bytes());
    while (features.Next()) {
      if (features.Is(kFeaturesFeature, kLengthDelimited) &&
          !ParseEntry(features.bytes(), found)) {
        return false;
      }
    }
    if (!features.ok()) return false;
  }
  return example.ok();
}

template <size_t kNames>
std::optional<int64_t> Number(const Value (&values)[kNames]) {
  for (const Value& value : values) {
    if (value.number) return value.number;
  }
  return std::nullopt;
}

// Zero means unset; CheckShape rejects values that are too large.
template <size_t kNames>
uint32_t Side(const Value (&values)[kNames]) {
  const int64_t side = Number(values).value_or(0);
  constexpr uint32_t kMax = std::numeric_limits<uint32_t>::max();
  return side < 0 || side > kMax ? kMax : static_cast<uint32_t>(side);
}

StatusOr<ImageFormat> DecideFormat(const Found& found,
                                   std::string_view encoded) {
  const std::string_view format = found.format.bytes.value_or("");
  if (format == "raw" || format == "RAW") return ImageFormat::kRaw;
  if (format == "jpeg" || format == "JPEG" || format == "jpg" ||
      format == "JPG") {
    return ImageFormat::kJpeg;
  }
  if (!format.empty()) {
    return InvalidArgument("image/format is \"{}\", but must be jpeg or raw",
                           format.substr(0, 32));
  }
  // FF D8 FF begins every JPEG. Raw bytes come with a shape.
  const bool jpeg = encoded.substr(0, 3) == "\xff\xd8\xff";
  return jpeg ? ImageFormat::kJpeg : ImageFormat::kRaw;
}

}  // namespace

std::string_view FormatName(ImageFormat format) {
  return format == ImageFormat::kRaw ? "raw" : "jpeg";
}

std::string EncodeExample(const LabelledImage& image) {
  std::string features;
  AppendInt("image/channels", image.shape.channels, &features);
  AppendInt("image/class/label", static_cast<uint64_t>(image.label), &features);
  if (!image.class_name.empty()) {
    AppendBytes("image/class/text", image.class_name, &features);
  }
  AppendBytes("image/encoded", image.encoded, &features);
  AppendBytes("image/format", FormatName(image.format), &features);
  AppendInt("image/height", image.shape.height, &features);
  AppendInt("image/width", image.shape.width, &features);
  std::string example;
  AppendField(kExampleFeatures, features, &example);
  return example;
}

StatusOr<LabelledImage> DecodeExample(std::string_view record) {
  Found found;
  if (!ParseExample(record, &found)) {
    return DataLoss("the record is not a tf.train.Example");
  }
  LabelledImage image;
  bool has_image = false;
  for (const Value& value : found.encoded) {
    if (!value.bytes) continue;
    image.encoded = *value.bytes;
    has_image = true;
    break;
  }
  if (!has_image) {
    return InvalidArgument(
        "the Example has no image: the feature image/encoded is missing");
  }
  const std::optional<int64_t> label = Number(found.label);
  if (!label) {
    return InvalidArgument(
        "the Example has no label: the feature image/class/label is missing");
  }
  if (*label < 0 || *label > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("label {} is not in 0 to 2147483647", *label);
  }
  image.label = static_cast<int32_t>(*label);
  image.class_name = found.text.bytes.value_or("");
  LOCKSTEP_ASSIGN_OR_RETURN(image.format, DecideFormat(found, image.encoded));
  image.shape = {Side(found.height), Side(found.width), Side(found.channels)};
  if (image.format == ImageFormat::kJpeg) return image;

  LOCKSTEP_RETURN_IF_ERROR(CheckShape(image.shape));
  if (image.encoded.size() != image.shape.bytes()) {
    return InvalidArgument("the image has {} raw bytes, but {} needs {}",
                           image.encoded.size(), FormatShape(image.shape),
                           image.shape.bytes());
  }
  return image;
}

}  // namespace lockstep::worker::data
