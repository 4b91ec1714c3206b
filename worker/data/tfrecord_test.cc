#include "worker/data/tfrecord.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common/base/crc32c.h"
#include "worker/data/testing.h"

namespace lockstep::worker::data {
namespace {

using testing::HasSubstr;

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", c & 0xff);
  return hex;
}

class TfRecordTest : public DataTest {
 protected:
  // Records "r0", "r1r1", "r2r2r2" ...
  std::string WriteRecords(size_t count) {
    const std::string path = Path("records");
    auto writer = TfRecordWriter::Create(fs_, path);
    EXPECT_TRUE(writer.ok());
    for (size_t i = 0; i < count; ++i) {
      EXPECT_TRUE((*writer)->Append(Data(i)).ok());
    }
    EXPECT_TRUE((*writer)->Finish().ok());
    EXPECT_EQ((*writer)->bytes(), fs_->Stat(path)->size);
    return path;
  }
  static std::string Data(size_t i) {
    std::string data;
    for (size_t k = 0; k <= i; ++k) data += fmt::format("r{}", i);
    return data;
  }
  static Status ReadAll(const std::string& path, size_t* good) {
    *good = 0;
    auto reader = TfRecordReader::Open(path);
    if (!reader.ok()) return reader.status();
    for (;;) {
      std::string_view record;
      const StatusOr<bool> more = (*reader)->Next(&record);
      if (!more.ok()) return more.status();
      if (!*more) return OkStatus();
      EXPECT_EQ(record, Data(*good));
      ++*good;
    }
  }
};

// Bytes computed by an independent bitwise CRC32C after TensorFlow's format.
TEST(TfRecordFormatTest, RecordHasTensorFlowsBytes) {
  std::string bytes;
  AppendTfRecord("hello", &bytes);
  EXPECT_EQ(Hex(bytes), "0500000000000000eab2043e68656c6c6fbb1f1c19");
  bytes.clear();
  AppendTfRecord("", &bytes);
  EXPECT_EQ(Hex(bytes), "000000000000000029039807d8ea82a2");
}

TEST(TfRecordFormatTest, LengthAboveTheLimitIsRefusedThoughItsCrcIsRight) {
  std::string header("\0\0\0\0\0\0\0\x01", 8);  // 2^56.
  const uint32_t crc = MaskCrc32c(Crc32c(header));
  for (int i = 0; i < 4; ++i) header += static_cast<char>(crc >> (8 * i));
  const auto length = ParseTfRecordHeader(header);
  ASSERT_FALSE(length.ok());
  EXPECT_THAT(Message(length.status()), HasSubstr("at most"));
}

TEST(TfRecordFormatTest, TooFewBytesAreNoHeaderAndNoBody) {
  for (size_t size = 0; size < kTfRecordHeaderBytes; ++size) {
    EXPECT_FALSE(ParseTfRecordHeader(std::string(size, '\0')).ok());
  }
  EXPECT_FALSE(CheckTfRecordBody("abc").ok());
}

TEST_F(TfRecordTest, WhatIsWrittenIsReadInOrderAndAtRandom) {
  const std::string path = WriteRecords(50);
  size_t good;
  EXPECT_TRUE(ReadAll(path, &good).ok());
  EXPECT_EQ(good, 50u);
  const auto file = TfRecordFile::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ((*file)->records(), 50u);
  std::string buffer;
  for (const size_t i : {49u, 0u, 17u}) {
    EXPECT_EQ((*file)->Read(i, &buffer).value(), Data(i));
  }
  EXPECT_EQ((*file)->Read(50, &buffer).status().code(),
            StatusCode::kOutOfRange);
}

TEST_F(TfRecordTest, RecordsLargerThanAnyBufferAreRead) {
  const std::string path = Path("large");
  const std::string large(9 << 20, 'x');
  auto writer = TfRecordWriter::Create(fs_, path);
  ASSERT_TRUE(writer.ok());
  for (const std::string_view data :
       {std::string_view("a"), std::string_view(large),
        std::string_view("b")}) {
    ASSERT_TRUE((*writer)->Append(data).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  auto reader = TfRecordReader::Open(path);
  std::string_view record;
  ASSERT_TRUE((*reader)->Next(&record).value());
  EXPECT_EQ(record, "a");
  ASSERT_TRUE((*reader)->Next(&record).value());
  EXPECT_TRUE(record == large);
  ASSERT_TRUE((*reader)->Next(&record).value());
  EXPECT_EQ(record, "b");
  EXPECT_FALSE((*reader)->Next(&record).value());
  const auto file = TfRecordFile::Open(path);
  std::string buffer;
  EXPECT_TRUE((*file)->Read(1, &buffer).value() == large);
}

TEST_F(TfRecordTest, EmptyFileHasNoRecords) {
  const std::string path = Write("empty", "");
  size_t good;
  EXPECT_TRUE(ReadAll(path, &good).ok());
  EXPECT_EQ(good, 0u);
  EXPECT_EQ((*TfRecordFile::Open(path))->records(), 0u);
}

TEST_F(TfRecordTest, EveryFlippedBitIsFoundAndNamedWithItsRecord) {
  const std::string path = WriteRecords(3);
  const std::string intact = Read(path);
  const size_t second = 16 + 2;          // Where record 1 begins,
  const size_t third = second + 16 + 4;  // and record 2.
  for (size_t byte = second; byte < third; ++byte) {
    Flip(path, byte, static_cast<char>(1 << (byte % 8)));
    size_t good;
    const Status status = ReadAll(path, &good);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << "byte " << byte;
    EXPECT_THAT(
        Message(status),
        HasSubstr(fmt::format("{}: damaged record at byte {}:", path, second)));
    EXPECT_EQ(good, 1u);

    // Random access finds it too: headers when opening, data when reading.
    const auto file = TfRecordFile::Open(path);
    if (byte < second + kTfRecordHeaderBytes) {
      EXPECT_EQ(file.status().code(), StatusCode::kDataLoss);
    } else {
      ASSERT_TRUE(file.ok());
      std::string buffer;
      const Status read = (*file)->Read(1, &buffer).status();
      EXPECT_EQ(read.code(), StatusCode::kDataLoss);
      EXPECT_THAT(Message(read), HasSubstr(fmt::format("byte {}:", second)));
      EXPECT_TRUE((*file)->Read(2, &buffer).ok());
    }
    ASSERT_TRUE(fs_->WriteAtomic(path, intact).ok());
  }
}

TEST_F(TfRecordTest, ReadingGoesOnAfterDamagedDataAndStopsAtADamagedLength) {
  const std::string path = WriteRecords(3);
  Flip(path, 16 + 2 + 12);  // Data of record 1.
  auto reader = TfRecordReader::Open(path);
  std::string_view record;
  ASSERT_TRUE((*reader)->Next(&record).ok());
  EXPECT_FALSE((*reader)->Next(&record).ok());
  EXPECT_TRUE((*reader)->can_continue());
  ASSERT_TRUE((*reader)->Next(&record).ok());
  EXPECT_EQ(record, Data(2));

  Flip(path, 0);  // Length of record 0.
  reader = TfRecordReader::Open(path);
  const Status first = (*reader)->Next(&record).status();
  EXPECT_FALSE(first.ok());
  EXPECT_FALSE((*reader)->can_continue());
  EXPECT_EQ((*reader)->Next(&record).status(), first);
}

TEST_F(TfRecordTest, EveryTruncationIsFound) {
  const std::string path = WriteRecords(2);
  const std::string intact = Read(path);
  for (size_t size = 1; size < intact.size(); ++size) {
    if (size == 18) continue;  // Just record 0: a whole file.
    ASSERT_TRUE(fs_->WriteAtomic(path, intact.substr(0, size)).ok());
    size_t good;
    const Status status = ReadAll(path, &good);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << size;
    EXPECT_THAT(Message(status),
                HasSubstr(fmt::format("byte {}:", size < 18 ? 0 : 18)));
    EXPECT_EQ(TfRecordFile::Open(path).status().code(), StatusCode::kDataLoss);
  }
}

TEST_F(TfRecordTest, FileShortenedWhileOpenIsDataLoss) {
  const std::string path = WriteRecords(3);
  const auto file = TfRecordFile::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(::truncate(path.c_str(), 20), 0);
  std::string buffer;
  EXPECT_TRUE((*file)->Read(0, &buffer).ok());
  EXPECT_EQ((*file)->Read(2, &buffer).status().code(), StatusCode::kDataLoss);
}

TEST_F(TfRecordTest, DirectoriesFifosAndMissingFilesAreRefusedAtOnce) {
  EXPECT_THAT(Message(TfRecordReader::Open(directory_).status()),
              HasSubstr("not a regular file"));
  const std::string fifo = Path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(Message(TfRecordFile::Open(fifo).status()),
              HasSubstr("not a regular file"));
  const Status missing = TfRecordFile::Open(Path("none")).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(missing), HasSubstr(Path("none")));
}

}  // namespace
}  // namespace lockstep::worker::data
