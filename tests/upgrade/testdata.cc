#include "tests/upgrade/testdata.h"

#include <google/protobuf/util/json_util.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/base/file.h"

namespace lockstep {

namespace {

std::string Testdata() {
  const char* const source = getenv("LOCKSTEP_SOURCE");
  return JoinPath(source == nullptr ? "." : source, "tests/upgrade/testdata");
}

}  // namespace

OldProgramTest::OldProgramTest() {
  char name[] = "/tmp/lockstep-upgrade-XXXXXX";
  const char* const made = mkdtemp(name);
  EXPECT_NE(made, nullptr);
  if (made == nullptr) return;
  root_ = made;
  std::filesystem::copy(JoinPath(Testdata(), GetParam()), root_,
                        std::filesystem::copy_options::recursive);
}

OldProgramTest::~OldProgramTest() {
  EXPECT_TRUE(RealFileSystem()->RemoveAll(root_).ok());
}

std::string OldProgramTest::Path(const std::string& name) const {
  return JoinPath(root_, name);
}

std::string OldProgramTest::Read(const std::string& name) const {
  const auto bytes = RealFileSystem()->Read(Path(name));
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.value_or("");
}

std::map<std::string, v1::Job> OldProgramTest::SaidJobs() const {
  google::protobuf::util::JsonParseOptions options;
  // What `lockstep jobs describe` adds.
  options.ignore_unknown_fields = true;
  std::map<std::string, v1::Job> jobs;
  for (const auto& job : nlohmann::json::parse(Read("jobs.json"))) {
    const std::string name = job["jobId"];
    const auto parsed = google::protobuf::util::JsonStringToMessage(
        job["lockstep"].dump(), &jobs[name], options);
    EXPECT_TRUE(parsed.ok()) << name << ": " << parsed.ToString();
  }
  return jobs;
}

std::vector<std::string> OldCommits(const std::string& what) {
  std::vector<std::string> commits;
  const auto names = RealFileSystem()->List(Testdata());
  if (!names.ok()) return commits;
  for (const std::string& name : *names) {
    if (RealFileSystem()->Exists(JoinPath(Testdata(), name + "/" + what))) {
      commits.push_back(name);
    }
  }
  return commits;
}

}  // namespace lockstep
