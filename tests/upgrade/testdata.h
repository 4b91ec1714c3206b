// What programs of older commits left behind (testdata/README.md).
#ifndef LOCKSTEP_TESTS_UPGRADE_TESTDATA_H_
#define LOCKSTEP_TESTS_UPGRADE_TESTDATA_H_

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "lockstep/v1/job.pb.h"

namespace lockstep {

// Runs once for each commit, with a copy of what it left in a directory that is
// removed afterwards.
class OldProgramTest : public testing::TestWithParam<std::string> {
 protected:
  OldProgramTest();
  ~OldProgramTest() override;

  // "store/coordinator.db" of the copy.
  std::string Path(const std::string& name) const;
  // A failure of the test, and "", where it cannot be read.
  std::string Read(const std::string& name) const;
  // By name: what the old coordinator said just before it ended.
  std::map<std::string, v1::Job> SaidJobs() const;

 private:
  std::string root_;
};

// The folders of testdata/ that have `what`. None where LOCKSTEP_SOURCE does
// not name the sources; then the suites fail.
std::vector<std::string> OldCommits(const std::string& what);

#define LOCKSTEP_FOR_OLD_COMMITS(suite, what)                          \
  INSTANTIATE_TEST_SUITE_P(                                            \
      Commits, suite, testing::ValuesIn(::lockstep::OldCommits(what)), \
      [](const testing::TestParamInfo<std::string>& info) {            \
        return "Of" + info.param;                                      \
      })

}  // namespace lockstep

#endif  // LOCKSTEP_TESTS_UPGRADE_TESTDATA_H_
