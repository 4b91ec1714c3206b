// The files of a data set: their names, and finding them.
//
// A shard is NAME-NN-COUNT.tfrec: NN numbers the shards of NAME from 0 with as
// many digits as the last needs, at least two; COUNT is how many records it
// holds, so that steps per epoch are known without opening it.
#ifndef LOCKSTEP_WORKER_DATA_SHARDS_H_
#define LOCKSTEP_WORKER_DATA_SHARDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/file.h"
#include "common/base/status.h"

namespace lockstep::worker::data {

inline constexpr std::string_view kShardSuffix = ".tfrec";

struct ShardName {
  std::string name;
  uint64_t index = 0;
  uint64_t count = 0;
};

// InvalidArgument unless `name` can be a NAME: up to 100 letters, digits, _ .
// and -, beginning with a letter or digit.
Status CheckDatasetName(const std::string& name);

// "NAME-NN-COUNT.tfrec". `shards` is how many there are in all.
std::string FormatShardName(std::string_view name, uint64_t index,
                            uint64_t shards, uint64_t count);
// Parses a file name or path. No value: another name, which is allowed.
std::optional<ShardName> ParseShardName(std::string_view path);

// Returns the shard files of `patterns`, sorted, each once. A pattern is a
// file, a directory (all *.tfrec in it) or a glob(7) pattern. NotFound: a
// pattern matches no file. FailedPrecondition: two files of one directory are
// the same shard, as an interrupted packing leaves them.
StatusOr<std::vector<std::string>> FindShards(
    FileSystem* fs, const std::vector<std::string>& patterns);

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_SHARDS_H_
