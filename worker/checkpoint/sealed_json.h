// JSON text that ends with a line holding its own CRC32C:
//
//   {
//     "step": 120
//   }
//   crc32c 1a2b3c4d
//
// A person can read it, and any flipped bit or cut is found. PURE. Nothing
// here throws.
#ifndef LOCKSTEP_WORKER_CHECKPOINT_SEALED_JSON_H_
#define LOCKSTEP_WORKER_CHECKPOINT_SEALED_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "worker/checkpoint/checksum.h"

namespace lockstep::worker::checkpoint {

// InvalidArgument where a string in `json` is not UTF-8.
StatusOr<std::string> Seal(const nlohmann::ordered_json& json);
// DataLoss unless Seal made `text`. `what` names the text in the error.
StatusOr<nlohmann::json> Unseal(std::string_view text, std::string_view what);

// Takes checked fields out of an object. The first error sticks; the value is
// then zero or empty. `json` must outlive the reader.
class FieldReader {
 public:
  explicit FieldReader(const nlohmann::json& json) : json_(json) {}

  uint64_t Unsigned(const char* key, uint64_t max = UINT64_MAX);
  int64_t Step(const char* key);
  uint64_t Hex64(const char* key);
  std::string String(const char* key, size_t max_size);
  // The member itself, of the given type; an empty one after an error. Lives
  // as long as the reader.
  const nlohmann::json& Member(const char* key, nlohmann::json::value_t type);
  FileSums Sums();

  const Status& status() const { return status_; }
  void Fail(const char* key, std::string_view want);

 private:
  const nlohmann::json& json_;
  const nlohmann::json null_;
  Status status_;
};

// The members that FieldReader::Sums reads: size, crc32c, blocks.
void PutSums(const FileSums& sums, nlohmann::ordered_json* json);
std::string Hex32(uint32_t value);
std::string Hex64(uint64_t value);

}  // namespace lockstep::worker::checkpoint

#endif  // LOCKSTEP_WORKER_CHECKPOINT_SEALED_JSON_H_
