#include "worker/data/pack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/data/check.h"
#include "worker/data/dataset.h"
#include "worker/data/jpeg.h"
#include "worker/data/shards.h"
#include "worker/data/testing.h"

namespace lockstep::worker::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class PackTest : public DataTest {
 protected:
  ShardOptions Options(const std::string& name, uint64_t records = 4) {
    ShardOptions options;
    options.directory = Path("out");
    options.name = name;
    options.records_per_shard = records;
    return options;
  }
  // 10 images of 2 x 2 and their labels 0 to 9.
  StatusOr<PackResult> PackTen(const ShardOptions& options) {
    std::string images("\0\0\x08\x03\0\0\0\x0a\0\0\0\x02\0\0\0\x02", 16);
    std::string labels("\0\0\x08\x01\0\0\0\x0a", 8);
    for (int i = 0; i < 40; ++i) images += static_cast<char>(i);
    for (int i = 0; i < 10; ++i) labels += static_cast<char>(i);
    return PackIdx(fs_, Write("images", images), Write("labels", labels),
                   options);
  }
  void WriteJpeg(const std::string& name, uint32_t height, uint32_t width,
                 uint8_t shade) {
    Image image;
    image.shape = {height, width, 3};
    image.pixels.assign(image.shape.bytes(), shade);
    Write(name, *EncodeJpeg(image, 90));
  }
  void WriteAnimals() {
    for (const char* name : {"animals/dog", "animals/cat", "animals/.git"}) {
      ASSERT_TRUE(fs_->MakeDirs(Path(name)).ok());
    }
    for (int i = 0; i < 6; ++i) {
      WriteJpeg(fmt::format("animals/cat/{}.jpg", i), 12, 16,
                static_cast<uint8_t>(10 * i));
      WriteJpeg(fmt::format("animals/dog/{}.JPEG", i), 16, 12,
                static_cast<uint8_t>(100 + 10 * i));
    }
    Write("animals/cat/notes.txt", "no picture");
    Write("animals/README", "no class");
  }
  CheckReport Check(const std::string& directory) {
    const auto paths = FindShards(fs_, {directory});
    EXPECT_TRUE(paths.ok()) << paths.status();
    CheckOptions options;
    options.decode = true;
    return CheckShards(*paths, options);
  }
};

TEST(ShardNameTest, NamesAreFormedAndReadBack) {
  EXPECT_EQ(FormatShardName("catsdogs", 3, 45, 128), "catsdogs-03-128.tfrec");
  EXPECT_EQ(FormatShardName("x", 3, 1001, 9), "x-0003-9.tfrec");
  const auto shard = ParseShardName("/data/cats-and-dogs-07-24.tfrec");
  ASSERT_TRUE(shard.has_value());
  EXPECT_EQ(shard->name, "cats-and-dogs");
  EXPECT_EQ(shard->index, 7u);
  EXPECT_EQ(shard->count, 24u);
  for (const char* other :
       {"x.tfrec", "x-1.tfrec", "-01-2.tfrec", "x-1-2.tfrecord", "x-1-.tfrec",
        "x-1-2a.tfrec", "x-1-99999999999999999999999.tfrec", ""}) {
    EXPECT_FALSE(ParseShardName(other).has_value()) << other;
  }
}

TEST_F(PackTest, IdxBecomesShardsWhoseNamesSayTheirCount) {
  const auto packed = PackTen(Options("ten"));
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_THAT(
      *fs_->List(Path("out")),
      ElementsAre("ten-00-4.tfrec", "ten-01-4.tfrec", "ten-02-2.tfrec"));
  const auto data = Dataset::Open(fs_, {Path("out")});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT((*data)->counts(), ElementsAre(4, 4, 2));
  EXPECT_EQ(*(*data)->FirstShape(), (ImageShape{2, 2, 1}));
  std::string buffer;
  const auto image = (*data)->Read({1, 2}, &buffer);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->label, 6);
  EXPECT_EQ(image->encoded, "\x18\x19\x1a\x1b");
}

TEST_F(PackTest, CountThatIsAMultipleHasNoEmptyShard) {
  ASSERT_TRUE(PackTen(Options("ten", 5)).ok());
  EXPECT_THAT(*fs_->List(Path("out")),
              ElementsAre("ten-00-5.tfrec", "ten-01-5.tfrec"));
}

TEST_F(PackTest, ShardsThatAreThereAreKeptOrReplacedAsAWhole) {
  ASSERT_TRUE(PackTen(Options("ten", 3)).ok());
  ASSERT_TRUE(PackTen(Options("other", 10)).ok());
  const auto again = PackTen(Options("ten", 5));
  EXPECT_EQ(again.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(*fs_->List(Path("out")), SizeIs(5));
  ShardOptions options = Options("ten", 5);
  options.overwrite = true;
  ASSERT_TRUE(PackTen(options).ok());
  EXPECT_THAT(
      *fs_->List(Path("out")),
      ElementsAre("other-00-10.tfrec", "ten-00-5.tfrec", "ten-01-5.tfrec"));
}

TEST_F(PackTest, FailureLeavesNothingBehind) {
  const auto packed = PackIdx(fs_, Write("images", "no idx"),
                              Write("labels", ""), Options("bad"));
  EXPECT_FALSE(packed.ok());
  EXPECT_THAT(*fs_->List(Path("out")), IsEmpty());
}

TEST_F(PackTest, LeftoversOfAKilledPackingAreSweptAndNeverRead) {
  ASSERT_TRUE(fs_->MakeDirs(Path("out/.ten.packing")).ok());
  Write("out/.ten.packing/0", "half a shard");
  EXPECT_EQ(FindShards(fs_, {Path("out")}).status().code(),
            StatusCode::kNotFound);
  ASSERT_TRUE(PackTen(Options("ten", 10)).ok());
  EXPECT_THAT(*fs_->List(Path("out")), ElementsAre("ten-00-10.tfrec"));
}

TEST_F(PackTest, NamesThatWouldLeaveTheDirectoryAreRefused) {
  for (const char* name : {"", "../x", "a/b", ".x", "a b", "-x"}) {
    EXPECT_EQ(PackTen(Options(name)).status().code(),
              StatusCode::kInvalidArgument)
        << name;
  }
}

TEST_F(PackTest, JpegFolderKeepsFilesAndNamesItsClasses) {
  WriteAnimals();
  const auto packed =
      PackJpegFolder(fs_, Path("animals"), {}, Options("animals", 5));
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->samples, 12u);
  EXPECT_THAT(packed->classes, ElementsAre("cat", "dog"));
  EXPECT_EQ(Read(Path("out/animals-labels.txt")), "cat\ndog\n");
  const CheckReport report = Check(Path("out"));
  EXPECT_EQ(report.problems, 0u);
  EXPECT_EQ(report.classes.at(0).samples, 6u);
  EXPECT_EQ(report.classes.at(1).samples, 6u);
  EXPECT_EQ(report.classes.at(1).name, "dog");
  EXPECT_EQ(report.shapes.at("12 x 16 x 3 jpeg"), 6u);
  // Stored as they are.
  const auto data = Dataset::Open(fs_, {Path("out")});
  std::string buffer;
  const auto image = (*data)->Read({0, 0}, &buffer);
  ASSERT_TRUE(image.ok());
  std::vector<std::string> files;
  for (int i = 0; i < 6; ++i) {
    files.push_back(Read(Path(fmt::format("animals/cat/{}.jpg", i))));
    files.push_back(Read(Path(fmt::format("animals/dog/{}.JPEG", i))));
  }
  EXPECT_THAT(files, testing::Contains(std::string(image->encoded)));
}

TEST_F(PackTest, OrderOfAFolderDependsOnTheSeedAlone) {
  WriteAnimals();
  JpegFolderOptions folder;
  std::vector<std::string> bytes;
  for (const uint64_t seed : {1, 1, 2}) {
    folder.seed = seed;
    ShardOptions options = Options("animals", 100);
    options.overwrite = true;
    const auto packed = PackJpegFolder(fs_, Path("animals"), folder, options);
    ASSERT_TRUE(packed.ok()) << packed.status();
    bytes.push_back(Read(packed->shards[0].path));
  }
  EXPECT_TRUE(bytes[0] == bytes[1]);
  EXPECT_FALSE(bytes[0] == bytes[2]);
}

TEST_F(PackTest, SizeMakesAllPicturesAlikeAsJpegOrRaw) {
  WriteAnimals();
  JpegFolderOptions folder;
  folder.height = 8;
  folder.width = 6;
  ASSERT_TRUE(
      PackJpegFolder(fs_, Path("animals"), folder, Options("jpeg")).ok());
  folder.raw = true;
  ASSERT_TRUE(
      PackJpegFolder(fs_, Path("animals"), folder, Options("raw")).ok());
  const CheckReport report = Check(Path("out"));
  EXPECT_EQ(report.problems, 0u);
  EXPECT_THAT(report.shapes, ElementsAre(testing::Pair("8 x 6 x 3 jpeg", 12),
                                         testing::Pair("8 x 6 x 3 raw", 12)));
}

TEST_F(PackTest, DamagedPictureIsNamedOrLeftOut) {
  WriteAnimals();
  const std::string bad = Path("animals/cat/3.jpg");
  Truncate(bad, 200);
  JpegFolderOptions folder;
  const Status status =
      PackJpegFolder(fs_, Path("animals"), folder, Options("a")).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr(bad));
  folder.skip_damaged = true;
  const auto packed =
      PackJpegFolder(fs_, Path("animals"), folder, Options("a"));
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(packed->samples, 11u);
  EXPECT_THAT(packed->skipped, ElementsAre(HasSubstr(bad)));
}

TEST_F(PackTest, FolderWithoutClassesOrPicturesIsRefused) {
  ASSERT_TRUE(fs_->MakeDirs(Path("empty")).ok());
  EXPECT_THAT(
      Message(PackJpegFolder(fs_, Path("empty"), {}, Options("a")).status()),
      HasSubstr("directory with its name"));
  ASSERT_TRUE(fs_->MakeDirs(Path("empty/cat")).ok());
  EXPECT_THAT(
      Message(PackJpegFolder(fs_, Path("empty"), {}, Options("a")).status()),
      HasSubstr("empty/cat has no"));
}

TEST_F(PackTest, CheckNamesDamagedRecordsAndGoesOn) {
  ASSERT_TRUE(PackTen(Options("ten", 5)).ok());
  const std::string path = Path("out/ten-00-5.tfrec");
  const auto file = TfRecordFile::Open(path);
  ASSERT_TRUE(file.ok());
  Flip(path, (*file)->offset(1) + 20);
  Flip(path, (*file)->offset(3) + 20);
  const CheckReport report = Check(Path("out"));
  EXPECT_EQ(report.records, 8u);
  EXPECT_EQ(report.problems, 2u);
  EXPECT_THAT(
      report.shards[0].problems,
      ElementsAre(HasSubstr(fmt::format("{}: damaged record at byte {}:", path,
                                        (*file)->offset(1))),
                  HasSubstr(fmt::format("byte {}:", (*file)->offset(3)))));
  EXPECT_THAT(report.shards[1].problems, IsEmpty());
}

TEST_F(PackTest, CheckComparesTheCountWithTheName) {
  ASSERT_TRUE(PackTen(Options("ten", 5)).ok());
  const std::string path = Path("out/ten-00-5.tfrec");
  const auto file = TfRecordFile::Open(path);
  Truncate(path, (*file)->offset(3));  // A whole file, but too short.
  const CheckReport report = Check(Path("out"));
  EXPECT_THAT(report.shards[0].problems,
              ElementsAre(HasSubstr("3 records, but its name says 5")));
  const Status opened = Dataset::Open(fs_, {Path("out")}).status();
  EXPECT_EQ(opened.code(), StatusCode::kDataLoss);
  EXPECT_THAT(Message(opened), HasSubstr(path));
}

TEST_F(PackTest, CheckFindsRecordsThatAreNoPictures) {
  std::string bytes;
  AppendTfRecord("no example", &bytes);
  AppendTfRecord(std::string(3, '\0'), &bytes);
  const CheckReport report = CheckShards({Write("x.tfrec", bytes)}, {});
  EXPECT_EQ(report.records, 0u);
  EXPECT_THAT(
      report.shards[0].problems,
      ElementsAre(
          HasSubstr("record 0 at byte 0: the record is not a tf.train.Example"),
          HasSubstr("record 1 at byte 26")));
}

TEST_F(PackTest, ShardsAreFoundByFileDirectoryAndPattern) {
  ASSERT_TRUE(PackTen(Options("ten", 5)).ok());
  const std::string first = Path("out/ten-00-5.tfrec");
  const std::string second = Path("out/ten-01-5.tfrec");
  EXPECT_THAT(*FindShards(fs_, {second, Path("out")}),
              ElementsAre(first, second));
  EXPECT_THAT(*FindShards(fs_, {Path("out/*-01-*.tfrec")}),
              ElementsAre(second));
  EXPECT_EQ(FindShards(fs_, {Path("out/*.csv")}).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(FindShards(fs_, {Path("none")}).status().code(),
            StatusCode::kNotFound);
  EXPECT_FALSE(FindShards(fs_, {}).ok());
}

TEST_F(PackTest, TwoFilesOfOneShardAreRefused) {
  ASSERT_TRUE(PackTen(Options("ten", 5)).ok());
  Write("out/ten-00-3.tfrec", "");
  const Status status = FindShards(fs_, {Path("out")}).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("both shard 0 of ten"));
}

}  // namespace
}  // namespace lockstep::worker::data
