// Writes a data set as shards that appear all together.
#ifndef LOCKSTEP_WORKER_DATA_SHARD_WRITER_H_
#define LOCKSTEP_WORKER_DATA_SHARD_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"
#include "worker/data/example.h"
#include "worker/data/tfrecord.h"

namespace lockstep::worker::data {

struct ShardOptions {
  std::string directory;  // Made if it is missing.
  std::string name;       // As CheckDatasetName has it.
  uint64_t records_per_shard = 4096;
  // Shards of this name that are there: false refuses, true replaces them.
  bool overwrite = false;
};

struct WrittenShard {
  std::string path;
  uint64_t records = 0;
  uint64_t bytes = 0;
};

// Not synchronised. The shards grow in the hidden directory .NAME.packing and
// are renamed into place by Publish, so that no reader sees a part of a data
// set. Without Publish the destructor removes them; a later process removes the
// leftovers of a killed one.
class ShardWriter {
 public:
  // AlreadyExists where shards of this name are there and overwrite is false.
  static StatusOr<std::unique_ptr<ShardWriter>> Create(
      FileSystem* fs, const ShardOptions& options);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  Status Add(const LabelledImage& image);
  // Makes all durable and visible. FailedPrecondition when nothing was added.
  // Call once.
  StatusOr<std::vector<WrittenShard>> Publish();

 private:
  ShardWriter(FileSystem* fs, const ShardOptions& options,
              std::vector<std::string> old_shards);
  Status FinishShard();
  std::string TemporaryPath(size_t index) const;

  FileSystem* const fs_;
  const ShardOptions options_;
  const std::vector<std::string> old_shards_;
  const std::string temporary_;
  std::unique_ptr<TfRecordWriter> current_;
  std::vector<WrittenShard> shards_;  // Finished ones; paths come last.
};

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_SHARD_WRITER_H_
