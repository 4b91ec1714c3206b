#include "server/page/grafana_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lockstep::server {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr char kWholeUrl[] =
    "https://g.example:3000/grafana/d/lockstep-job?var-cluster={cluster}"
    "&var-job_id={job}&from={from}&to={to}#top";

TEST(GrafanaLinkTest, HasTheJobAndItsTime) {
  ASSERT_EQ(GrafanaUrlFault(kWholeUrl), "");
  const WallTime from = FromUnixNanos(1'767'225'600'123'456'789);
  EXPECT_EQ(GrafanaLink(kWholeUrl, "lab", "train", from, std::nullopt),
            "https://g.example:3000/grafana/d/lockstep-job?var-cluster=lab"
            "&var-job_id=train&from=1767225600123&to=now#top");
  EXPECT_EQ(
      GrafanaLink(kWholeUrl, "lab", "train", from, from + milliseconds(5000)),
      "https://g.example:3000/grafana/d/lockstep-job?var-cluster=lab"
      "&var-job_id=train&from=1767225600123&to=1767225605123#top");
}

// A name may not add a parameter, nor be taken for another name in braces.
TEST(GrafanaLinkTest, NamesStayNames) {
  EXPECT_EQ(GrafanaLink("http://g/{job}/{cluster}", "{job}", "a&b=\"{to}/..",
                        {}, std::nullopt),
            "http://g/a%26b%3D%22%7Bto%7D%2F../%7Bjob%7D");
}

TEST(GrafanaLinkTest, WhatIsNoAddressIsRefused) {
  EXPECT_EQ(GrafanaUrlFault(""), "");
  EXPECT_EQ(GrafanaUrlFault("http://g/{job}"), "");
  const std::string scheme = "must begin with http:// or https://";
  const std::string braces = "braces must be those of";
  const std::string characters = "with other characters as %XX";
  for (const auto& [url, fault] :
       {std::pair<std::string, std::string>("g.example/{job}", scheme),
        {"javascript:alert(1)//{job}", scheme},
        {"HTTPS", scheme},
        {"https:///{job}", "must name a host"},
        {"https://{job}/", "must name a host"},
        {"https://g/", "must contain {job}"},
        {"https://g/{cluster}", "must contain {job}"},
        {"https://g/{job}/{jobs}", braces},
        {"https://g/{job}/{}", braces},
        {"https://g/{job}/{", braces},
        {"https://g/}{job}", braces},
        {"https://g/{{job}}", braces},
        {"https://g/a b/{job}", characters},
        {"https://g/\"/{job}", characters},
        {"https://g/\n/{job}", characters},
        {"https://g/\xc3\xa4/{job}", characters},
        {"https://g/{job}" + std::string(2048, 'a'), "at most 2048 bytes"}}) {
    EXPECT_THAT(GrafanaUrlFault(url), HasSubstr(fault)) << url;
    EXPECT_THAT(GrafanaUrlFault(url), HasSubstr("an address such as https://"));
  }
}

}  // namespace
}  // namespace lockstep::server
