#include "worker/checkpoint/layout.h"

#include <fmt/format.h>

#include <charconv>

namespace lockstep::worker::checkpoint {
namespace {

bool TakeLiteral(std::string_view* text, std::string_view literal) {
  if (!text->starts_with(literal)) return false;
  text->remove_prefix(literal.size());
  return true;
}

template <typename Int>
bool TakeNumber(std::string_view* text, Int* value) {
  const char* end = text->data() + text->size();
  const auto [after, error] = std::from_chars(text->data(), end, *value);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(after - text->data()));
  return true;
}

std::string_view WithoutTrailingSlashes(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return path;
}

}  // namespace

std::string CheckpointName(const CheckpointKey& key) {
  return fmt::format("step-{:09}.g{}", key.step, key.generation);
}

std::string StagingName(const AttemptKey& key) {
  return fmt::format(".tmp-{:09}.g{}.{}", key.step, key.generation, key.id);
}

std::string RankName(uint32_t rank) { return fmt::format("rank-{}", rank); }

std::string ShardName(uint32_t rank, uint32_t world_size) {
  return fmt::format("shard-{:05}-of-{:05}", rank, world_size);
}

// Both compare with what would have been written: "step-7.g7" or leading
// zeros would give one checkpoint two names.
std::optional<CheckpointKey> ParseCheckpointName(std::string_view name) {
  CheckpointKey key;
  std::string_view rest = name;
  if (TakeLiteral(&rest, "step-") && TakeNumber(&rest, &key.step) &&
      TakeLiteral(&rest, ".g") && TakeNumber(&rest, &key.generation) &&
      key.step >= 0 && key.step <= kMaxStep && CheckpointName(key) == name) {
    return key;
  }
  return std::nullopt;
}

std::optional<AttemptKey> ParseStagingName(std::string_view name) {
  AttemptKey key;
  std::string_view rest = name;
  if (TakeLiteral(&rest, ".tmp-") && TakeNumber(&rest, &key.step) &&
      TakeLiteral(&rest, ".g") && TakeNumber(&rest, &key.generation) &&
      TakeLiteral(&rest, ".") && TakeNumber(&rest, &key.id) && key.step >= 0 &&
      key.step <= kMaxStep && StagingName(key) == name) {
    return key;
  }
  return std::nullopt;
}

std::string BaseName(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path
                                                     : path.substr(slash + 1));
}

std::string ParentDir(std::string_view path) {
  path = WithoutTrailingSlashes(path);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(WithoutTrailingSlashes(path.substr(0, slash + 1)));
}

}  // namespace lockstep::worker::checkpoint
