// Reads whole shards and reports their contents and their damage.
#ifndef LOCKSTEP_WORKER_DATA_CHECK_H_
#define LOCKSTEP_WORKER_DATA_CHECK_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace lockstep::worker::data {

struct CheckOptions {
  // Also decodes every JPEG; without it only its header is read.
  bool decode = false;
  // Problems kept per shard; more are only counted.
  size_t max_problems = 20;
};

struct ShardReport {
  std::string path;
  uint64_t records = 0;  // Good ones.
  uint64_t bytes = 0;    // All records with their frames, up to the end or to
                         // the place where reading had to stop.
  uint64_t problem_count = 0;
  std::vector<std::string> problems;  // A sentence each, with file and offset.
};

struct ClassReport {
  uint64_t samples = 0;
  std::string name;  // Empty where the records have none.
};

struct CheckReport {
  std::vector<ShardReport> shards;
  uint64_t records = 0;  // Good ones.
  uint64_t bytes = 0;
  uint64_t problems = 0;
  std::map<int32_t, ClassReport> classes;  // By label.
  // "28 x 28 x 1 raw" -> how many.
  std::map<std::string, uint64_t> shapes;
};

// Checks every record of the shards at `paths`: both CRCs, the Example, the
// picture; and the number of records against the shard's name. Damage goes into
// the report and does not end it.
CheckReport CheckShards(const std::vector<std::string>& paths,
                        const CheckOptions& options);

}  // namespace lockstep::worker::data

#endif  // LOCKSTEP_WORKER_DATA_CHECK_H_
