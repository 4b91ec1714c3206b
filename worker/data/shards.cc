#include "worker/data/shards.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

namespace lockstep::worker::data {
namespace {

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9');
}

std::string_view Directory(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? "" : path.substr(0, slash);
}

// Takes "-DIGITS" off the end of `text`.
bool TakeNumber(std::string_view* text, uint64_t* number) {
  const size_t dash = text->rfind('-');
  if (dash == std::string_view::npos) return false;
  const std::string_view digits = text->substr(dash + 1);
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, *number);
  if (digits.empty() || error != std::errc() || stop != end) return false;
  text->remove_suffix(digits.size() + 1);
  return true;
}

Status AppendGlob(const std::string& pattern, std::vector<std::string>* paths) {
  glob_t found = {};
  const int code = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
  for (size_t i = 0; i < found.gl_pathc; ++i) {
    paths->emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  if (code == GLOB_NOMATCH) return NotFound("no file matches {}", pattern);
  if (code == GLOB_NOSPACE) {
    return ResourceExhausted("not enough memory to list {}", pattern);
  }
  if (code != 0) {
    return PermissionDenied("cannot read a directory of {}", pattern);
  }
  return OkStatus();
}

Status AppendPattern(FileSystem* fs, const std::string& pattern,
                     std::vector<std::string>* paths) {
  const StatusOr<FileInfo> info = fs->Stat(pattern);
  if (!info.ok()) {
    // A name with a [ in it may be a file: only what is none is a pattern.
    if (pattern.find_first_of("*?[") == std::string::npos) {
      return info.status();
    }
    return AppendGlob(pattern, paths);
  }
  if (!info->is_directory) {
    paths->push_back(pattern);
    return OkStatus();
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto names, fs->List(pattern));
  const size_t before = paths->size();
  for (const std::string& name : names) {
    // Hidden files are not part of a data set, as for a glob.
    if (name.ends_with(kShardSuffix) && name.front() != '.') {
      paths->push_back(JoinPath(pattern, name));
    }
  }
  if (paths->size() > before) return OkStatus();
  return NotFound("the directory {} has no *{} file", pattern, kShardSuffix);
}

}  // namespace

Status CheckDatasetName(const std::string& name) {
  const bool good =
      !name.empty() && name.size() <= 100 && IsLetterOrDigit(name.front()) &&
      std::all_of(name.begin(), name.end(), [](char c) {
        return IsLetterOrDigit(c) || c == '_' || c == '.' || c == '-';
      });
  if (good) return OkStatus();
  return InvalidArgument(
      "\"{}\" cannot be the name of a data set: use up to 100 letters, digits, "
      "_ . and -, and begin with a letter or digit",
      name);
}

std::string FormatShardName(std::string_view name, uint64_t index,
                            uint64_t shards, uint64_t count) {
  const size_t digits =
      std::max<size_t>(2, std::to_string(shards == 0 ? 0 : shards - 1).size());
  return fmt::format("{}-{:0{}}-{}{}", name, index, digits, count,
                     kShardSuffix);
}

std::optional<ShardName> ParseShardName(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash != std::string_view::npos) path.remove_prefix(slash + 1);
  if (!path.ends_with(kShardSuffix)) return std::nullopt;
  path.remove_suffix(kShardSuffix.size());
  ShardName shard;
  if (!TakeNumber(&path, &shard.count) || !TakeNumber(&path, &shard.index) ||
      path.empty()) {
    return std::nullopt;
  }
  shard.name = path;
  return shard;
}

StatusOr<std::vector<std::string>> FindShards(
    FileSystem* fs, const std::vector<std::string>& patterns) {
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    LOCKSTEP_RETURN_IF_ERROR(AppendPattern(fs, pattern, &paths));
  }
  if (paths.empty()) return InvalidArgument("no data files are given");
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());

  std::map<std::tuple<std::string, std::string, uint64_t>, std::string> seen;
  for (const std::string& path : paths) {
    const std::optional<ShardName> shard = ParseShardName(path);
    if (!shard) continue;
    const auto [other, is_new] = seen.try_emplace(
        {std::string(Directory(path)), shard->name, shard->index}, path);
    if (!is_new) {
      return FailedPrecondition(
          "{} and {} are both shard {} of {}: remove the older one",
          other->second, path, shard->index, shard->name);
    }
  }
  return paths;
}

}  // namespace lockstep::worker::data
