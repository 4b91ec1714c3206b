// The program lockstep-data from outside: exit codes, stdout, stderr.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "worker/data/testing.h"

namespace lockstep::worker::data {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class DataMainTest : public DataTest {
 protected:
  void SetUp() override {
    const char* bin = std::getenv("LOCKSTEP_BIN");
    ASSERT_NE(bin, nullptr) << "run me by ctest";
    program_ = JoinPath(bin, "lockstep-data");
  }
  // Returns the exit code.
  int Run(const std::string& arguments) {
    const std::string command =
        fmt::format("'{}' {} >'{}' 2>'{}'", program_, arguments, Path("stdout"),
                    Path("stderr"));
    const int status = std::system(command.c_str());
    out_ = Read(Path("stdout"));
    err_ = Read(Path("stderr"));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string program_, out_, err_;
};

TEST_F(DataMainTest, PacksAndChecks) {
  Write("images", std::string("\0\0\x08\x03\0\0\0\x03\0\0\0\x01\0\0\0\x01"
                              "abc",
                              19));
  Write("labels", std::string("\0\0\x08\x01\0\0\0\x03\0\1\1", 11));
  const std::string pack = fmt::format(
      "pack idx --images {0}/images --labels {0}/labels --out "
      "{0}/out --name tiny --records-per-shard 2",
      directory_);
  EXPECT_EQ(Run(pack), 0) << err_;
  EXPECT_EQ(out_, fmt::format("{0}/tiny-00-2.tfrec\n{0}/tiny-01-1.tfrec\n",
                              Path("out")));
  EXPECT_EQ(err_, "packed 3 samples into 2 shards\n");
  EXPECT_EQ(Run(pack), 1);
  EXPECT_THAT(err_, HasSubstr("--overwrite"));

  EXPECT_EQ(Run("check -o json " + Path("out")), 0) << err_;
  EXPECT_THAT(err_, IsEmpty());
  const auto report = nlohmann::json::parse(out_);
  EXPECT_EQ(report["records"], 3);
  EXPECT_EQ(report["classes"][1]["samples"], 2);
  EXPECT_EQ(report["shapes"]["1 x 1 x 1 raw"], 3);

  Flip(Path("out/tiny-01-1.tfrec"), 20);
  EXPECT_EQ(Run("check " + Path("out")), 1);
  EXPECT_THAT(out_, HasSubstr("DAMAGED"));
  EXPECT_THAT(err_,
              StartsWith(fmt::format("lockstep-data: {}: damaged record at "
                                     "byte 0:",
                                     Path("out/tiny-01-1.tfrec"))));
}

TEST_F(DataMainTest, WrongUsageIsTwoAndHelpIsZero) {
  EXPECT_EQ(Run(""), 2);
  EXPECT_THAT(err_, HasSubstr("--help"));
  EXPECT_EQ(Run("pack idx --images x"), 2);
  EXPECT_EQ(Run("pack jpeg --dir x --out y --name z --size 12y"), 2);
  EXPECT_THAT(err_, HasSubstr("HEIGHTxWIDTH"));
  EXPECT_EQ(Run("pack idx --images x --labels y --out z --name ../up"), 2);
  EXPECT_THAT(err_, HasSubstr("\"../up\" cannot be the name"));
  EXPECT_EQ(Run("frobnicate"), 2);
  EXPECT_THAT(out_, IsEmpty());
  EXPECT_EQ(Run("pack idx --help"), 0);
  EXPECT_THAT(out_, HasSubstr("Example:"));
  EXPECT_EQ(Run("--version"), 0);
  EXPECT_THAT(out_, StartsWith("lockstep-data "));
}

TEST_F(DataMainTest, MissingAndWrongFilesAreOne) {
  Write("wrong", "no IDX file");
  EXPECT_EQ(Run(fmt::format("pack idx --images {0}/wrong --labels {0}/wrong "
                            "--out {0}/out --name x",
                            directory_)),
            1);
  EXPECT_THAT(err_, HasSubstr("magic number"));
  EXPECT_EQ(Run("check " + Path("nothing")), 1);
  EXPECT_THAT(err_, HasSubstr(Path("nothing")));
}

}  // namespace
}  // namespace lockstep::worker::data
