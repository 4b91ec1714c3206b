#include "worker/checkpoint/sealed_json.h"

#include <charconv>

#include "common/base/crc32c.h"
#include "worker/checkpoint/layout.h"

namespace lockstep::worker::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view kSeal = "crc32c ";
constexpr size_t kSealSize = kSeal.size() + 8 + 1;

// Exactly `digits` lower-case hexadecimal digits, so that each value has one
// form and each changed bit is seen.
bool ParseHex(std::string_view text, size_t digits, uint64_t* value) {
  if (text.size() != digits) return false;
  for (char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  std::from_chars(text.data(), text.data() + text.size(), *value, 16);
  return true;
}

}  // namespace

std::string Hex32(uint32_t value) { return fmt::format("{:08x}", value); }
std::string Hex64(uint64_t value) { return fmt::format("{:016x}", value); }

StatusOr<std::string> Seal(const nlohmann::ordered_json& json) {
  std::string text;
  try {
    text = json.dump(1);
  } catch (const nlohmann::json::exception&) {
    return InvalidArgument("a value is not valid UTF-8: encode it as hex");
  }
  text += '\n';
  const uint32_t crc = Crc32c(text);
  text += kSeal;
  text += Hex32(crc);
  text += '\n';
  return text;
}

StatusOr<json> Unseal(std::string_view text, std::string_view what) {
  if (text.empty()) return DataLoss("{} is empty", what);
  uint64_t crc = 0;
  if (text.size() < kSealSize || text.back() != '\n' ||
      !text.substr(text.size() - kSealSize).starts_with(kSeal) ||
      !ParseHex(text.substr(text.size() - 9, 8), 8, &crc)) {
    return DataLoss("{} is truncated: its last line is not a checksum", what);
  }
  text.remove_suffix(kSealSize);
  if (Crc32c(text) != crc) {
    return DataLoss("{} is damaged: its CRC32C differs", what);
  }
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return DataLoss("{} is not a JSON object", what);
  return parsed;
}

void FieldReader::Fail(const char* key, std::string_view want) {
  if (status_.ok()) status_ = DataLoss("field {}: want {}", key, want);
}

const json& FieldReader::Member(const char* key, json::value_t type) {
  const auto it = json_.find(key);
  if (it == json_.end() || it->type() != type) {
    Fail(key, json(type).type_name());
    return null_;
  }
  return *it;
}

uint64_t FieldReader::Unsigned(const char* key, uint64_t max) {
  const auto it = json_.find(key);
  if (it == json_.end() || !it->is_number_unsigned() ||
      it->get<uint64_t>() > max) {
    Fail(key, fmt::format("a number up to {}", max));
    return 0;
  }
  return it->get<uint64_t>();
}

int64_t FieldReader::Step(const char* key) {
  return static_cast<int64_t>(Unsigned(key, kMaxStep));
}

uint64_t FieldReader::Hex64(const char* key) {
  uint64_t value = 0;
  if (!ParseHex(String(key, 16), 16, &value)) {
    Fail(key, "16 hexadecimal digits");
  }
  return value;
}

std::string FieldReader::String(const char* key, size_t max_size) {
  const auto it = json_.find(key);
  if (it == json_.end() || !it->is_string() ||
      it->get_ref<const std::string&>().size() > max_size) {
    Fail(key, fmt::format("text of at most {} bytes", max_size));
    return "";
  }
  return it->get<std::string>();
}

FileSums FieldReader::Sums() {
  FileSums sums;
  sums.size = Unsigned("size", kMaxFileBytes);
  uint64_t crc = 0;
  if (!ParseHex(String("crc32c", 8), 8, &crc)) {
    Fail("crc32c", "8 hexadecimal digits");
  }
  sums.crc = static_cast<uint32_t>(crc);
  // The text was bounded when it was read, so its own size bounds this.
  const std::string blocks = String("blocks", SIZE_MAX);
  const uint64_t count = BlockCount(sums.size);
  if (blocks.size() != (count == 0 ? 0 : count * 9 - 1)) {
    Fail("blocks", "8 hexadecimal digits for each 4 MiB block");
    return sums;
  }
  sums.blocks.reserve(count);
  for (size_t at = 0; at < blocks.size(); at += 9) {
    uint64_t block = 0;
    if (!ParseHex(std::string_view(blocks).substr(at, 8), 8, &block) ||
        (at + 8 < blocks.size() && blocks[at + 8] != ' ')) {
      Fail("blocks", "8 hexadecimal digits for each 4 MiB block");
      return sums;
    }
    sums.blocks.push_back(static_cast<uint32_t>(block));
  }
  return sums;
}

void PutSums(const FileSums& sums, nlohmann::ordered_json* json) {
  (*json)["size"] = sums.size;
  (*json)["crc32c"] = Hex32(sums.crc);
  std::string blocks;
  blocks.reserve(sums.blocks.size() * 9);
  for (uint32_t block : sums.blocks) {
    if (!blocks.empty()) blocks += ' ';
    blocks += Hex32(block);
  }
  (*json)["blocks"] = std::move(blocks);
}

}  // namespace lockstep::worker::checkpoint
