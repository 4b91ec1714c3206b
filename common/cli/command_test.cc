#include "common/cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <sstream>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

struct Values {
  bool flag = false;
  bool check = true;
  int32_t number = 7;
  double seconds = 0;
  uint64_t bytes = 0;
  std::string text = "abc";
  std::optional<int32_t> maybe;
  std::vector<std::string> list;
  std::vector<std::string> repeated;
  std::string place;
  bool given = false;
};

Command All(Values* v) {
  Command command("program", "Does things", "\nExample:\n  program x");
  command.AddProgramFlags({1, "1.2", "", {}});
  command.Add("place PLACE", &v->place, "Where");
  command.Add("-f,--flag", &v->flag, "A flag");
  command.Add("--check 0|1", &v->check, "A bool", WithValue, ShowDefault);
  command.Add("-n,--number", &v->number, "A number", InRange(1, 9), ShowDefault,
              SetsGiven(&v->given));
  command.Add("--seconds", &v->seconds, "A time", AsTime, NotNegative);
  command.Add("--bytes SIZE", &v->bytes, "A size", AsSize, NotNegative);
  command.Add("--text", &v->text, "A text", OneOf({"abc", "def"}), ShowDefault,
              Excludes({"--flag"}), OrVariable("LOCKSTEP_COMMAND_TEST"));
  command.Add("--maybe", &v->maybe, "Perhaps",
              Checked([](const std::string& t) {
                return t == "13" ? "brings bad luck" : "";
              }));
  command.Add("--list", &v->list, "A list", SplitAt(','));
  command.Add("--repeated", &v->repeated, "Of one each", MayRepeat);
  command.Add("--hidden", &v->flag, "Not told", Hidden);
  return command;
}

// What is wrong with it.
std::string ErrorOf(const Command& command, std::vector<std::string> args) {
  const ParsedCommand parsed = Parse(command, std::move(args));
  EXPECT_EQ(parsed.command, nullptr);
  EXPECT_EQ(parsed.text, "");
  return parsed.error;
}

TEST(CommandTest, SetsWhatItIsBoundTo) {
  Values v;
  const Command command = All(&v);
  const ParsedCommand parsed =
      Parse(command, {"here", "-f", "--check", "0", "-n", "3", "--seconds=2h",
                      "--bytes", "1KiB", "--maybe", "4", "--list", "a,b",
                      "--repeated", "c", "--repeated", "d"});
  EXPECT_EQ(parsed.error, "");
  EXPECT_EQ(parsed.command, &command);
  EXPECT_TRUE(v.flag && v.given && !v.check);
  EXPECT_EQ(v.place, "here");
  EXPECT_EQ(v.number, 3);
  EXPECT_EQ(v.seconds, 7200);
  EXPECT_EQ(v.bytes, 1024u);
  EXPECT_EQ(v.maybe, 4);
  EXPECT_THAT(v.list, ElementsAre("a", "b"));
  EXPECT_THAT(v.repeated, ElementsAre("c", "d"));
}

TEST(CommandTest, NothingGivenLeavesTheDefaults) {
  Values v;
  const Command command = All(&v);
  setenv("LOCKSTEP_COMMAND_TEST", "def", 1);
  EXPECT_EQ(Parse(command, std::vector<std::string>()).error, "");
  unsetenv("LOCKSTEP_COMMAND_TEST");
  EXPECT_EQ(v.text, "def");
  EXPECT_EQ(v.number, 7);
  EXPECT_FALSE(v.given || v.maybe);
}

TEST(CommandTest, WhatIsWrongIsSaid) {
  Values v;
  const Command command = All(&v);
  EXPECT_THAT(ErrorOf(command, {"-n", "10"}), HasSubstr("--number: Value 10"));
  EXPECT_THAT(ErrorOf(command, {"--seconds", "2"}), HasSubstr("--seconds: "));
  EXPECT_EQ(ErrorOf(command, {"--bytes=-1"}),
            "--bytes: -1 must not be negative");
  EXPECT_THAT(ErrorOf(command, {"--text", "x"}), HasSubstr("--text: x not in"));
  EXPECT_THAT(ErrorOf(command, {"--text", "abc", "-f"}), HasSubstr("excludes"));
  EXPECT_EQ(ErrorOf(command, {"--maybe", "13"}), "--maybe: brings bad luck");
  EXPECT_THAT(ErrorOf(command, {"a", "b"}), HasSubstr("not expected: b"));
  EXPECT_THAT(ErrorOf(command, {"-n", "1", "-n", "2"}), HasSubstr("--number"));
}

TEST(CommandTest, TheLastWinsWhereThatIsWanted) {
  Values v;
  Command command = All(&v);
  command.last_wins = true;
  const ParsedCommand parsed =
      Parse(command, {"-n", "1", "--list", "a", "-n", "2", "--list", "b"});
  EXPECT_EQ(parsed.error, "");
  EXPECT_EQ(v.number, 2);
  EXPECT_THAT(v.list, ElementsAre("a", "b"));
}

TEST(CommandTest, TextsThatAreAskedFor) {
  Values v;
  const Command command = All(&v);
  const ParsedCommand help = Parse(command, {"--help"});
  EXPECT_EQ(help.command, nullptr);
  EXPECT_EQ(help.error, "");
  EXPECT_THAT(help.text, HasSubstr("Usage: program [OPTIONS] [place]\n"));
  EXPECT_THAT(help.text, HasSubstr("-n,--number INT:INT in [1 - 9]=7"));
  EXPECT_THAT(help.text, HasSubstr("--text TEXT:{abc,def}=abc"));
  EXPECT_THAT(help.text, Not(HasSubstr("--hidden")));
  EXPECT_EQ(Parse(command, {"--version"}).text, "program 1.2\n");
  EXPECT_THAT(Parse(command, {"--help-man"}).text,
              HasSubstr(".TH \"PROGRAM\""));
  std::ostringstream out, err;
  EXPECT_EQ(help.Print("oh: ", kRunWithHelp, out, err), 0);
  EXPECT_EQ(out.str(), help.text);
  EXPECT_EQ(err.str(), "");
  EXPECT_EQ(Parse(command, {"--no"}).Print("oh: ", kRunWithHelp, out, err), 2);
  EXPECT_EQ(err.str(),
            "oh: The following argument was not expected: --no\n"
            "Run with --help for more information.\n");
}

TEST(CommandTest, DashesAndUnderscoresInNamesAreEqual) {
  std::string level;
  bool loop = false;
  Command leaf("show", "Shows it");
  leaf.Add("--in-a-loop", &loop, "Loops");
  leaf.Add("-l,--log-level", &level, "Level", Excludes({"--in-a-loop"}));
  Command root("program", "Does things");
  root.children = {leaf};
  EXPECT_EQ(Parse(root, {"show", "--log_level", "a_b"}).error, "");
  EXPECT_EQ(level, "a_b");
  EXPECT_EQ(Parse(root, {"show", "--log-level=c"}).error, "");
  EXPECT_EQ(level, "c");
  EXPECT_EQ(Parse(root, {"show", "--in_a_loop"}).error, "");
  EXPECT_TRUE(loop);
  EXPECT_THAT(ErrorOf(root, {"show", "--in_a_loop", "--log_level", "a"}),
              HasSubstr("--in-a-loop excludes --log-level"));
  // Only words of a name: neither a value nor the leading dashes.
  EXPECT_NE(ErrorOf(root, {"show", "__log-level", "a"}), "");
  EXPECT_EQ(leaf.Find("--log_level"), leaf.Find("--log-level"));
  // Help, the manual page and errors show the name with dashes.
  const std::string help = Parse(root, {"show", "--help"}).text;
  EXPECT_THAT(help, HasSubstr("  -l,--log-level TEXT"));
  EXPECT_THAT(help, Not(HasSubstr("log_level")));
}

TEST(CommandTest, ACommandOfATreeIsFound) {
  std::string name;
  Command leaf("show", "Shows it");
  leaf.Add("name", &name, "What", Required);
  Command group("things", "Of things");
  group.alias = "thing";
  group.children = {leaf};
  Command root("program", "Does things");
  root.children = {group};
  const ParsedCommand parsed = Parse(root, {"thing", "show", "x"});
  EXPECT_EQ(parsed.command, root.Child("things")->Child("show"));
  EXPECT_EQ(name, "x");
  EXPECT_THAT(ErrorOf(root, {"things"}), HasSubstr("subcommand is required"));
  EXPECT_THAT(Parse(root, {"things", "show", "--help"}).text,
              HasSubstr("Usage: program things show [OPTIONS] name\n"));
}

TEST(FlagTest, SaysWhatItIs) {
  Values v;
  const Command command = All(&v);
  const Flag& number = *command.Find("-n");
  EXPECT_EQ(&number, command.Find("--number"));
  EXPECT_EQ(command.Find("--numb"), nullptr);
  EXPECT_THAT(number.Names(), ElementsAre("-n", "--number"));
  EXPECT_EQ(number.TypeName(), "INT");
  EXPECT_EQ(number.default_text, "7");
  EXPECT_TRUE(number.TakesValue() && !number.TakesMany());
  EXPECT_TRUE(command.Find("--list")->TakesMany());
  EXPECT_TRUE(command.Find("--check")->TakesValue());
  EXPECT_FALSE(command.Find("--flag")->TakesValue());
  EXPECT_TRUE(command.Find("--help")->IsHelp());
}

}  // namespace
}  // namespace lockstep
