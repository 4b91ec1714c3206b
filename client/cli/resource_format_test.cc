#include "client/cli/resource_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ordered_json Job(const std::string& name, const char* position = "0") {
  return {
      {"jobId", name},
      {"jobPosition", position},
      {"createTime", "2026-11-21T12:00:00Z"},
      {"labels", {{"team", "vision"}, {"a-b", "x,\"y\""}}},
      {"trainingInput", {{"useChiefInTfConfig", true}, {"args", {"a", "b"}}}},
      {"lockstep", {{"tasks", {{{"node", "host-a"}}, {{"node", "host-b"}}}}}}};
}

std::string Render(const std::string& format, bool is_list = false,
                   const std::vector<ordered_json>& all = {Job("fashion")}) {
  const auto parsed = ParseResourceFormat(format);
  EXPECT_TRUE(parsed.ok()) << format << ": " << parsed.status();
  return parsed.ok() ? RenderResources(all, is_list, *parsed) : "";
}

TEST(ResourceFormatTest, Values) {
  EXPECT_EQ(Render("value(jobId,labels.team)"), "fashion\tvision\n");
  EXPECT_EQ(Render("value( jobId , missing.x )"), "fashion\t\n");
  EXPECT_EQ(
      Render("value(trainingInput.args,trainingInput.useChiefInTfConfig)"),
      "a;b\tTrue\n");
  EXPECT_EQ(Render("value(trainingInput.args[1],lockstep.tasks[].node)"),
            "b\thost-a;host-b\n");
  EXPECT_EQ(Render("value(lockstep.tasks[0].node,lockstep.tasks[7].node)"),
            "host-a\t\n");
  EXPECT_EQ(Render("value[separator=\", \"](jobId,jobPosition)"),
            "fashion, 0\n");
  EXPECT_EQ(Render("value(labels)"), "team=vision;a-b=x,\"y\"\n");
}

TEST(ResourceFormatTest, CsvIsQuoted) {
  EXPECT_EQ(Render("csv(jobId,labels.a-b)"),
            "job_id,a-b\nfashion,\"x,\"\"y\"\"\"\n");
  EXPECT_EQ(Render("csv[no-heading](jobId)"), "fashion\n");
}

TEST(ResourceFormatTest, Tables) {
  EXPECT_EQ(Render("table(jobId,jobPosition:label=POS)"),
            "JOB_ID   POS\nfashion  0\n");
  EXPECT_EQ(Render("table[no-heading](jobId)"), "fashion\n");
  EXPECT_EQ(Render("table[box,title=Jobs](jobId,createTime)"),
            "+--------------------------------+\n"
            "|              Jobs              |\n"
            "+---------+----------------------+\n"
            "| JOB_ID  | CREATE_TIME          |\n"
            "+---------+----------------------+\n"
            "| fashion | 2026-11-21T12:00:00Z |\n"
            "+---------+----------------------+\n");
  EXPECT_EQ(Render("table[box,title=\"A long title\"](jobPosition:label=P)"),
            "+--------------+\n"
            "| A long title |\n"
            "+--------------+\n"
            "| P            |\n"
            "+--------------+\n"
            "| 0            |\n"
            "+--------------+\n");
  // What others named does not reach the terminal as it is.
  EXPECT_THAT(Render("table(jobId)", false, {Job("a\x1b[31m")}),
              HasSubstr("a\\x1b[31m"));
}

TEST(ResourceFormatTest, JsonAndYaml) {
  EXPECT_EQ(ordered_json::parse(Render("json")), Job("fashion"));
  EXPECT_EQ(ordered_json::parse(Render("json", true)),
            ordered_json::array({Job("fashion")}));
  EXPECT_EQ(Render("yaml(jobId,labels.team)"),
            "jobId: fashion\nlabels:\n  team: vision\n");
  EXPECT_EQ(Render("yaml(jobId)", true, {Job("a"), Job("b")}),
            "jobId: a\n---\njobId: b\n");
  EXPECT_EQ(Render("none"), "");
  EXPECT_EQ(Render("json", true, {}), "[]\n");
}

TEST(ResourceFormatTest, Refusals) {
  const auto refusal = [](const std::string& format) {
    return Message(ParseResourceFormat(format).status());
  };
  EXPECT_THAT(refusal("xml"), HasSubstr("there is no \"xml\"; there are json"));
  EXPECT_THAT(refusal(""), HasSubstr("there is no \"\""));
  EXPECT_THAT(refusal("value"), HasSubstr("give fields, as"));
  EXPECT_THAT(refusal("value(createTime.date())"),
              HasSubstr("column 22: there are no functions such as date()"));
  EXPECT_THAT(refusal("value(jobId"), HasSubstr("\")\" is missing"));
  EXPECT_THAT(refusal("value()"), HasSubstr("a field is missing"));
  EXPECT_THAT(refusal("value(jobId,)"), HasSubstr("a field is missing"));
  EXPECT_THAT(refusal("value(jobId)x"), HasSubstr("nothing may follow"));
  EXPECT_THAT(refusal("value(jobId:sort=1)"), HasSubstr("not :sort"));
  EXPECT_THAT(refusal("table[all-box](jobId)"),
              HasSubstr("no attribute \"all-box\""));
  EXPECT_THAT(refusal("value(a[x])"), HasSubstr("a number or nothing"));
  EXPECT_THAT(refusal("value(a[0)"), HasSubstr("\"]\" is missing"));
  EXPECT_THAT(refusal("table[title=\"x](a)"), HasSubstr("not closed"));
}

TEST(ResourceFormatTest, Sorting) {
  const std::vector<ordered_json> all = {Job("b", "10"), Job("a", "9"),
                                         Job("c", "9")};
  const auto order = [&](const std::string& keys) {
    const auto parsed = ParseSortKeys(keys);
    EXPECT_TRUE(parsed.ok()) << keys << ": " << parsed.status();
    return SortOrder(all, *parsed);
  };
  EXPECT_THAT(order("jobId"), ElementsAre(1, 0, 2));
  EXPECT_THAT(order("~jobId"), ElementsAre(2, 0, 1));
  EXPECT_THAT(order("jobPosition"), ElementsAre(1, 2, 0));  // As numbers.
  EXPECT_THAT(order("~jobPosition,~jobId"), ElementsAre(0, 2, 1));
  EXPECT_THAT(order("endTime"), ElementsAre(0, 1, 2));
  for (const char* bad : {"", "~", "a,,b", "a)", "a(b)"}) {
    EXPECT_THAT(Message(ParseSortKeys(bad).status()),
                HasSubstr("is not a field such as createTime"))
        << bad;
  }
}

}  // namespace
}  // namespace lockstep::cli
