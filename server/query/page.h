// Pages of a list, by the name of the last entry shown.
#ifndef LOCKSTEP_SERVER_QUERY_PAGE_H_
#define LOCKSTEP_SERVER_QUERY_PAGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace lockstep {

inline constexpr int32_t kDefaultPageSize = 50;
inline constexpr int32_t kMaxPageSize = 1000;

// Where a page ends at the latest: a message of gRPC has 4 MiB at most. One
// entry there always is.
inline constexpr size_t kMaxPageBytes = 3 << 20;

struct Page {
  size_t begin = 0;
  size_t end = 0;
  // Empty: nothing after this page.
  std::string next_token;
};

inline constexpr char kPageTokenPrefix[] = "after:";

// The entry that `token` names as the last one shown; empty: none.
inline std::string LastShown(const std::string& token) {
  return token.starts_with(kPageTokenPrefix)
             ? token.substr(sizeof(kPageTokenPrefix) - 1)
             : std::string();
}

// Cuts the page that follows the entry named in `token` (opaque: "after:NAME")
// out of entries whose names are `names`, in the order shown.
// InvalidArgument: the token is not one of ours, or its entry is gone.
inline StatusOr<Page> CutPage(const std::vector<std::string>& names,
                              int32_t page_size, const std::string& token) {
  if (page_size < 0) {
    return InvalidArgument("page_size: must be 0 or more, not {}", page_size);
  }
  if (page_size == 0) page_size = kDefaultPageSize;
  page_size = std::min(page_size, kMaxPageSize);
  Page page;
  if (!token.empty()) {
    const auto last = std::find(names.begin(), names.end(), LastShown(token));
    if (last == names.end()) {
      return InvalidArgument(
          "page_token: not one that this list gave; start again without it");
    }
    page.begin = static_cast<size_t>(last - names.begin()) + 1;
  }
  page.end =
      std::min(names.size(), page.begin + static_cast<size_t>(page_size));
  if (page.end < names.size())
    page.next_token = kPageTokenPrefix + names[page.end - 1];
  return page;
}

// Puts the entries of `page` into `out`, as `make(i)` says the i-th of `names`,
// and ends the page where they get too many bytes.
template <typename Make, typename Entries>
void FillPage(const std::vector<std::string>& names, const Make& make,
              Page* page, Entries* out) {
  size_t bytes = 0;
  for (size_t i = page->begin; i < page->end; ++i) {
    auto entry = make(i);
    bytes += entry.ByteSizeLong();
    if (i > page->begin && bytes > kMaxPageBytes) {
      page->end = i;
      page->next_token = kPageTokenPrefix + names[i - 1];
      return;
    }
    *out->Add() = std::move(entry);
  }
}

}  // namespace lockstep

#endif  // LOCKSTEP_SERVER_QUERY_PAGE_H_
