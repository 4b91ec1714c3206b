#include "server/query/page.h"

#include <gtest/gtest.h>

namespace lockstep::server {
namespace {

struct Entry {
  size_t bytes = 0;
  size_t ByteSizeLong() const { return bytes; }
};

struct Entries : std::vector<Entry> {
  Entry* Add() { return &emplace_back(); }
};

TEST(PageTest, EndsBeforeItGetsTooLargeAndGoesOnThere) {
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  // The second is too much beside the first, the third alone.
  const std::vector<size_t> sizes = {kMaxPageBytes - 10, 20, kMaxPageBytes + 1,
                                     1};
  const auto make = [&](size_t i) { return Entry{sizes[i]}; };
  std::vector<size_t> pages;
  std::string token;
  do {
    auto page = CutPage(names, 0, token);
    ASSERT_TRUE(page.ok()) << page.status();
    Entries out;
    FillPage(names, make, &*page, &out);
    pages.push_back(out.size());
    token = page->next_token;
  } while (!token.empty() && pages.size() < 10);
  EXPECT_EQ(pages, (std::vector<size_t>{1, 1, 1, 1}));
}

TEST(PageTest, IsWholeWhereThereIsRoom) {
  const std::vector<std::string> names = {"a", "b", "c"};
  auto page = CutPage(names, 2, "");
  ASSERT_TRUE(page.ok());
  Entries out;
  FillPage(
      names, [](size_t) { return Entry{kMaxPageBytes / 2}; }, &*page, &out);
  EXPECT_EQ(out.size(), 2u);
  EXPECT_EQ(page->next_token, "after:b");
}

}  // namespace
}  // namespace lockstep::server
