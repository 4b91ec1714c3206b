#include "worker/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/support/idx_files.h"
#include "worker/data/gzip.h"
#include "worker/data/testing.h"

namespace lockstep::worker::data {
namespace {

using testing::HasSubstr;

std::string Images(uint32_t count, uint32_t height, uint32_t width) {
  std::string bytes = BigEndian(0x803) + BigEndian(count) + BigEndian(height) +
                      BigEndian(width);
  for (uint32_t i = 0; i < count * height * width; ++i) {
    bytes += static_cast<char>(i);
  }
  return bytes;
}
std::string Labels(std::string_view labels) {
  return BigEndian(0x801) + BigEndian(static_cast<uint32_t>(labels.size())) +
         std::string(labels);
}

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8,
                         Z_DEFAULT_STRATEGY),
            Z_OK);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(IdxTest, ReadsImagesOfThreeAndFourDimensions) {
  const std::string grey = Images(3, 2, 4);
  const auto images = ParseIdxImages(grey, "f");
  ASSERT_TRUE(images.ok()) << images.status();
  EXPECT_EQ(images->count, 3u);
  EXPECT_EQ(images->shape, (ImageShape{2, 4, 1}));
  EXPECT_EQ(images->image(2), grey.substr(16 + 16, 8));

  const std::string colour = BigEndian(0x804) + BigEndian(1) + BigEndian(2) +
                             BigEndian(2) + BigEndian(3) + "abcdefghijkl";
  const auto rgb = ParseIdxImages(colour, "f");
  ASSERT_TRUE(rgb.ok()) << rgb.status();
  EXPECT_EQ(rgb->shape, (ImageShape{2, 2, 3}));
}

TEST(IdxTest, WrongMagicNumbersAreNamed) {
  const Status swapped = ParseIdxImages(Labels("abc"), "labels.gz").status();
  EXPECT_EQ(swapped.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(swapped),
              HasSubstr("labels.gz: the magic number at byte 0 is 0x00000801, "
                        "but IDX images have 0x00000803"));
  EXPECT_FALSE(ParseIdxLabels(Images(1, 1, 1), "f").ok());
  EXPECT_FALSE(ParseIdxImages("PNG...........", "f").ok());
}

TEST(IdxTest, WrongSizesAreNamedWithTheirOffset) {
  const std::string good = Images(2, 3, 3);
  for (size_t size = 0; size < good.size(); ++size) {
    const Status status = ParseIdxImages(good.substr(0, size), "f").status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << size;
    EXPECT_THAT(Message(status),
                HasSubstr(fmt::format("truncated at byte {},", size)));
  }
  EXPECT_THAT(Message(ParseIdxImages(good + "xy", "f").status()),
              HasSubstr("2 extra bytes from byte 34"));
  EXPECT_THAT(Message(ParseIdxLabels(Labels("abc") + "d", "f").status()),
              HasSubstr("1 extra bytes from byte 11"));
  // 2^32 images of 65535 x 512: no allocation, no overflow.
  EXPECT_FALSE(ParseIdxImages(BigEndian(0x803) + BigEndian(0xffffffff) +
                                  BigEndian(65535) + BigEndian(512),
                              "f")
                   .ok());
  EXPECT_THAT(Message(ParseIdxImages(BigEndian(0x803) + BigEndian(1) +
                                         BigEndian(0) + BigEndian(5),
                                     "f")
                          .status()),
              HasSubstr("at byte 8"));
}

TEST(GzipTest, AllMembersAreRead) {
  EXPECT_EQ(*Gunzip(Gzip("hello ") + Gzip("world"), "f", 100), "hello world");
  EXPECT_EQ(*Gunzip(Gzip(""), "f", 0), "");
  const std::string large(5 << 20, 'x');
  EXPECT_TRUE(*Gunzip(Gzip(large), "f", large.size()) == large);
}

TEST(GzipTest, MoreThanTheLimitIsRefused) {
  const std::string zip = Gzip(std::string(5 << 20, 'x'));
  const Status status = Gunzip(zip, "bomb.gz", (5 << 20) - 1).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("bomb.gz"));
}

TEST(GzipTest, EveryTruncationAndDamageIsNamedWithItsOffset) {
  const std::string zip = Gzip(Images(4, 5, 5));
  for (size_t size = 0; size < zip.size(); ++size) {
    const Status status = Gunzip(zip.substr(0, size), "f.gz", 1000).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << size;
    EXPECT_THAT(Message(status),
                HasSubstr(fmt::format("f.gz: the gzip data is cut off at byte "
                                      "{}",
                                      size)));
  }
  std::string damaged = zip;
  damaged[zip.size() - 6] ^= 1;  // In the CRC at the end.
  EXPECT_THAT(Message(Gunzip(damaged, "f.gz", 1000).status()),
              HasSubstr("damaged gzip data at byte"));
  EXPECT_FALSE(Gunzip(zip + "garbage", "f.gz", 1000).ok());
}

class IdxDatasetTest : public DataTest {};

TEST_F(IdxDatasetTest, ReadsPlainAndGzipFilesAlike) {
  const std::string images = Write("images.gz", Gzip(Images(3, 2, 2)));
  const std::string labels = Write("labels", Labels("\x01\xff\x03"));
  const auto data = IdxDataset::Read(fs_, images, labels);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->count(), 3u);
  EXPECT_EQ(data->label(1), 255);
  EXPECT_EQ(data->image(1), std::string("\x04\x05\x06\x07"));
}

TEST_F(IdxDatasetTest, FilesThatDoNotBelongTogetherAreRefused) {
  const std::string images = Write("images", Images(3, 2, 2));
  const std::string labels = Write("labels", Labels("ab"));
  EXPECT_THAT(Message(IdxDataset::Read(fs_, images, labels).status()),
              HasSubstr("3 images"));
  const std::string none = Write("none", Images(0, 2, 2));
  const std::string no_labels = Write("no_labels", Labels(""));
  EXPECT_THAT(Message(IdxDataset::Read(fs_, none, no_labels).status()),
              HasSubstr("no images"));
}

}  // namespace
}  // namespace lockstep::worker::data
