// `lockstep context`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "client/cli/cli_fixture.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ContextTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    env_.variables = {{"HOME", dir_}};
    env_.system_config = dir_ + "/site.yaml";
    file_ = dir_ + "/.config/lockstep/config.yaml";
    for (const char* name : {"ca.crt", "tls.crt", "tls.key"}) {
      Write(dir_ + "/ann/" + name, "not PEM\n");
    }
  }
  void Write(const std::string& path, const std::string& text) {
    const std::string folder = path.substr(0, path.rfind('/'));
    ASSERT_TRUE(RealFileSystem()->MakeDirs(folder, 0700).ok());
    ASSERT_TRUE(RealFileSystem()->WriteAtomic(path, text, 0600).ok());
  }
  std::string File() { return RealFileSystem()->Read(file_).value_or(""); }
  int AddLab() {
    return Run({"context", "set", "lab", "--address", "head:7443",
                "--credentials", "ann"});
  }

  std::string file_;
};

TEST_F(ContextTest, TheFirstOneIsCurrentAndServes) {
  ASSERT_EQ(AddLab(), 0) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("written to " + file_));
  EXPECT_THAT(err_.str(), HasSubstr("it is the current one"));
  EXPECT_THAT(out_.str(), IsEmpty());
  // Absolute paths: commands are run elsewhere, too.
  EXPECT_EQ(File(),
            "current-context: lab\ncontexts:\n  lab:\n"
            "    address: head:7443\n"
            "    ca: " +
                dir_ +
                "/ann/ca.crt\n"
                "    cert: " +
                dir_ +
                "/ann/tls.crt\n"
                "    key: " +
                dir_ + "/ann/tls.key\n");
  struct stat info {};
  ASSERT_EQ(stat(file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto options = ResolveConnection({}, env_);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->address, "head:7443");
  EXPECT_EQ(options->key, dir_ + "/ann/tls.key");
}

TEST_F(ContextTest, ListShowUse) {
  EXPECT_EQ(Run({"context", "list"}), 0);
  EXPECT_THAT(err_.str(), HasSubstr("there is no context in " + file_));
  EXPECT_EQ(Run({"context", "show"}), 3);
  Write(env_.system_config,
        "contexts:\n  site: {address: 's:1', "
        "insecure-loopback: true}\n");
  ASSERT_EQ(AddLab(), 0) << err_.str();
  ASSERT_EQ(Run({"context", "set", "here", "--address", "127.0.0.1:1",
                 "--insecure-loopback"}),
            0)
      << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("`lockstep context use here`"));
  EXPECT_EQ(Run({"context", "list", "-o", "name"}), 0);
  EXPECT_EQ(out_.str(), "here\nlab\nsite\n");
  EXPECT_EQ(Run({"context", "list"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("lab   yes      head:7443"));
  EXPECT_THAT(out_.str(), HasSubstr("here  -        127.0.0.1:1  no TLS"));
  EXPECT_THAT(out_.str(), HasSubstr(dir_ + "/site.yaml"));

  // One of the site's can be chosen, too.
  EXPECT_EQ(Run({"context", "use", "sitte"}), 3);
  EXPECT_THAT(err_.str(), HasSubstr("did you mean site?"));
  ASSERT_EQ(Run({"context", "use", "site"}), 0) << err_.str();
  EXPECT_EQ(ResolveConnection({}, env_)->address, "s:1");
  EXPECT_EQ(Run({"contexts", "show", "-o", "json"}), 0) << err_.str();
  const auto shown = nlohmann::json::parse(out_.str());
  EXPECT_EQ(shown["name"], "site");
  EXPECT_EQ(shown["current"], true);
  EXPECT_EQ(shown["insecureLoopback"], true);
  EXPECT_EQ(Run({"context", "show", "lab"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("context    lab\n"));
  EXPECT_THAT(out_.str(), HasSubstr("address    head:7443\n"));
  // Why it would not do.
  EXPECT_THAT(out_.str(), HasSubstr("not a PEM certificate"));

  env_.variables["LOCKSTEP_CONTEXT"] = "lab";
  ASSERT_EQ(Run({"context", "use", "here"}), 0);
  EXPECT_THAT(err_.str(), HasSubstr("LOCKSTEP_CONTEXT is set"));
}

TEST_F(ContextTest, ShowSaysWhoYouAre) {
  ASSERT_EQ(Run({"init", "--cluster", "lab", "--dir", "pki"}), 0) << err_.str();
  ASSERT_EQ(Run({"cert", "issue", "user", "ann", "--dir", "pki"}), 0);
  ASSERT_EQ(Run({"context", "set", "lab", "--address", "head:7443",
                 "--credentials", "pki/user-ann"}),
            0)
      << err_.str();
  EXPECT_EQ(Run({"context", "show"}), 0);
  EXPECT_THAT(out_.str(), HasSubstr("context    lab (current)\n"));
  EXPECT_THAT(out_.str(), HasSubstr("ann"));
  EXPECT_THAT(out_.str(), HasSubstr(", until 20"));
}

TEST_F(ContextTest, SetChangesWhatIsGiven) {
  ASSERT_EQ(AddLab(), 0) << err_.str();
  ASSERT_EQ(Run({"context", "set", "lab", "--address", "10.0.0.1:1"}), 0)
      << err_.str();
  EXPECT_THAT(File(), HasSubstr("address: 10.0.0.1:1"));
  EXPECT_THAT(File(), HasSubstr("key: " + dir_ + "/ann/tls.key"));
  EXPECT_THAT(File(), Not(HasSubstr("head")));
  ASSERT_EQ(Run({"context", "set", "other", "--use", "--address", "b:1", "--ca",
                 dir_ + "/ann/ca.crt", "--cert", "ann/tls.crt", "--key",
                 "ann/tls.key"}),
            0)
      << err_.str();
  EXPECT_THAT(File(), HasSubstr("current-context: other"));
}

TEST_F(ContextTest, WhatCouldNotServeIsRefusedAndNothingWritten) {
  const std::vector<std::vector<std::string>> wrong = {
      {"lab", "--credentials", "ann"},
      {"lab", "--address", "head", "--credentials", "ann"},
      {"lab", "--address", "head:1"},
      {"lab", "--address", "head:1", "--insecure-loopback"},
      {"a/b", "--address", "head:1", "--credentials", "ann"},
  };
  for (const auto& each : wrong) {
    std::vector<std::string> args = {"context", "set"};
    args.insert(args.end(), each.begin(), each.end());
    EXPECT_EQ(Run(args), 2) << out_.str() << err_.str();
  }
  EXPECT_EQ(Run({"context", "set", "lab", "--address", "head:1",
                 "--credentials", "bob"}),
            3);
  EXPECT_THAT(err_.str(), HasSubstr(dir_ + "/bob/ca.crt"));
  EXPECT_FALSE(RealFileSystem()->Exists(file_));
  // What is not understood is not written over.
  Write(file_, "contexts: {lab: {adress: x}}\n");
  EXPECT_EQ(AddLab(), 2);
  EXPECT_THAT(File(), HasSubstr("adress"));
}

TEST_F(ContextTest, Delete) {
  Write(env_.system_config, "contexts:\n  site: {address: 's:1'}\n");
  ASSERT_EQ(AddLab(), 0) << err_.str();
  EXPECT_EQ(Run({"context", "delete", "la"}), 3);
  EXPECT_EQ(Run({"context", "delete", "site"}), 1);
  EXPECT_THAT(err_.str(), HasSubstr("belongs to the site's file " + dir_));
  ASSERT_EQ(Run({"context", "delete", "lab"}), 0) << err_.str();
  EXPECT_THAT(err_.str(), HasSubstr("which has no current context now"));
  EXPECT_THAT(File(), Not(HasSubstr("lab")));
  EXPECT_TRUE(RealFileSystem()->Exists(dir_ + "/ann/tls.key"));
}

}  // namespace
}  // namespace lockstep::cli
