// For tests only: a directory that goes away, and small data sets in it.
#ifndef LOCKSTEP_WORKER_DATA_TESTING_H_
#define LOCKSTEP_WORKER_DATA_TESTING_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <string_view>

#include "common/base/file.h"
#include "worker/data/example.h"
#include "worker/data/shard_writer.h"

namespace lockstep::worker::data {

class DataTest : public testing::Test {
 protected:
  DataTest() {
    char path[] = "/tmp/lockstep-data-test-XXXXXX";
    EXPECT_NE(mkdtemp(path), nullptr);
    directory_ = path;
  }
  ~DataTest() override { (void)fs_->RemoveAll(directory_); }

  std::string Path(std::string_view name) const {
    return JoinPath(directory_, name);
  }
  std::string Write(std::string_view name, std::string_view bytes) {
    const std::string path = Path(name);
    EXPECT_TRUE(fs_->WriteAtomic(path, bytes).ok());
    return path;
  }
  std::string Read(const std::string& path) {
    StatusOr<std::string> bytes = fs_->Read(path);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return bytes.ok() ? *bytes : "";
  }
  // Turns over the bits of `mask` in the byte at `offset`.
  void Flip(const std::string& path, size_t offset, char mask = 0x10) {
    std::string bytes = Read(path);
    ASSERT_LT(offset, bytes.size());
    bytes[offset] = static_cast<char>(bytes[offset] ^ mask);
    ASSERT_TRUE(fs_->WriteAtomic(path, bytes).ok());
  }
  void Truncate(const std::string& path, size_t size) {
    ASSERT_TRUE(fs_->WriteAtomic(path, Read(path).substr(0, size)).ok());
  }

  // `samples` raw images of 2 x 2 x 1, of which image i has the label i and
  // its number in its first two bytes.
  void WriteNumbered(const std::string& directory, uint64_t samples,
                     uint64_t records_per_shard) {
    ShardOptions options;
    options.directory = directory;
    options.name = "numbered";
    options.records_per_shard = records_per_shard;
    const auto writer = ShardWriter::Create(fs_, options);
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (uint64_t i = 0; i < samples; ++i) {
      const std::string pixels = {static_cast<char>(i & 0xff),
                                  static_cast<char>(i >> 8), 0, 0};
      LabelledImage image;
      image.encoded = pixels;
      image.shape = {2, 2, 1};
      image.label = static_cast<int32_t>(i);
      ASSERT_TRUE((*writer)->Add(image).ok());
    }
    const auto shards = (*writer)->Publish();
    ASSERT_TRUE(shards.ok()) << shards.status();
  }

  FileSystem* const fs_ = RealFileSystem();
  std::string directory_;
};

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_TESTING_H_
