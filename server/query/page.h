// Pages of a list, keyed by the name of the last entry shown.
#ifndef LOCKSTEP_SERVER_QUERY_PAGE_H_
#define LOCKSTEP_SERVER_QUERY_PAGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace lockstep::server {

inline constexpr int32_t kDefaultPageSize = 50;
inline constexpr int32_t kMaxPageSize = 1000;

// The maximum size of a page, below gRPC's message limit of 4 MiB. A page has
// at least one entry.
inline constexpr size_t kMaxPageBytes = 3 << 20;

struct Page {
  size_t begin = 0;
  size_t end = 0;
  // Empty on the last page.
  std::string next_token;
};

inline constexpr char kPageTokenPrefix[] = "after:";

// Returns the last shown entry from `token`, or "".
inline std::string LastShown(const std::string& token) {
  return token.starts_with(kPageTokenPrefix)
             ? token.substr(sizeof(kPageTokenPrefix) - 1)
             : std::string();
}

// Returns the page after the entry named in `token` (opaque: "after:NAME") from
// entries with `names` in display order. InvalidArgument if the token is
// invalid or its entry is gone.
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

// Appends the entries of `page` to `out` by `make(i)`, the i-th of `names`, and
// ends the page when they are too large.
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

}  // namespace lockstep::server

#endif  // LOCKSTEP_SERVER_QUERY_PAGE_H_
