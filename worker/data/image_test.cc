#include "worker/data/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "worker/data/jpeg.h"

namespace lockstep::worker::data {
namespace {

using testing::Each;
using testing::HasSubstr;

// Red to the right, green downwards.
Image Gradient(uint32_t height, uint32_t width, uint32_t channels) {
  Image image;
  image.shape = {height, width, channels};
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      image.pixels.push_back(static_cast<uint8_t>(255 * x / width));
      if (channels == 1) continue;
      image.pixels.push_back(static_cast<uint8_t>(255 * y / height));
      image.pixels.push_back(0);
    }
  }
  return image;
}

int LargestDifference(const Image& a, const Image& b) {
  EXPECT_EQ(a.shape, b.shape);
  int largest = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
  }
  return largest;
}

TEST(ResizeTest, SameSizeChangesNothing) {
  const Image image = Gradient(5, 7, 3);
  EXPECT_EQ(Resize(image, 5, 7).pixels, image.pixels);
}

TEST(ResizeTest, EveryPixelCountsWhenItShrinks) {
  Image image = Gradient(8, 8, 1);
  for (size_t i = 0; i < 64; ++i) image.pixels[i] = i % 2 == 0 ? 0 : 200;
  // Vertical stripes become an even grey, not one of the stripes.
  for (const uint8_t pixel : Resize(image, 2, 2).pixels) {
    EXPECT_NEAR(pixel, 100, 15);
  }
}

TEST(ResizeTest, GradientStaysAGradientInEitherDirection) {
  const Image large = Gradient(64, 48, 3);
  const Image small = Gradient(16, 12, 3);
  EXPECT_LE(LargestDifference(Resize(large, 16, 12), small), 12);
  EXPECT_LE(LargestDifference(Resize(small, 64, 48), large), 20);
  Image flat = Gradient(3, 3, 1);
  std::fill(flat.pixels.begin(), flat.pixels.end(), 77);
  EXPECT_THAT(Resize(flat, 10, 1).pixels, Each(77));
}

TEST(ShapeTest, SidesAndSizeAreBounded) {
  EXPECT_TRUE(CheckShape({1, 1, 1}).ok());
  EXPECT_TRUE(CheckShape({65535, 512, 4}).ok());
  EXPECT_FALSE(CheckShape({0, 1, 1}).ok());
  EXPECT_FALSE(CheckShape({1, 65536, 1}).ok());
  EXPECT_FALSE(CheckShape({1, 1, 5}).ok());
  EXPECT_FALSE(CheckShape({65535, 65535, 4}).ok());
}

TEST(JpegTest, DecodesWhatItEncodes) {
  for (const uint32_t channels : {1u, 3u}) {
    const Image image = Gradient(40, 56, channels);
    const auto jpeg = EncodeJpeg(image, 95);
    ASSERT_TRUE(jpeg.ok()) << jpeg.status();
    EXPECT_EQ(*ReadJpegShape(*jpeg), image.shape);
    const auto decoded = DecodeJpeg(*jpeg);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_LE(LargestDifference(*decoded, image), 16);
  }
}

TEST(JpegTest, GreyBecomesColourAndColourGreyWhereAsked) {
  const std::string grey = *EncodeJpeg(Gradient(8, 8, 1), 95);
  const auto colour = DecodeJpeg(grey, 3);
  ASSERT_TRUE(colour.ok()) << colour.status();
  EXPECT_EQ(colour->shape, (ImageShape{8, 8, 3}));
  for (size_t i = 0; i < colour->pixels.size(); i += 3) {
    EXPECT_EQ(colour->pixels[i], colour->pixels[i + 2]);
  }
  const auto back = DecodeJpeg(*EncodeJpeg(Gradient(8, 8, 3), 95), 1);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->shape, (ImageShape{8, 8, 1}));
}

TEST(JpegTest, EveryTruncationIsDataLoss) {
  const std::string jpeg = *EncodeJpeg(Gradient(24, 24, 3), 80);
  // The last two bytes are the end marker, without which no pixel is missing.
  for (size_t size = 0; size < jpeg.size() - 2; ++size) {
    const Status status =
        DecodeJpeg(std::string_view(jpeg).substr(0, size)).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << size;
  }
}

TEST(JpegTest, DamagedBytesNeverCrashNorEndTheProcess) {
  const std::string jpeg = *EncodeJpeg(Gradient(16, 16, 3), 80);
  for (size_t byte = 0; byte < jpeg.size(); ++byte) {
    std::string damaged = jpeg;
    damaged[byte] = static_cast<char>(~damaged[byte]);
    const auto image = DecodeJpeg(damaged);
    if (image.ok()) {
      EXPECT_EQ(image->pixels.size(), image->shape.bytes());
    }
  }
}

TEST(JpegTest, OtherFilesAreRefusedWithASentence) {
  const Status status = DecodeJpeg("\x89PNG\r\n\x1a\n....").status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("not a complete JPEG"));
}

TEST(JpegTest, AnotherSizeThanTheOneUsedIsNamed) {
  const std::string jpeg = *EncodeJpeg(Gradient(16, 24, 3), 80);
  std::vector<uint8_t> out(16 * 24 * 3);
  EXPECT_TRUE(DecodeJpegTo(jpeg, {16, 24, 3}, out.data()).ok());
  const Status status = DecodeJpegTo(jpeg, {24, 16, 3}, out.data());
  EXPECT_THAT(Message(status),
              HasSubstr("16 x 24, but the data set uses 24 x 16"));
}

}  // namespace
}  // namespace lockstep::worker::data
