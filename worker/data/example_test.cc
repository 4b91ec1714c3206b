#include "worker/data/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::worker::data {
namespace {

using testing::HasSubstr;

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(
        std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

LabelledImage Cat() {
  LabelledImage image;
  image.encoded = "abcdef";
  image.shape = {2, 3, 1};
  image.label = 300;
  image.class_name = "cat";
  return image;
}

// What protoc --encode=tensorflow.Example --deterministic_output makes of the
// same features.
constexpr std::string_view kCatHex =
    "0ab6010a170a0e696d6167652f6368616e6e656c7312051a030a01010a1b0a11696d61"
    "67652f636c6173732f6c6162656c12061a040a02ac020a1b0a10696d6167652f636c61"
    "73732f7465787412070a050a036361740a1b0a0d696d6167652f656e636f646564120a"
    "0a080a066162636465660a170a0c696d6167652f666f726d617412070a050a03726177"
    "0a150a0c696d6167652f68656967687412051a030a01020a140a0b696d6167652f7769"
    "64746812051a030a0103";
// The same of {weights: [1.0, 2.0], label: [7, 8], image: ff d8 ff e0}.
constexpr std::string_view kShortNamesHex =
    "0a3d0a110a05696d61676512080a060a04ffd8ffe00a0f0a056c6162656c12061a040a"
    "0207080a170a0777656967687473120c120a0a080000803f00000040";

TEST(ExampleTest, EncodesAsProtobufDoes) {
  EXPECT_EQ(EncodeExample(Cat()), FromHex(kCatHex));
}

TEST(ExampleTest, DecodesWhatItEncodes) {
  const std::string record = EncodeExample(Cat());
  const auto image = DecodeExample(record);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->format, ImageFormat::kRaw);
  EXPECT_EQ(image->encoded, "abcdef");
  EXPECT_EQ(image->shape, (ImageShape{2, 3, 1}));
  EXPECT_EQ(image->label, 300);
  EXPECT_EQ(image->class_name, "cat");
}

TEST(ExampleTest, DecodesShortNamesAndFindsOutThatItIsAJpeg) {
  const std::string record = FromHex(kShortNamesHex);
  const auto image = DecodeExample(record);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->format, ImageFormat::kJpeg);
  EXPECT_EQ(image->encoded.size(), 4u);
  EXPECT_EQ(image->label, 7);
}

TEST(ExampleTest, UnpackedNumbersAreRead) {
  // features { feature { key: "label" value { int64_list { value: 5 } } } and
  // an image, the number as a plain varint field.
  std::string record = FromHex(
      "0a2b0a0f0a056c6162656c12061a0408050800"  // label: 5, then 0
      "0a180a05696d616765120f0a0d0a0bffd8ff0000000000000000");
  const auto image = DecodeExample(record);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->label, 5);
}

TEST(ExampleTest, EveryTruncationIsRefusedAndNoneCrashes) {
  const std::string record = EncodeExample(Cat());
  for (size_t size = 0; size < record.size(); ++size) {
    EXPECT_FALSE(DecodeExample(std::string_view(record).substr(0, size)).ok())
        << size;
  }
}

TEST(ExampleTest, DamagedBytesNeverCrash) {
  const std::string record = EncodeExample(Cat());
  for (size_t byte = 0; byte < record.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = record;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      const auto image = DecodeExample(damaged);
      if (image.ok() && image->format == ImageFormat::kRaw) {
        EXPECT_EQ(image->encoded.size(), image->shape.bytes());
      }
    }
  }
}

TEST(ExampleTest, SaysWhichFeatureIsMissingOrWrong) {
  EXPECT_THAT(Message(DecodeExample("").status()), HasSubstr("image/encoded"));
  EXPECT_EQ(DecodeExample("no protobuf").status().code(),
            StatusCode::kDataLoss);

  LabelledImage image = Cat();
  image.label = -1;
  EXPECT_THAT(Message(DecodeExample(EncodeExample(image)).status()),
              HasSubstr("label -1"));
  image = Cat();
  image.encoded = "abcde";
  EXPECT_THAT(Message(DecodeExample(EncodeExample(image)).status()),
              HasSubstr("5 raw bytes, but 2 x 3 x 1 needs 6"));
  image = Cat();
  image.shape = {0, 3, 1};
  EXPECT_FALSE(DecodeExample(EncodeExample(image)).ok());
  image.shape = {60000, 60000, 4};
  EXPECT_THAT(Message(DecodeExample(EncodeExample(image)).status()),
              HasSubstr("more than"));
}

}  // namespace
}  // namespace lockstep::worker::data
