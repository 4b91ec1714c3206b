#include "sdk/c/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::c {
namespace {

const unsigned char* BytesOf(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// RFC 3720, appendix B.4.
TEST(Crc32cTest, IsThatOfTheStandard) {
  const std::string digits = "123456789";
  EXPECT_EQ(~AppendCrc32c(~0u, BytesOf(digits), digits.size()), 0xe3069283u);
  const std::string zeros(32, '\0');
  EXPECT_EQ(~AppendCrc32c(~0u, BytesOf(zeros), zeros.size()), 0x8a9136aau);
}

TEST(Crc32cTest, TableAndInstructionAgreeAtEachLengthAndPlace) {
  std::string text(300, '\0');
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<char>(i * 37 + i / 7);
  }
  for (size_t from = 0; from < 9; ++from) {
    for (size_t size = 0; from + size < text.size(); size += 7) {
      EXPECT_EQ(AppendCrc32c(7, BytesOf(text) + from, size),
                AppendCrc32cByTable(7, BytesOf(text) + from, size));
    }
  }
}

}  // namespace
}  // namespace lockstep::c
