#include "common/yaml/yaml_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

struct Thing {
  std::string name;
  std::optional<bool> big;
  std::optional<int64_t> count;
  std::optional<double> weight;
  std::vector<std::string> args;
  std::map<std::string, std::string> labels;
};

StatusOr<Thing> Read(const std::string& text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const YamlValue root, LoadYaml(text, "a.yaml"));
  Thing thing;
  LOCKSTEP_RETURN_IF_ERROR(
      ReadFields(root, "Thing",
                 {{"name", Into(&thing.name)},
                  {"big", Into(&thing.big)},
                  {"count", Into(&thing.count)},
                  {"weight", Into(&thing.weight)},
                  {"args", Into(&thing.args)},
                  {"labels", Into(&thing.labels)}},
                 [](const std::string& name) -> std::string {
                   return name == "colour" ? "it is a field of Paint" : "";
                 }));
  return thing;
}

std::string YamlError(const std::string& text) {
  const auto thing = Read(text);
  EXPECT_EQ(thing.status().code(), StatusCode::kInvalidArgument) << text;
  return Message(thing.status());
}

TEST(YamlReaderTest, ReadsYamlAndJsonAlike) {
  for (const char* text :
       {"name: a\nbig: true\ncount: 3\nweight: 0.5\nargs: [x, 1]\n"
        "labels:\n  a: b\n  c:\n",
        "{\"name\": \"a\", \"big\": true, \"count\": \"3\", \"weight\": 0.5,\n"
        "\t\"args\": [\"x\", 1], \"labels\": {\"a\": \"b\", \"c\": \"\"}}"}) {
    const auto thing = Read(text);
    ASSERT_TRUE(thing.ok()) << thing.status();
    EXPECT_EQ(thing->name, "a");
    EXPECT_EQ(thing->big, true);
    EXPECT_EQ(thing->count, 3);
    EXPECT_EQ(thing->weight, 0.5);
    EXPECT_THAT(thing->args, ElementsAre("x", "1"));
    EXPECT_THAT(thing->labels, ElementsAre(Pair("a", "b"), Pair("c", "")));
  }
}

TEST(YamlReaderTest, AFieldWithNothingBehindItIsNotThere) {
  const auto thing = Read("name:\ncount:\nargs:\n");
  ASSERT_TRUE(thing.ok()) << thing.status();
  EXPECT_EQ(thing->name, "");
  EXPECT_EQ(thing->count, std::nullopt);
}

TEST(YamlReaderTest, WhatIsWrongIsNamedWithItsPlace) {
  EXPECT_EQ(YamlError("name: a\nlabel: {}\n"),
            "a.yaml:2:1: Thing has no field \"label\"; did you mean labels?");
  EXPECT_THAT(YamlError("xyz: 1"), HasSubstr("; there are name, big, count"));
  EXPECT_THAT(YamlError("colour: 1"), HasSubstr("; it is a field of Paint"));
  EXPECT_EQ(YamlError("name: a\ncount: two\n"),
            "a.yaml:2:8: count: \"two\" is not a whole number");
  EXPECT_THAT(YamlError("count: -1"),
              HasSubstr("must be 0..2147483647, not -1"));
  EXPECT_THAT(YamlError("count: 99999999999999999999"), HasSubstr("whole"));
  EXPECT_THAT(YamlError("weight: .inf"), HasSubstr("number of 0 or more"));
  EXPECT_THAT(YamlError("big: perhaps"),
              HasSubstr("big: must be true or false"));
  EXPECT_THAT(YamlError("name: [a]"),
              HasSubstr("1:7: name: is a single value"));
  EXPECT_THAT(YamlError("args: a"), HasSubstr("args: must be a list"));
  EXPECT_THAT(YamlError("args: [a, [b]]"), HasSubstr("args[1]: is a single"));
  EXPECT_THAT(YamlError("labels: [a]"), HasSubstr("\"name: value\" lines"));
  EXPECT_THAT(YamlError("name: a\nname: b"),
              HasSubstr("2:1: \"name\" is there"));
  EXPECT_THAT(YamlError("[a]: b"), HasSubstr("name must be a text"));
  EXPECT_THAT(YamlError("- a"),
              HasSubstr("1:1: must be \"name: value\" lines"));
}

TEST(YamlReaderTest, ATabIsNamed) {
  const std::string tab = ": a tab begins the line; indent YAML by blanks";
  EXPECT_EQ(YamlError("labels:\n\ta: b\n"), "a.yaml:2:1" + tab);
  EXPECT_EQ(YamlError("labels:\n  a: b\n  \tc: d\n"), "a.yaml:3:3" + tab);
  // One that does no harm is not what is wrong.
  EXPECT_THAT(YamlError("{\n\t\"name\": [a\n}"), Not(HasSubstr("tab")));
}

TEST(YamlReaderTest, BrokenTextIsAnError) {
  EXPECT_THAT(YamlError("name: [a"), HasSubstr("a.yaml:"));
  EXPECT_THAT(YamlError(""), HasSubstr("nothing in it"));
  EXPECT_THAT(YamlError("name: a\n---\nname: b\n"), HasSubstr("2 documents"));
  EXPECT_THAT(YamlError("&a [*a]"), HasSubstr("a.yaml:"));
  EXPECT_THAT(YamlError(std::string(100000, '[')), HasSubstr("a.yaml:"));
  EXPECT_THAT(YamlError(std::string("na\0me: a", 8)), HasSubstr("a.yaml"));
}

}  // namespace
}  // namespace lockstep
