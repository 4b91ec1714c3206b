#include "common/http/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::http {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(HttpTargetTest, PathAndQueryAreDecoded) {
  const auto target = ParseHttpTarget("/a%20b+c/%2e%2E?x=1&y=p%26q+r&x=2&&z");
  ASSERT_TRUE(target.ok()) << Message(target.status());
  EXPECT_EQ(target->path, "/a b+c/..");
  EXPECT_THAT(
      target->query,
      UnorderedElementsAre(Pair("x", "1"), Pair("y", "p&q r"), Pair("z", "")));
  EXPECT_THAT(target->parameters,
              ElementsAre(Pair("x", "1"), Pair("y", "p&q r"), Pair("x", "2"),
                          Pair("z", "")));
}

TEST(HttpTargetTest, AnEmptyQueryIsNone) {
  for (const char* text : {"/", "/?", "/?&&"}) {
    const auto target = ParseHttpTarget(text);
    ASSERT_TRUE(target.ok()) << text;
    EXPECT_EQ(target->path, "/");
    EXPECT_THAT(target->query, IsEmpty());
  }
}

TEST(HttpTargetTest, MalformedOnesAreRefused) {
  for (const char* text : {"", "*", "metrics", "http://a/metrics", "/%", "/%4",
                           "/%zz", "/%4g", "/a?b=%", "/a?%x=1"}) {
    EXPECT_EQ(ParseHttpTarget(text).status().code(),
              StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace lockstep::http
