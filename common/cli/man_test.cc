#include "common/cli/man.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ManTest, TextIsShownAsItIs) {
  EXPECT_EQ(RoffText(".a\\b-c\n'd"), "\\&.a\\eb\\-c\n\\&'d");
  EXPECT_EQ(RoffText("1,2, 3"), "1,\\:2, 3");
  EXPECT_EQ(RoffQuoted("a \"b\""), "\"a \\(dqb\\(dq\"");
  EXPECT_EQ(RoffProse("Text\n  code\nmore"),
            ".PP\nText\n.RS 4\n.nf\ncode\n.fi\n.RE\n.PP\nmore\n");
}

TEST(ManTest, APageTellsSharedFlagsOnceAndHiddenOnesNever) {
  bool quiet = false;
  std::string address, key, name;
  Command leaf("send", "Send a letter", "\nExamples:\n  post send a");
  leaf.Add("name NAME", &name, "To whom", Required);
  leaf.Add("-q,--quiet", &quiet, "Say nothing");
  leaf.Add("--old", &quiet, "As before", Hidden);
  const FlagGroup shared = leaf.Group("Connection (or else)");
  shared.Add("--address", &address, "Where it is");
  shared.Add("--key-file FILE", &key, "Of the door");
  Command root("post", "Letters: sends them", "\nThat is all.");
  root.AddProgramFlags({1, "2.0", "Connection", {"mail(1)", "box(8)"}});
  root.children = {leaf};
  EXPECT_EQ(
      ManualPage(root),
      ".TH \"POST\" 1 \"\" \"lockstep 2.0\" \"User commands\"\n.nh\n.ad l\n"
      ".SH NAME\npost \\- letters\n"
      ".SH SYNOPSIS\n.B post\n.I COMMAND\n[\\fIOPTIONS\\fR]\n"
      ".SH DESCRIPTION\n.PP\nLetters: sends them\n"
      ".SH OPTIONS\n"
      ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\n"
      "Print this help message and exit\n"
      ".TP\n\\fB\\-\\-version\\fR\n"
      "Display program version information and exit\n"
      ".SH COMMANDS\n.SS \"post send\"\n.B post send\n[\\fIOPTIONS\\fR]\n"
      ".I name\n.PP\nSend a letter.\n"
      ".TP\n\\fIname\\fR\nTo whom\n"
      ".TP\n\\fB\\-q\\fR, \\fB\\-\\-quiet\\fR\nSay nothing\n"
      ".PP\nExamples:\n.RS 4\n.nf\npost send a\n.fi\n.RE\n"
      ".SH \"CONNECTION OPTIONS\"\n"
      "For every command that connects to the coordinator.\n"
      ".TP\n\\fB\\-\\-address\\fR \\fITEXT\\fR\nWhere it is\n"
      ".TP\n\\fB\\-\\-key\\-file\\fR \\fIFILE\\fR\nOf the door\n"
      ".SH NOTES\n.PP\nThat is all.\n"
      ".SH \"SEE ALSO\"\n.BR mail (1) ,\n.BR box (8)\n");
}

}  // namespace
}  // namespace lockstep
