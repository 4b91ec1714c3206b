#include "worker/agent/core/printable_text.h"

#include <gtest/gtest.h>

namespace lockstep::worker::agent {
namespace {

TEST(PrintableTextTest, TextIsCleanedAndCut) {
  EXPECT_EQ(PrintableText("plain\ttext\n", 100), "plain\ttext\n");
  EXPECT_EQ(PrintableText(std::string("a\0b\x1b[2J", 7), 100), "a?b?[2J");
  EXPECT_EQ(PrintableText("gr\xc3\xbc\xc3\x9f", 100), "gr\xc3\xbc\xc3\x9f");
  // Cut short, overlong, a surrogate, beyond U+10FFFF.
  EXPECT_EQ(PrintableText("\xc3", 100), "?");
  EXPECT_EQ(PrintableText("\xc0\xaf", 100), "??");
  EXPECT_EQ(PrintableText("\xed\xa0\x80", 100), "???");
  EXPECT_EQ(PrintableText("\xf4\x90\x80\x80", 100), "????");
  EXPECT_EQ(PrintableText("\xe2\x82\xac", 2), "");  // Never half a character.
  EXPECT_EQ(PrintableText(std::string(1000, 'x'), 10).size(), 10u);
}

}  // namespace
}  // namespace lockstep::worker::agent
