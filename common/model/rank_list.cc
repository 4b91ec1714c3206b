#include "common/model/rank_list.h"

#include <fmt/format.h>

namespace lockstep {

std::string RankList(const std::vector<int32_t>& ranks) {
  constexpr size_t kMostParts = 6;
  std::vector<std::string> parts;
  size_t named = 0;
  for (size_t i = 0; i < ranks.size() && parts.size() < kMostParts;) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    // Of two, no range.
    if (end - i == 2) end = i + 1;
    parts.push_back(end - i == 1
                        ? std::to_string(ranks[i])
                        : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    named += end - i;
    i = end;
  }
  if (named < ranks.size()) {
    parts.push_back(fmt::format("{} more", ranks.size() - named));
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

}  // namespace lockstep
